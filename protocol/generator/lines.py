"""Lines of Python with their indentation, and conditions on the version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from protocol.generator.model import Versions

LINE_MAX = 140


class Lines:
    def __init__(self, level: int = 0) -> None:
        self.level = level
        self.lines: list[str] = []
        self.used: set[str] = set()  # names to import
        self.nullable_arrays: set[str] = set()  # names of the structs of this message that are in a nullable array

    def put(self, *lines: str) -> None:
        self.lines += ["    " * self.level + line if line else "" for line in lines]

    def use(self, name: str) -> str:
        self.used.add(name)
        return name

    def call(self, before: str, name: str, arguments: Iterable[str], after: str = "") -> None:
        """`before name(arguments) after`, in one line or with one line for each argument."""
        listed = list(arguments)
        one_line = f"{before}{name}({', '.join(listed)}){after}"
        if len(one_line) + 4 * self.level <= LINE_MAX:
            self.put(one_line)
        else:
            self.put(f"{before}{name}(", *(f"    {argument}," for argument in listed), f"){after}")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.put(head)
        self.level += 1
        yield
        self.level -= 1


def condition(versions: Versions, within: Versions) -> str | None:
    """The condition for a field that exists in `versions`, on a path for the versions `within`; None: always."""
    first, last = versions[0] > within[0], versions[1] < within[1]
    if first and last:
        return f"version == {versions[0]}" if versions[0] == versions[1] else f"{versions[0]} <= version <= {versions[1]}"
    if first:
        return f"version >= {versions[0]}"
    if last:
        return f"version <= {versions[1]}"
    return None
