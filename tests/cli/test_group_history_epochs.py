"""`tenure group history` of consumer groups (KIP-848) on a cluster without notes: the log that Apache Kafka wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from cli.groups.offset_formats import time_text
from protocol.batch import iterate_headers, records
from tests.cli.conftest import Tenure
from tests.cli.test_group_history_recorded import FakeKafka
from tests.history.written import LOG

pytestmark = pytest.mark.once


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    fake = FakeKafka()
    fake.type = "consumer"
    data = LOG.read_bytes()
    at = 0
    for header in iterate_headers(data, 0, len(data)):
        fake.log += [(record.timestamp, record.key or b"", record.value) for record in records(data, at)]
        at += header.size
    with fake.broker:
        yield fake


@pytest.fixture
def history(kafka: FakeKafka, tenure: Tenure) -> Any:
    return lambda group, *words: tenure("group", "history", group, "--timeout", "10", "--bootstrap", kafka.broker.address, *words)


def block(out: str, epochs: str) -> list[str]:
    """The lines of the rebalance between these epochs."""
    lines = out.splitlines()
    first = next(at for at, line in enumerate(lines) if f"epoch {epochs}," in line)
    last = next((at for at in range(first + 1, len(lines)) if not lines[at].startswith("  ")), len(lines))
    return [" ".join(line.split()) for line in lines[first:last]]


def test_a_rebalance_says_who_had_to_give_up_what_and_that_nothing_else_stopped(history: Any) -> None:
    done = history("tills")
    assert (done.code, done.err) == (0, "")
    headline, *lines = block(done.out, "2 -> 3")
    assert re.search(r"rebalance, epoch 2 -> 3, took 1\.\d s$", headline)
    assert lines[:3] == ["why bob joined (inferred from records, strong)", "joined bob (client on 127.0.0.1)", lines[2]]
    assert re.fullmatch(r"waited 1\.\d s for ada, which was told to give up sales 2,3 for bob", lines[2])
    assert lines[3:6] == ["members 1 -> 2", "moved sales 2,3: ada -> bob", "2 partitions stayed"]
    assert re.fullmatch(r"stopped only what moved: 2 partitions, 1\.\d s each on average", lines[6])


def test_a_restart_that_moved_nothing_kept_its_seat(history: Any) -> None:
    out = history("tills").out
    assert "bob is away; its seat is reserved" in out
    assert re.search(r"bob returned after 70\d ms \(client on 127\.0\.0\.1\) and kept its seat: no rebalance", out)
    assert "1 restart of static members caused no rebalance" in out


def test_topics_and_slow_members_are_named(history: Any) -> None:
    assert "got partitions: sales has 6 partitions, previously 4 (inferred from records, strong)" in history("tills").out
    slow = block(history("audit").out, "2 -> 4")
    assert "again restarted: a member did not give up partitions within its rebalance timeout" in slow
    assert "gone eve did not give up its partitions in time" in slow


def test_json_has_the_same(history: Any) -> None:
    entries = json.loads(history("tills", "--json").out)["entries"]
    joined = next(entry for entry in entries if entry["kind"] == "rebalance" and entry["to_generation"] == 3)
    (waited,) = joined["waited_for"]
    assert (waited["member_id"], waited["waiting"], waited["partitions"]) == ("ada", ["bob"], [{"topic": "sales", "partitions": [2, 3]}])
    assert joined["stopped_partition_ms"] > 3_000
    assert (joined["cause"], joined["inferred"]["cause"], joined["noted"]) == (None, "new_member", False)


def test_since_leaves_older_rebalances_out(history: Any, kafka: FakeKafka) -> None:
    entries = json.loads(history("tills", "--json", "--since", time_text(kafka.log[31][0])).out)["entries"]
    assert [entry["to_generation"] for entry in entries] == [4, 5, 6, 7, 8]
