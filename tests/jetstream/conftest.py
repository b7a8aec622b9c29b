"""The engine's servers, as tests/stores starts them, and one that a test may stop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stores.conftest import one_server, started, three_servers
from tests.support.nats_engine import NatsEngine

__all__ = ["one_server", "own_server", "three_servers"]


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsEngine]:
    yield from started(tmp_path_factory, 1)
