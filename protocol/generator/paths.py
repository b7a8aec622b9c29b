"""The paths of a message: the generated code for its flexible versions, and the code for its older (legacy) versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

from protocol.generator.lines import Lines, condition
from protocol.generator.model import FIXED_SIZES, Field, Struct, Versions


@dataclass(frozen=True)
class Path:
    versions: Versions
    flexible: bool

    def has(self, item: Field) -> bool:
        return item.within(self.versions)

    def always(self, item: Field) -> bool:
        return item.tag is None and self.has(item) and condition(item.versions, self.versions) is None

    def null_when(self, item: Field) -> str | None:
        """When a field may be null: None never, "" always, else a condition on the version."""
        first, last = max(item.versions[0], self.versions[0]), min(item.versions[1], self.versions[1])
        if item.nullable is None or item.nullable[0] > last or item.nullable[1] < first:
            return None
        return condition(item.nullable, (first, last)) or ""


def paths_of(versions: Versions, flexible_from: int) -> list[Path]:
    """The flexible path is first, since current clients use it."""
    first, last = versions
    paths = []
    if last >= flexible_from:
        paths.append(Path((max(first, flexible_from), last), True))
    if first < flexible_from:
        paths.append(Path((first, min(last, flexible_from - 1)), False))
    return paths


def by_path(out: Lines, paths: list[Path], struct: Struct, body: Callable[[Lines, Path], None]) -> None:
    """Generate `body` for each path with fields, under `if version >= ...`."""
    if len(paths) == 1:
        body(out, paths[0])
        return
    flexible, legacy = paths
    with out.block(f"if version >= {flexible.versions[0]}:"):
        body(out, flexible)
    if any(legacy.has(item) for item in struct.fields):
        with out.block("else:"):
            body(out, legacy)


def sections(struct: Struct, path: Path) -> Iterator[tuple[str | None, list[Field]]]:
    """The path's untagged fields in wire order: runs of fields for the same versions, each with its condition on the version (None: always)."""
    present = [item for item in struct.fields if item.tag is None and path.has(item)]
    for when, group in groupby(present, key=lambda item: condition(item.versions, path.versions)):
        yield when, list(group)


def runs(fields: list[Field], single: tuple[str, ...] = ()) -> Iterator[list[Field]]:
    """Adjacent fields of fixed size in one list, every other field alone."""
    run: list[Field] = []
    for item in fields:
        if item.kind in FIXED_SIZES and item.kind not in single:
            run.append(item)
            continue
        if run:
            yield run
            run = []
        yield [item]
    if run:
        yield run
