"""`play`: one shard of groups, in a time of its own. playbook.py says what a test can do with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.coordinator.playbook import Play


@pytest.fixture
def play() -> Iterator[Play]:
    playing = Play()
    yield playing
    playing.close()
