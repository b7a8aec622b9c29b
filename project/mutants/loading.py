"""Imports a mutated module, for mutations outside of functions: constants, tables, classes.

`python -m project.mutants.loading FILE ID TESTS` runs the tests listed in the file TESTS; the exit code is pytest's.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from project.mutants.mutations import mutations_of
from project.mutants.running import OPTIONS, ROOT, module_of, use_hypothesis


class MutatedLoader(SourceFileLoader):
    code: CodeType

    def get_code(self, fullname: str) -> CodeType:
        return self.code


class Finder(MetaPathFinder):
    def __init__(self, module: str, code: CodeType) -> None:
        self.module = module
        self.code = code

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        loader = MutatedLoader(fullname, spec.origin)
        loader.code = self.code
        spec.loader = loader
        return spec


class Chosen:
    """A pytest plugin that selects these tests, in this order."""

    def __init__(self, tests: list[str]) -> None:
        self.order = {test: number for number, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted([item for item in items if item.nodeid in self.order], key=lambda item: self.order[item.nodeid])


def main(file: str, id: str, listed: str) -> int:
    tree, mutations = mutations_of(file, (ROOT / file).read_text())
    mutation = next(mutation for mutation in mutations if mutation.key.id == id)
    mutation.apply()
    code = compile(ast.fix_missing_locations(tree), str(ROOT / file), "exec")
    sys.meta_path.insert(0, Finder(module_of(file), code))
    tests = Path(listed).read_text().splitlines()
    use_hypothesis()
    files = sorted({test.partition("::")[0] for test in tests})
    return int(pytest.main([*OPTIONS, "-x", *files], plugins=[Chosen(tests)]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
