"""`play`: one shard in virtual time, with a topic `t` of 4 partitions; targets are computed at once."""

from __future__ import annotations

import pytest

from tests.coordinator.consumer.playing import Play


@pytest.fixture
def play() -> Play:
    playing = Play()
    playing.topic("t", 4)
    return playing
