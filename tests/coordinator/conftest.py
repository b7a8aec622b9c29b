"""`play`: one shard of groups in virtual time. playbook.py describes its methods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.coordinator.playbook import Play


@pytest.fixture
def play() -> Iterator[Play]:
    playing = Play()
    yield playing
    playing.close()
