"""No name is bound by two `except` clauses: in mypyc's code it has the type of the first, and another exception becomes a TypeError."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from setup import compiled_modules
from tests.running import ROOT

pytestmark = pytest.mark.once

Function = ast.FunctionDef | ast.AsyncFunctionDef


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    nodes: list[ast.AST] = list(function.body)
    while nodes:
        node = nodes.pop()
        yield node
        if not isinstance(node, (*Function.__args__, ast.Lambda, ast.ClassDef)):
            nodes.extend(ast.iter_child_nodes(node))


def ambiguous_names(source: str) -> list[str]:
    ambiguous = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, Function):
            continue
        caught: dict[str, set[str]] = {}
        assigned = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
        for node in own_nodes(function):
            if isinstance(node, ast.ExceptHandler) and node.name and node.type is not None:
                caught.setdefault(node.name, set()).add(ast.unparse(node.type))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                assigned.add(node.id)
        ambiguous += [f"{function.name}: {name}" for name, types in caught.items() if len(types) > 1 or name in assigned]
    return ambiguous


def test_a_name_is_bound_by_except_clauses_of_one_type() -> None:
    ambiguous = {module: names for module in compiled_modules(ROOT) if (names := ambiguous_names((ROOT / module).read_text()))}
    assert ambiguous == {}


@pytest.mark.parametrize(
    ("source", "ambiguous"),
    [
        ("try: g()\n except OSError as error: h(error)\n except ValueError as failure: h(failure)", []),
        ("try: g()\n except OSError as error: h(error)\n except ValueError as error: h(error)", ["f: error"]),
        ("error = 1\n try: g()\n except OSError as error: h(error)", ["f: error"]),
    ],
)
def test_ambiguous_names_are_found(source: str, ambiguous: list[str]) -> None:
    assert ambiguous_names(f"def f():\n {source}") == ambiguous
