"""Short random histories of topics (tests/support/histories.py); `make soak ARGS="--only topics"` runs long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.histories import TopicWorld

pytestmark = pytest.mark.once


@pytest.mark.parametrize("seed", range(2))
def test_acknowledged_records_are_readable_through_kills_at_any_step(tmp_path: Path, seed: int) -> None:
    world = TopicWorld(tmp_path, seed)
    world.run(100)
    assert world.kills > 3
    assert world.readable > 20
