"""Replaces the code of a loaded function by its mutation, also for modules that have imported the function."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType

from project.mutants.mutations import Function, Mutation


class NotSwapped(Exception):
    """The code of the function cannot be replaced in place."""


def swap(tree: ast.Module, mutation: Mutation, path: str, module: str) -> None:
    """Replace the code of the mutated function. Raises NotSwapped if the mutation is outside of functions, or changes the closure of its function."""
    outer = mutation.outer
    if outer is None:
        raise NotSwapped
    lines = first_line(outer)
    functions = [function for function in functions_of(module) if function.__code__.co_firstlineno == lines and function.__code__.co_name == outer.name]
    if not functions:
        raise NotSwapped
    mutation.apply()
    try:
        module_code = compile(ast.fix_missing_locations(tree), path, "exec")
        defaults, kw_defaults = evaluated_defaults(outer, functions[0])
    finally:
        mutation.undo()
    code = find(module_code, outer.name, lines)
    for function in functions:
        if code is None or code.co_freevars != function.__code__.co_freevars:
            raise NotSwapped
        function.__code__ = code
        if mutation.parent is outer.args:
            function.__defaults__, function.__kwdefaults__ = defaults, kw_defaults


def first_line(function: Function) -> int:
    return min([function.lineno, *[decorator.lineno for decorator in function.decorator_list]])


def evaluated_defaults(outer: Function, function: FunctionType) -> tuple[tuple[object, ...] | None, dict[str, object] | None]:
    """Evaluate the default arguments that the function has in the mutated syntax tree."""
    scope = function.__globals__

    def value(node: ast.expr) -> object:
        return eval(compile(ast.Expression(node), "default", "eval"), scope)

    arguments = outer.args
    plain = tuple(value(default) for default in arguments.defaults) or None
    keywords = {kwonlyarg.arg: value(default) for kwonlyarg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default is not None}
    return plain, keywords or None


def find(code: CodeType, name: str, line: int) -> CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_name == name and constant.co_firstlineno == line:
                return constant
            if (below := find(constant, name, line)) is not None:
                return below
    return None


def functions_of(module: str) -> Iterator[FunctionType]:
    """The functions that a module defines, including methods and properties."""
    loaded = sys.modules.get(module)
    if loaded is not None:
        yield from functions_in_scope(vars(loaded), module, set())


def functions_in_scope(scope: object, module: str, seen: set[int]) -> Iterator[FunctionType]:
    for value in list(scope.values()) if isinstance(scope, dict) else list(vars(scope).values()):
        yield from functions_in(value, module, seen)


def functions_in(value: object, module: str, seen: set[int]) -> Iterator[FunctionType]:
    if id(value) in seen or getattr(value, "__module__", module) != module:
        return
    seen.add(id(value))
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, (staticmethod, classmethod)):
        yield from functions_in(value.__func__, module, seen)
    elif isinstance(value, property):
        for accessor in (value.fget, value.fset, value.fdel):
            yield from functions_in(accessor, module, seen)
    elif isinstance(value, type):
        yield from functions_in_scope(value, module, seen)
    if hasattr(value, "__wrapped__"):  # set by lru_cache, contextmanager and similar decorators
        yield from functions_in(value.__wrapped__, module, seen)
