"""Logs of groups are compacted while they are written: no live record is lost, and no older value returns."""

from __future__ import annotations

import asyncio
import time

import pytest

from broker.stores.jetstream import group_cleaning
from broker.stores.jetstream.engine import StreamState
from broker.stores.jetstream.group_cleaning import GroupLogCleaner
from broker.stores.jetstream.logs import GroupLog
from protocol.batch import Fact, build_facts
from storage import NOT_YET, LogId, OwnedLog
from tests.stores.jetstream_nodes import JetStreamNode, NodesOverJetStream

pytestmark = pytest.mark.jetstream

LOG = LogId("__consumer_offsets", 3)
REGISTRY = LogId("__tenure_topics", 0)
State = dict[bytes, bytes]


def write(log: OwnedLog, state: State, facts: list[Fact]) -> None:
    """Append the facts, and add them to the expected state."""
    log.append(build_facts(facts, 1), len(facts), lambda result: None)
    for key, value in facts:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value


def replayed(node: JetStreamNode, log: OwnedLog) -> tuple[State, int]:
    """Replay the log; returns the last value of each key, and the number of records."""
    state: State = {}
    records = 0
    for facts in log.replay():
        if facts is NOT_YET:
            node.loop.run_until_complete(asyncio.sleep(0.001))
        records += len(facts)
        for key, value in facts:
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
    return state, records


def stream(node: JetStreamNode, log: GroupLog) -> StreamState:
    infos: list[object] = []
    node.store.engine.info(log.stream.name, infos.append)
    node.wait(lambda: infos)
    assert isinstance(infos[0], StreamState)
    return infos[0]


def test_live_records_are_copied_forward_and_older_entries_are_deleted(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    state: State = {}
    for turn in range(60):
        write(log, state, [(b"key-%d" % number, b"%d" % turn) for number in range(100)])
    write(log, state, [(b"key-%d" % number, None) for number in range(10)])
    first.wait(lambda: not log.chain.pending)
    before = stream(first, log)

    cleaning = GroupLogCleaner(first.store.engine, lambda: first.store.logs, lambda: 1, time.monotonic)
    cleaning.clean(log)
    turn = 0

    def written_meanwhile() -> bool:
        nonlocal turn
        turn += 1
        if turn <= 20:
            write(log, state, [(b"key-%d" % (20 + turn), b"meanwhile %d" % turn), (b"key-%d" % (50 + turn), None)])
        return log.first_seq > before.first_seq

    first.wait(written_meanwhile)
    cleaning.stop()
    first.wait(lambda: not log.chain.pending)
    after = stream(first, log)
    assert after.first_seq == log.first_seq > before.last_seq
    assert after.bytes < before.bytes // 10

    assert replayed(first, log)[0] == state
    nodes.kill(first)
    acquired = second.own(LOG)
    replayed_state, records = replayed(second, acquired)
    assert replayed_state == state
    assert records < 200
    assert isinstance(acquired, GroupLog)
    assert acquired.records.start_offset == log.records.start_offset > 6_000


def test_an_unfinished_cleaning_pass_is_repeated_by_the_next_owner(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    state: State = {}
    for turn in range(30):
        write(log, state, [(b"key-%d" % number, b"%d" % turn) for number in range(2_000)])
    first.wait(lambda: not log.chain.pending)
    last = log.chain.committed_seq
    cleaning = GroupLogCleaner(first.store.engine, lambda: first.store.logs, lambda: 1, time.monotonic)
    cleaning.clean(log)
    first.wait(lambda: log.chain.committed_seq > last + 1)  # until the cleaner has appended its first copy
    cleaning.stop()
    nodes.kill(first)

    acquired = second.own(LOG)
    assert replayed(second, acquired)[0] == state
    second_cleaning = GroupLogCleaner(second.store.engine, lambda: second.store.logs, lambda: 1, time.monotonic)
    second_cleaning.clean(acquired)
    second.wait(lambda: acquired.first_seq > last)
    second_cleaning.stop()
    replayed_state, records = replayed(second, acquired)
    assert (replayed_state, records) == (state, 2_000)


def test_the_registry_is_compacted_too_and_readers_in_memory_begin_after_the_cut(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(REGISTRY)
    state: State = {}
    for turn in range(40):
        write(log, state, [(b"topic-%d" % number, b"%d" % turn * 100) for number in range(20)])
        first.wait(lambda: not log.chain.pending)
    write(log, state, [(b"topic-%d" % number, None) for number in range(5)])
    first.wait(lambda: not log.chain.pending)
    before = log.records.start_offset
    cleaning = GroupLogCleaner(first.store.engine, lambda: first.store.logs, lambda: 1, time.monotonic, {REGISTRY.name: 20_000})
    first.wait(lambda: log.live_bytes > 0)
    cleaning.stop()
    assert log.records.start_offset > before
    assert len(log.records.read(log.records.start_offset, 1 << 20)) < 5_000
    assert replayed(first, log)[0] == state
    nodes.kill(first)
    acquired = second.own(REGISTRY)
    replayed_state, records = replayed(second, acquired)
    assert (replayed_state, records) == (state, 15)


def test_a_pass_that_cannot_note_a_batch_copies_nothing_more(nodes: NodesOverJetStream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a copy of the older value would follow the newer one."""
    first = nodes.start(1)
    log = first.own(LOG)
    state: State = {}
    for turn in range(2):
        write(log, state, [(b"key-%d" % number, b"%d" % turn) for number in range(20_000)])
    first.wait(lambda: not log.chain.pending)
    last, begins = log.chain.committed_seq, log.first_seq
    cleaning = GroupLogCleaner(first.store.engine, lambda: first.store.logs, lambda: 1, time.monotonic)
    cleaning.clean(log)
    first.wait(lambda: log.chain.committed_seq > last + 1)  # until the cleaner has appended its first copy

    def defect(data: bytes) -> list[Fact]:
        raise RuntimeError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(group_cleaning, "facts_of", defect)
        write(log, state, [(b"key-%d" % number, b"newest") for number in range(20_000)])
    first.wait(lambda: not cleaning._busy)
    first.loop.run_until_complete(asyncio.sleep(0.5))
    first.wait(lambda: not log.chain.pending)
    cleaning.stop()
    assert log.first_seq == begins
    assert replayed(first, log)[0] == state
