"""A client that waits in silence, as librdkafka does with group.protocol=consumer, is named in a log line."""

from __future__ import annotations

from typing import Any

import pytest

from broker.groups import silent_clients
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.group_harness import GroupClient, GroupHarness

pytestmark = pytest.mark.plain  # replaces the log

LIBRDKAFKA = 2  # its version of FindCoordinator
SILENT_MS = 11_000


class Log:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append({"event": event, **fields})


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    log = Log()
    monkeypatch.setattr(silent_clients, "log", log)
    return log.lines


def looked_up(harness: GroupHarness, client_id: str = "app", version: int = LIBRDKAFKA) -> GroupClient:
    client = GroupClient(harness, client_id=client_id)
    client.ask(FindCoordinatorRequest("g", 0, ["g"]), version)
    return client


def test_a_client_that_asks_nothing_after_its_lookup_is_named_once(lines: list[dict[str, Any]]) -> None:
    harness = GroupHarness()
    client = looked_up(harness)
    client.ask(FindCoordinatorRequest("g", 0, ["g"]), LIBRDKAFKA)
    looked_up(harness)
    assert lines == []
    harness.pass_ms(SILENT_MS)
    assert lines == [
        {
            "event": "client does not join its group: group.protocol=consumer is not served",
            "client_id": "app",
            "host": "127.0.0.1",
            "group": "g",
            "remedy": "group.protocol=classic",
        }
    ]
    looked_up(harness)
    harness.pass_ms(SILENT_MS)
    assert len(lines) == 1  # at most one an hour
    harness.pass_ms(3_600_000)
    looked_up(harness)
    harness.pass_ms(SILENT_MS)
    assert len(lines) == 2


def test_a_client_that_goes_on_is_not_named(lines: list[dict[str, Any]]) -> None:
    harness = GroupHarness()
    looked_up(harness)
    other = GroupClient(harness, client_id="app")
    other.ask(OffsetFetchRequest([OffsetFetchRequestGroup("g", topics=None)], "g", None), 5)
    harness.pass_ms(SILENT_MS)
    assert lines == []
    assert harness.dispatch.overhear is None


def test_another_lookup_of_a_connection_does_not_count(lines: list[dict[str, Any]]) -> None:
    harness = GroupHarness()
    client = looked_up(harness)
    client.ask(OffsetFetchRequest([OffsetFetchRequestGroup("g", topics=None)], "g", None), 5)
    client.ask(FindCoordinatorRequest("g", 0, ["g"]), LIBRDKAFKA)
    harness.pass_ms(SILENT_MS)
    assert lines == []


def test_a_client_that_is_gone_or_of_another_kind_is_not_named(lines: list[dict[str, Any]]) -> None:
    harness = GroupHarness()
    looked_up(harness).connection.close("the client has closed")
    looked_up(harness, "java", version=6)
    harness.pass_ms(SILENT_MS)
    assert lines == []


def test_requests_of_others_do_not_speak_for_it(lines: list[dict[str, Any]]) -> None:
    harness = GroupHarness()
    looked_up(harness)
    GroupClient(harness, client_id="other").ask(OffsetFetchRequest([OffsetFetchRequestGroup("g", topics=None)], "g", None), 5)
    GroupClient(harness, address="10.0.0.9", client_id="app").ask(OffsetFetchRequest([OffsetFetchRequestGroup("g", topics=None)], "g", None), 5)
    GroupClient(harness, client_id="app").ask(ApiVersionsRequest("librdkafka", "2"), 3)
    harness.pass_ms(SILENT_MS)
    assert [line["client_id"] for line in lines] == ["app"]
