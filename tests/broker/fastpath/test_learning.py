"""How a connection finds the fast path of a request: cheaply, and never a dropped one."""

from __future__ import annotations

from random import Random

import pytest

from broker.fastpath.learning import FirstRequest, LearnedFastPath
from broker.fastpath.rejoin import JoinFastPath
from broker.net.connection import FAST_PATHS_MAX, FastPath
from tests.support.connections import ConnectionHarness


def test_a_fast_path_is_recognised_without_a_search() -> None:
    """These classes neither are Protocols nor inherit from one: `isinstance` with a Protocol takes a tenth of the instructions of a heartbeat."""
    assert {type(kind) for kind in (FastPath, LearnedFastPath, FirstRequest, JoinFastPath)} == {type}


@pytest.mark.parametrize("seed", range(20))
def test_the_latest_fast_path_is_never_a_dropped_one(seed: int) -> None:
    """The shortcut to the fast paths used last always agrees with the connection's table of fast paths, over random use."""
    random = Random(seed)
    connection = ConnectionHarness().connection
    kinds = [b"size%04d" % number for number in range(FAST_PATHS_MAX + 2)]
    for _ in range(2_000):
        kind = random.choice(kinds)
        any_size = kind[7:] == b"0"
        action = random.random()
        if action < 0.2:
            assert connection.add_fast_path(kind, FastPath(1, any_size))
        elif action < 0.21:
            connection.drop_fast_paths()
        found = connection.find_fast_path(kind)
        assert found is connection.fast_paths.get(kind[4:] if any_size else kind)
        assert found is None or (kind.endswith(found.kind) and connection._latest_fast_path is found)
