"""Instance names written as ranges, and read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.policies.names import expand_names, join_names


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a-1", "a-2"], "a-1,a-2"),
        (["a-1", "a-2", "a-3"], "a-[1-3]"),
        (["a-01", "a-02", "a-03", "b"], "a-[01-03],b"),
        (["a-9", "a-10", "a-11"], "a-[9-11]"),
        (["a-09", "a-10", "a-11"], "a-[09-11]"),
        (["a-0", "a-1", "a-2"], "a-[0-2]"),
        (["a-98", "a-99", "a-100"], "a-[98-100]"),
        (["a-098", "a-099", "a-100"], "a-[098-100]"),
        (["a-1-x", "a-2-x", "a-3-x", "a-5-x"], "a-[1-3]-x,a-5-x"),
        (["a-3", "a-2", "a-1"], "a-3,a-2,a-1"),
        (["a-01", "a-2", "a-3"], "a-01,a-2,a-3"),
    ],
)
def test_runs_of_numbers_are_ranges(names: list[str], text: str) -> None:
    assert join_names(names) == text
    assert list(expand_names(text, "instance.ids")) == names


@given(st.lists(st.from_regex(r"[ab]-?[0-9]{0,10}[xy]?", fullmatch=True), unique=True))
def test_joined_names_expand_to_the_same_names(names: list[str]) -> None:
    assert list(expand_names(join_names(names), "instance.ids")) == names
