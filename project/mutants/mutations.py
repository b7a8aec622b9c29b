"""The mutations of a source file.

A mutation replaces one node of the syntax tree. Its key consists of file, function, text of the line, description of the change, and a number
if these are ambiguous. So changes elsewhere in the file leave the key as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple

NEGATED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
BOUNDARY: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
SIGNS: Final[dict[type[ast.AST], str]] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not", ast.In: "in",
    ast.NotIn: "not in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Div: "/", ast.Mod: "%", ast.LShift: "<<",
    ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.And: "and", ast.Or: "or",
}  # fmt: skip
NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any", "pop": "popleft", "popleft": "pop", "append": "appendleft"}
DEQUE: Final = {"popleft", "append"}
LOGGERS: Final = {"log"}
# Base classes of classes without behaviour.
TYPE_ONLY: Final = {"Protocol", "TypedDict"}
LARGE: Final = 100  # larger constants are halved, not incremented: no test checks a budget of 64 KiB to the byte

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Key(NamedTuple):
    file: str
    function: str  # "" for code evaluated at import
    line: str
    change: str

    @property
    def id(self) -> str:
        return sha256("\0".join(self).encode()).hexdigest()[:10]


class Mutation:
    """A change of one node: the field `name` of `parent`, or element `index` of that field, becomes `new`."""

    __slots__ = ("index", "key", "lines", "name", "new", "number", "old", "outer", "parent", "source")

    def __init__(self, parent: ast.AST, name: str, index: int, old: object, new: object) -> None:
        self.parent = parent
        self.name = name
        self.index = index
        self.old = old
        self.new = new
        self.key = Key("", "", "", "")
        self.number = 0  # the line number
        self.lines: tuple[int, int] = (0, 0)  # first and last line of the node: a test must run one of them to detect the mutation
        self.outer: Function | None = None  # the outermost function around the node
        self.source = ""  # the text of that function, or of the statement

    def apply(self) -> None:
        self._put(self.new)

    def undo(self) -> None:
        self._put(self.old)

    def _put(self, replacement: object) -> None:
        if self.index < 0:
            setattr(self.parent, self.name, replacement)
        else:
            getattr(self.parent, self.name)[self.index] = replacement


class Change(NamedTuple):
    name: str
    place: int  # index in the list `name`; -1: `name` is no list
    old: object
    new: object
    change: str
    at: ast.AST


def mutations_of(file: str, text: str) -> tuple[ast.Module, list[Mutation]]:
    """The syntax tree of a file and all its mutations, in the order of their lines."""
    tree = ast.parse(text)
    finder = Finder(file, text)
    finder.mutate_statements(tree, None, "")
    seen: dict[Key, int] = {}
    for mutation in finder.found:
        key = mutation.key
        seen[key] = count = seen.get(key, 0) + 1
        if count > 1:
            mutation.key = key._replace(change=f"{key.change} (no. {count})")
    return tree, finder.found


class Finder:
    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.lines = text.splitlines()
        self.found: list[Mutation] = []

    # The traversal.

    def mutate_statements(self, owner: ast.AST, outer: Function | None, prefix: str) -> None:
        """Mutate the statements of a module, a class or a function, or of a branch in one of these."""
        for name, value in ast.iter_fields(owner):
            if name in ("decorator_list", "returns", "annotation", "bases", "keywords", "type_params"):
                continue
            if not isinstance(value, list):
                continue
            for index, statement in enumerate(value):
                if isinstance(statement, ast.stmt):
                    self._mutate_statement(owner, name, index, statement, outer, prefix)
                elif isinstance(statement, (ast.ExceptHandler, ast.match_case)):
                    self._add(statement, outer, prefix, self._of_handler(statement))
                    self.mutate_statements(statement, outer, prefix)

    def _mutate_statement(self, owner: ast.AST, name: str, index: int, statement: ast.stmt, outer: Function | None, prefix: str) -> None:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inside = outer or statement
            path = f"{prefix}{statement.name}"
            if statement.name == "__repr__" or any(isinstance(decorator, ast.Name) and decorator.id == "overload" for decorator in statement.decorator_list):
                return None
            self._mutate_defaults(statement, inside, path)
            return self.mutate_statements(statement, inside, f"{path}.")
        if isinstance(statement, ast.ClassDef):
            if any(isinstance(base, ast.Name) and base.id in TYPE_ONLY for base in statement.bases):
                return None
            return self.mutate_statements(statement, outer, f"{prefix}{statement.name}.")
        if is_excluded(statement, outer is None):
            return None
        self._add(owner, outer, prefix, self._of_statement(statement, name, index, outer))
        for field, value in ast.iter_fields(statement):
            if field in ("annotation", "type_comment") or isinstance(statement, ast.Raise):
                continue
            self._mutate_expressions(statement, field, value, outer, prefix)
        if isinstance(statement, (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.AsyncFor, ast.AsyncWith, ast.Match)):
            self.mutate_statements(statement, outer, prefix)
        return None

    def _mutate_defaults(self, function: Function, outer: Function, path: str) -> None:
        for field in ("defaults", "kw_defaults"):
            for index, default in enumerate(getattr(function.args, field)):
                if isinstance(default, ast.Constant):
                    changes = [Change(field, index, default, new, f"default {change}", default) for new, change in of_constant(default)]
                    self._add(function.args, outer, f"{path}.", changes)

    def _mutate_expressions(self, parent: ast.AST, field: str, value: object, outer: Function | None, prefix: str) -> None:
        """Mutate the expressions below one field of a statement or expression."""
        if isinstance(value, list):
            for index, element in enumerate(value):
                if isinstance(element, (ast.expr, ast.comprehension, ast.keyword, ast.withitem)):
                    self._mutate_expression(parent, field, index, element, outer, prefix)
        elif isinstance(value, (ast.expr, ast.comprehension, ast.keyword)):
            self._mutate_expression(parent, field, -1, value, outer, prefix)

    def _mutate_expression(self, parent: ast.AST, field: str, index: int, node: ast.AST, outer: Function | None, prefix: str) -> None:
        if isinstance(node, ast.JoinedStr):
            return
        self._add(parent, outer, prefix, self._of_expression(parent, field, index, node, outer))
        for below, value in ast.iter_fields(node):
            self._mutate_expressions(node, below, value, outer, prefix)

    def _add(self, parent: ast.AST, outer: Function | None, prefix: str, changes: Iterator[Change] | list[Change]) -> None:
        for change in changes:
            target = parent
            if isinstance(change.old, _Inside):
                target, old = change.old
            else:
                old = change.old
            mutation = Mutation(target, change.name, change.place, old, change.new)
            number = getattr(change.at, "lineno", 0)
            mutation.number = number
            mutation.lines = (number, getattr(change.at, "end_lineno", number))
            mutation.outer = outer
            first, last = (outer.lineno, outer.end_lineno or outer.lineno) if outer is not None else (number, number)
            mutation.source = "\n".join(self.lines[first - 1 : last])
            line = self.lines[number - 1].partition("  # ")[0].strip()
            mutation.key = Key(self.file, prefix.rstrip(".") if outer is not None else "", line, change.change)
            self.found.append(mutation)

    # Possible mutations.

    def _of_statement(self, statement: ast.stmt, name: str, index: int, outer: Function | None) -> Iterator[Change]:
        pass_statement = ast.copy_location(ast.Pass(), statement)
        match statement:
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete():
                yield Change(name, index, statement, pass_statement, "statement deleted", statement)
            case ast.Assign() | ast.AnnAssign() if outer is not None and _is_more_than_a_name(statement, outer):
                yield Change(name, index, statement, pass_statement, "statement deleted", statement)
            case ast.AugAssign() if outer is not None:
                yield Change(name, index, statement, pass_statement, "statement deleted", statement)
                other = ARITHMETIC.get(type(statement.op))
                if other is not None and not _is_text(statement.value):
                    signs = f"{SIGNS[type(statement.op)]}= -> {SIGNS[other]}="
                    yield Change("op", -1, _Inside(statement, statement.op), other(), signs, statement)
            case ast.Return(value=None) | ast.Raise():
                yield Change(name, index, statement, pass_statement, "statement deleted", statement)
            case ast.Return(value=value) if not (isinstance(value, ast.Constant) and value.value is None):
                none = ast.copy_location(ast.Return(ast.copy_location(ast.Constant(None), statement)), statement)
                yield Change(name, index, statement, none, "return None", statement)
            case ast.Continue():
                yield Change(name, index, statement, ast.copy_location(ast.Break(), statement), "continue -> break", statement)
                yield Change(name, index, statement, pass_statement, "statement deleted", statement)
            case ast.Break():
                yield Change(name, index, statement, ast.copy_location(ast.Continue(), statement), "break -> continue", statement)
            case ast.If() | ast.IfExp():
                yield from _conditions(statement)
            case ast.While(test=test) if not isinstance(test, ast.Constant):
                yield Change("test", -1, _Inside(statement, test), _constant(False, test), "while condition -> False", test)

    def _of_handler(self, handler: ast.ExceptHandler | ast.match_case) -> Iterator[Change]:
        if isinstance(handler, ast.ExceptHandler) and not isinstance(handler.body[0], ast.Raise):
            raises = ast.copy_location(ast.Raise(), handler.body[0])
            yield Change("body", -1, handler.body, [raises], "the exception is not handled", handler.body[0])

    def _of_expression(self, parent: ast.AST, field: str, index: int, node: ast.AST, outer: Function | None) -> Iterator[Change]:
        match node:
            case ast.Compare():
                for number, op in enumerate(node.ops):
                    for table in (BOUNDARY, NEGATED):
                        other = table.get(type(op))
                        if other is not None:
                            yield Change("ops", number, _Inside(node, op), other(), f"{SIGNS[type(op)]} -> {SIGNS[other]}", node)
                    container = node.comparators[number]
                    if isinstance(op, (ast.In, ast.NotIn)) and isinstance(container, (ast.Tuple, ast.Set, ast.List)) and len(container.elts) > 1:
                        yield from _dropped(container)
            case ast.BinOp():
                other_op = ARITHMETIC.get(type(node.op))
                if other_op is not None and not _is_text(node.left) and not _is_text(node.right):
                    yield Change("op", -1, _Inside(node, node.op), other_op(), f"{SIGNS[type(node.op)]} -> {SIGNS[other_op]}", node)
            case ast.BoolOp():
                to = ast.Or if isinstance(node.op, ast.And) else ast.And
                yield Change("op", -1, _Inside(node, node.op), to(), f"{SIGNS[type(node.op)]} -> {SIGNS[to]}", node)
                neutral = isinstance(node.op, ast.And)
                for number, operand in enumerate(node.values):
                    change = f"`{_short(operand)}` -> {neutral}"
                    yield Change("values", number, _Inside(node, operand), _constant(neutral, operand), change, operand)
            case ast.UnaryOp(op=ast.Not()):
                yield Change(field, index, node, node.operand, f"not `{_short(node.operand)}` -> without not", node)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
                yield Change(field, index, node, node.operand, f"-{_short(node.operand)} without sign", node)
            case ast.IfExp():
                yield from _conditions(node)
            case ast.Constant() if field not in ("annotation", "returns"):
                for new, change in of_constant(node, at_import=outer is None):
                    yield Change(field, index, node, new, change, node)
            case ast.Slice():
                for name, bound in (("lower", node.lower), ("upper", node.upper)):
                    if bound is not None:
                        yield Change(name, -1, _Inside(node, bound), None, f"[{_short(node)}] without {name} bound", bound)
            case ast.Call(func=ast.Name(id=name)) if name in ("min", "max", "any", "all"):
                yield Change("id", -1, _Inside(node.func, name), NAMES[name], f"{name} -> {NAMES[name]}", node)
            case ast.Call(func=ast.Attribute(attr=name)) if name in DEQUE:
                yield Change("attr", -1, _Inside(node.func, name), NAMES[name], f"{name} -> {NAMES[name]}", node)
            case ast.Call(func=ast.Attribute(attr="suppress")):
                yield Change("args", -1, _Inside(node, node.args), [], "nothing is suppressed", node)
            case ast.Call(func=ast.Name(id="Row")):  # a line of a table
                for number in range(len(node.args) - 1):
                    first, second = node.args[number], node.args[number + 1]
                    if _short(first) != _short(second):
                        swapped = [*node.args[:number], second, first, *node.args[number + 2 :]]
                        yield Change("args", -1, _Inside(node, node.args), swapped, f"{_short(first)} <-> {_short(second)}", first)
            case ast.Dict() if outer is None and len(node.values) > 1:
                for number in range(len(node.values)):
                    first, second = node.values[number], node.values[(number + 1) % len(node.values)]
                    if _short(first) != _short(second):
                        change = f"value of {_short(node.keys[number])} as that of the next"
                        yield Change("values", number, _Inside(node, first), second, change, first)
            case ast.Set() if outer is None and len(node.elts) > 1:
                yield from _dropped(node)


class _Inside(tuple[ast.AST, object]):
    """The parent of the replaced node, and the node."""

    def __new__(cls, parent: ast.AST, old: object) -> _Inside:
        return super().__new__(cls, (parent, old))


def _conditions(node: ast.If | ast.IfExp) -> Iterator[Change]:
    if not isinstance(node.test, ast.Constant):
        for value in (True, False):
            yield Change("test", -1, _Inside(node, node.test), _constant(value, node.test), f"if condition -> {value}", node.test)


def _dropped(node: ast.Tuple | ast.Set | ast.List) -> Iterator[Change]:
    for number, elt in enumerate(node.elts):
        yield Change("elts", -1, _Inside(node, node.elts), [*node.elts[:number], *node.elts[number + 1 :]], f"without {_short(elt)}", node)


def of_constant(node: ast.Constant, at_import: bool = False) -> Iterator[tuple[ast.Constant, str]]:
    value = node.value
    alternatives: tuple[object, ...]
    if isinstance(value, bool):
        alternatives = (not value,)
    elif isinstance(value, int):
        alternatives = (value // 2,) if abs(value) >= LARGE else (value + 1, value - 1) if not at_import and value else (value + 1,)
    elif isinstance(value, float):
        alternatives = (value + 1,)
    elif isinstance(value, str):
        alternatives = ("",) if value else ("x",)
    elif isinstance(value, bytes):
        alternatives = (b"",) if value else (b"x",)
    else:
        alternatives = ()
    for other in alternatives:
        yield _constant(other, node), f"{value!r} -> {other!r}"


def _constant(value: object, at: ast.AST) -> ast.Constant:
    return ast.copy_location(ast.Constant(value), at)  # type: ignore[arg-type]


def _short(node: ast.AST | None) -> str:
    text = ast.unparse(node) if node is not None else "**"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_text(node: ast.expr) -> bool:
    """Whether other arithmetic on this node raises a TypeError. Every test detects that, so such a mutation is no measure of the tests."""
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)) or (
        isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    )


def _is_more_than_a_name(statement: ast.Assign | ast.AnnAssign, outer: Function) -> bool:
    """Whether each assigned name also has a value without this statement, from another assignment or as a parameter."""
    if isinstance(statement, ast.AnnAssign) and statement.value is None:
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    names = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
    if not names:
        return True
    stores = [name.id for name in ast.walk(outer) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and name.id in names]
    arguments = {argument.arg for argument in ast.walk(outer.args) if isinstance(argument, ast.arg)}
    return all(stores.count(name) > 1 or name in arguments for name in names)


def is_excluded(statement: ast.stmt, at_import: bool) -> bool:
    """Whether a statement has no behaviour, or none that tests should check."""
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.Assert() | ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Global() | ast.Nonlocal():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))) if name in LOGGERS:
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) if name in ("__slots__", "__all__", "log", "__match_args__"):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar")) | ast.Subscript(value=ast.Name()) | ast.BinOp(op=ast.BitOr())):
            return at_import  # a type alias or type variable
    return False
