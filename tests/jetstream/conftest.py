"""NATS servers and nodes that use them, as tests/stores starts them, and a NATS server that a test may stop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stores.conftest import nodes, one_server, proxy, started, three_servers
from tests.support.nats_engine import NatsEngine

__all__ = ["nodes", "one_server", "own_server", "proxy", "three_servers"]


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsEngine]:
    yield from started(tmp_path_factory, 1)
