"""Mutations: their descriptions, how they replace loaded code, and their keys."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from project.mutants.mutations import Key, Mutation, mutations_of
from project.mutants.report import Report
from project.mutants.results import Results, write_atomically
from project.mutants.running import KILLED, SURVIVED, Verdict, tracer
from project.mutants.swapping import NotSwapped, swap

SOURCE = '''\
"""What a bucket holds."""

from __future__ import annotations

from functools import lru_cache

LIMIT = 3


class Bucket:
    __slots__ = ("_size",)

    def __init__(self, size: int = 0) -> None:
        """Empty, unless told otherwise."""
        self._size = size

    @property
    def full(self) -> bool:
        return self._size >= LIMIT  # not one more

    def add(self, many: int) -> bool:
        assert many > 0, "nothing to add"
        if self.full or not many:
            return False
        self._size += many
        log.info("added", many=many)
        return True


@lru_cache(8)
def fits(size: int) -> bool:
    if size < 0:
        raise ValueError("no size " + str(size))
    return not Bucket(size).full
'''
LINE = "return self._size >= LIMIT"


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[ModuleType]:
    """A module loaded from SOURCE."""
    path = tmp_path / "bucket_of_tests.py"
    path.write_text(SOURCE)
    module = ModuleType("bucket_of_tests")
    sys.modules[module.__name__] = module
    exec(compile(SOURCE, str(path), "exec"), vars(module))
    yield module
    del sys.modules[module.__name__]


def mutation_of(function: str, change: str, source: str = SOURCE) -> tuple[ast.Module, Mutation]:
    tree, mutations = mutations_of("bucket.py", source)
    (mutation,) = [mutation for mutation in mutations if (mutation.key.function, mutation.key.change) == (function, change)]
    return tree, mutation


def swapped(module: ModuleType, function: str, change: str) -> None:
    tree, mutation = mutation_of(function, change)
    swap(tree, mutation, "bucket.py", module.__name__)


def test_the_mutations_of_a_file_are_complete() -> None:
    changes = [(mutation.key.function, mutation.number, mutation.key.change) for mutation in mutations_of("bucket.py", SOURCE)[1]]
    assert changes == [
        ("", 7, "3 -> 4"),
        ("Bucket.__init__", 13, "default 0 -> 1"),
        ("Bucket.__init__", 15, "statement deleted"),
        ("Bucket.full", 19, "return None"),
        ("Bucket.full", 19, ">= -> >"),
        ("Bucket.full", 19, ">= -> <"),
        ("Bucket.add", 23, "if condition -> True"),
        ("Bucket.add", 23, "if condition -> False"),
        ("Bucket.add", 23, "or -> and"),
        ("Bucket.add", 23, "`self.full` -> False"),
        ("Bucket.add", 23, "`not many` -> False"),
        ("Bucket.add", 23, "not `many` -> without not"),
        ("Bucket.add", 24, "return None"),
        ("Bucket.add", 24, "False -> True"),
        ("Bucket.add", 25, "statement deleted"),
        ("Bucket.add", 25, "+= -> -="),
        ("Bucket.add", 27, "return None"),
        ("Bucket.add", 27, "True -> False"),
        ("fits", 32, "if condition -> True"),
        ("fits", 32, "if condition -> False"),
        ("fits", 32, "< -> <="),
        ("fits", 32, "< -> >="),
        ("fits", 32, "0 -> 1"),
        ("fits", 33, "statement deleted"),
        ("fits", 34, "return None"),
        ("fits", 34, "not `Bucket(size).full` -> without not"),
    ]


def test_the_tree_is_as_before_when_a_mutation_was_undone() -> None:
    tree, mutations = mutations_of("bucket.py", SOURCE)
    before = ast.dump(tree)
    for mutation in mutations:
        mutation.apply()
        assert ast.dump(tree) != before
        compile(ast.fix_missing_locations(tree), "bucket.py", "exec")
        mutation.undo()
        assert ast.dump(tree) == before


def test_a_key_changes_only_with_its_own_line() -> None:
    key = mutation_of("Bucket.full", ">= -> >")[1].key
    assert key == Key("bucket.py", "Bucket.full", LINE, ">= -> >")
    assert mutation_of("Bucket.full", ">= -> >", SOURCE.replace("LIMIT = 3", "# the limit\n\nLIMIT = 5"))[1].key == key
    assert mutation_of("Bucket.full", ">= -> >", SOURCE.replace("  # not one more", ""))[1].key == key
    assert mutation_of("Bucket.full", ">= -> >", SOURCE.replace(LINE, "return LIMIT >= self._size"))[1].key != key


def test_the_same_change_of_the_same_line_twice_is_numbered() -> None:
    source = "def f(a, b):\n    if a and b:\n        return 1\n    if a and b:\n        return 2\n"
    changes = [mutation.key.change for mutation in mutations_of("f.py", source)[1] if "and -> or" in mutation.key.change]
    assert changes == ["and -> or", "and -> or (no. 2)"]


def test_a_function_imported_by_name_is_mutated_too(bucket: ModuleType) -> None:
    fits, box = bucket.fits, bucket.Bucket(3)
    assert box.full
    swapped(bucket, "Bucket.full", ">= -> >")
    assert not box.full
    assert fits(3)
    swapped(bucket, "fits", "not `Bucket(size).full` -> without not")
    assert not fits(2)


def test_a_default_is_mutated_with_its_function(bucket: ModuleType) -> None:
    swapped(bucket, "Bucket.__init__", "default 0 -> 1")
    assert bucket.Bucket()._size == 1


def test_code_evaluated_at_import_cannot_be_swapped(bucket: ModuleType) -> None:
    with pytest.raises(NotSwapped):
        swapped(bucket, "", "3 -> 4")


def test_the_lines_that_a_test_runs_are_recorded(bucket: ModuleType) -> None:
    lines: dict[str, set[int]] = {}
    path = bucket.Bucket.add.__code__.co_filename
    before = sys.gettrace()
    sys.settrace(tracer({path: "bucket.py"}, lines))
    try:
        bucket.Bucket(3).add(1)
    finally:
        sys.settrace(before)
    assert lines[path] > {15, 19, 22, 23, 24}
    assert not lines[path] & {25, 26, 27}


def test_a_verdict_holds_while_the_function_and_its_tests_are_the_same(tmp_path: Path) -> None:
    tests = ["tests/project/test_mutants.py::test_one", "tests/project/test_makefile.py::test_two"]
    _, mutation = mutation_of("fits", "< -> <=")
    _, changed = mutation_of("fits", "< -> <=", SOURCE.replace("no size", "size"))
    path = tmp_path / "verdicts.json"
    results = Results(path)
    results.keep(mutation, tests, Verdict(SURVIVED, "", 1.0))
    results.save()
    reopened = Results(path)
    assert reopened.known(mutation, tests) == Verdict(SURVIVED, "", 0.0)
    assert reopened.known(mutation, tests[:1]) is None  # survived all the tests: with other tests the mutation might be found
    assert reopened.known(changed, tests) is None
    reopened.keep(mutation, tests, Verdict(KILLED, tests[0], 1.0))
    assert reopened.known(mutation, tests[:1]) == Verdict(KILLED, tests[0], 0.0)  # killed by tests[0], so the result holds for every set with that test
    assert Results(path, fresh=True).known(mutation, tests) is None


def test_a_file_that_another_run_may_read_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "build" / "touched.json"
    write_atomically(path, "before")
    written = Path.write_text

    def half(self: Path, text: str) -> int:
        written(self, text[: len(text) // 2])
        raise OSError("the disk is full")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="full"):
        write_atomically(path, "afterwards")
    assert [(file.name, file.read_text()) for file in path.parent.iterdir()] == [("touched.json", "before")]


@pytest.mark.parametrize(("killed", "code"), [(19, 0), (18, 1)])
def test_too_many_survivors_are_a_failure(killed: int, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    _, mutation = mutation_of("fits", "< -> <=")
    report = Report()
    for number in range(20):
        report.add(mutation, Verdict(KILLED if number < killed else SURVIVED, "", 0.1))
    assert report.end(0.95, ()) == code
    assert f"bucket.py:32 fits [{mutation.key.id}]" in capsys.readouterr().out
