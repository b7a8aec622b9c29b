"""The protocol vote with more protocols than Java's HashMap first holds."""

from __future__ import annotations

import pytest

from coordinator.classic.voting import vote

pytestmark = pytest.mark.once  # no dependence on the Python version

FILLING = "mnqrstuvwxyzMNQRSTUVWXYZ"  # names that cannot win: they get one vote at most, and no bucket before those of the tied names


@pytest.mark.parametrize(
    ("tied", "count", "chosen"),
    [
        ("ap", 2, "p"),  # buckets of a and p, of 16: 1 and 0
        ("ap", 12, "p"),
        ("ap", 13, "a"),  # of 32: 1 and 16
        ("Ba", 24, "a"),  # of 32: 2 and 1
        ("Ba", 25, "B"),  # of 64: 2 and 33
        ("qa", 2, "q"),  # both are in bucket 1: the name that got a vote first wins
        ("aq", 2, "a"),
    ],
)
def test_a_tie_follows_the_buckets_of_a_java_map_that_grows_when_it_is_three_quarters_full(tied: str, count: int, chosen: str) -> None:
    names = [*tied, *[name for name in FILLING if name not in tied]][:count]
    assert len(names) == count
    voted = [*names, *tied]
    assert vote([[(name, b"") for name in [first, *[name for name in names if name != first]]] for first in voted]) == chosen
