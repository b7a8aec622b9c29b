"""Faults between a node and the engine, and in the engine: no acknowledged record is lost, and two nodes never write one log."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from broker.runtime.start import StartError
from broker.settings.load import load_config
from broker.stores.jetstream import store as stream_store
from broker.stores.jetstream.entry import DATA, Entry
from broker.stores.jetstream.logs import GroupLog
from broker.stores.jetstream.meta import Owner
from broker.stores.jetstream.store import JetStreamStore
from protocol.batch import build_facts
from storage import AppendFailed, Fenced, HeldBy, LogId, OwnedLog, Undecided, Unreadable
from tests.stores.engine_proxy import EngineProxy
from tests.stores.jetstream_nodes import JetStreamNode, NodesOverJetStream
from tests.stores.nodes import append
from tests.support.nats_engine import NatsEngine

pytestmark = pytest.mark.jetstream

LOG = LogId("__consumer_offsets", 3)


def stop_noticing(node: JetStreamNode) -> None:
    """Simulate a frozen node: it does not renew its lease, and does not notice that the lease has expired."""
    node.store.meta.close()


def await_death(node: JetStreamNode, of: JetStreamNode) -> None:
    node.wait(lambda: of.id not in node.store.view().live)


def test_the_log_alone_refuses_a_node_that_does_not_notice_the_end_of_its_lease(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    stale = first.own(LOG)
    append(first, stale, b"a")
    stop_noticing(first)
    await_death(second, first)
    acquired = second.own(LOG)
    append(second, acquired, b"b")
    assert stale.usable()
    results = [append(first, stale, b"stale") for _ in range(3)]
    assert all(isinstance(result, AppendFailed) for result in results)
    assert second.keys(acquired) == [b"a", b"b"]


def test_a_pipeline_at_full_rate_is_cut_by_a_claim(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    stale = first.own(LOG)
    stop_noticing(first)
    await_death(second, first)
    results: list[int | AppendFailed] = []
    claimed: list[OwnedLog | HeldBy | Unreadable] = []
    second.store.acquire(LOG, claimed.append)
    for number in range(2_000):
        stale.append(build_facts([(b"%d" % number, b"1")], 1), 1, results.append)
        if number % 50 == 0:
            first.loop.run_until_complete(asyncio.sleep(0.001))
    second.wait(lambda: claimed and len(results) == 2_000)
    acquired = claimed[0]
    assert isinstance(acquired, GroupLog)
    acknowledged = [b"%d" % number for number, result in enumerate(results) if isinstance(result, int)]
    assert second.keys(acquired) == acknowledged


def test_an_owner_that_does_not_write_hears_of_a_claim(nodes: NodesOverJetStream) -> None:
    """The second node takes the log over, as if it considered the first one dead."""
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    failures: list[AppendFailed] = []
    log.watch(failures.append)
    assert first.store._checks is not None
    first.store._checks.stop()  # it would find the claim in the stream
    acquired = take_over(second)
    first.wait(lambda: failures)
    assert isinstance(failures[0], Fenced)
    assert not log.usable()
    assert not first.store.meta.lease_lost
    assert acquired.usable()


def owner_of(node: JetStreamNode) -> int:
    owner = node.store.view().owner(LOG)
    return owner.id if owner is not None else 0


class Held:
    """Steps of the first opening of a log that wait until the test continues them: this node is frozen there."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []

    def hold_reading(self, node: JetStreamNode, monkeypatch: pytest.MonkeyPatch) -> None:
        load = GroupLog._load

        def held_load(log: GroupLog, claimed: Any, done: Any) -> None:
            if log._store is node.store:
                self.steps.append(lambda: load(log, claimed, done))
            else:
                load(log, claimed, done)

        monkeypatch.setattr(GroupLog, "_load", held_load)

    def hold_publication(self, node: JetStreamNode, monkeypatch: pytest.MonkeyPatch) -> None:
        put = node.store.meta.put

        def held_put(subject: str, body: dict[str, Any], *arguments: Any) -> None:
            if ".owner." in subject:
                self.steps.append(lambda: put(subject, body, *arguments))
            else:
                put(subject, body, *arguments)

        monkeypatch.setattr(node.store.meta, "put", held_put)

    def resume(self) -> None:
        while self.steps:
            self.steps.pop(0)()


def lose_lease(node: JetStreamNode) -> None:
    """Let the node have no lease for a moment, as after a freeze."""
    node.store.meta._lose_lease()
    node.wait(lambda: not node.store.meta.lease_lost)


def take_over(node: JetStreamNode) -> GroupLog:
    """Claim the log as if the node considered all others dead."""
    node.store.view().is_live = lambda node, incarnation: False  # type: ignore[method-assign]
    return node.own(LOG)


@pytest.mark.parametrize("again", [False, True], ids=["first opening", "opening after a failure"])
@pytest.mark.parametrize("held_step", ["reading", "publication"])
@pytest.mark.parametrize("event", ["the lease ends", "another node publishes its claim", "another node claims, and publishes it later"])
def test_a_log_that_another_node_may_have_claimed_while_it_was_opened_is_not_served(
    nodes: NodesOverJetStream, monkeypatch: pytest.MonkeyPatch, event: str, held_step: str, again: bool
) -> None:
    first, second = nodes.start(1), nodes.start(2)
    stale: GroupLog | None = None
    if again:
        stale = first.own(LOG)
        stale.fence(Undecided("by the test"))
    held, others = Held(), Held()
    (held.hold_reading if held_step == "reading" else held.hold_publication)(first, monkeypatch)
    results: list[object] = []
    if stale is not None:
        stale.recover(results.append)
    else:
        first.store.acquire(LOG, results.append)
    nodes.wait(lambda: held.steps)
    acquired: list[OwnedLog | HeldBy | Unreadable] = []
    if event == "another node claims, and publishes it later":
        others.hold_publication(second, monkeypatch)
    if event != "the lease ends":
        second.store.view().is_live = lambda node, incarnation: False  # type: ignore[method-assign]
        second.store.acquire(LOG, acquired.append)
        nodes.wait(lambda: acquired or others.steps)
    if event == "another node publishes its claim":
        nodes.wait(lambda: owner_of(first) == 2)
    else:
        lose_lease(first)
    monkeypatch.undo()
    held.resume()
    nodes.wait(lambda: results)
    if again:
        assert isinstance(results[0], Fenced)
    else:
        assert isinstance(results[0], HeldBy)
        assert first.store.owned_log(LOG) is None
    assert stale is None or not stale.usable()
    if event != "the lease ends":
        others.resume()
        nodes.wait(lambda: acquired)
        assert isinstance(acquired[0], GroupLog)
        assert acquired[0].usable()
        nodes.wait(lambda: owner_of(first) == owner_of(second) == 2)
    elif not again:
        assert first.own(LOG).usable()


def test_a_claim_from_the_time_between_two_leases_does_not_count(nodes: NodesOverJetStream, monkeypatch: pytest.MonkeyPatch) -> None:
    first = nodes.start(1)
    meta, held = first.store.meta, Held()
    held.hold_reading(first, monkeypatch)
    results: list[object] = []
    first.store.acquire(LOG, results.append)
    meta._heartbeat_at = meta._now + 3_600
    meta._lose_lease()
    nodes.wait(lambda: held.steps)
    assert meta.lease_lost
    meta._heartbeat_at = 0.0
    nodes.wait(lambda: not meta.lease_lost)
    held.resume()
    nodes.wait(lambda: results)
    assert isinstance(results[0], HeldBy)


def test_an_owner_that_has_not_read_the_claim_of_another_node_finds_it_in_the_stream(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    first.store.meta.owner_published = lambda id, owner: None
    failures: list[AppendFailed] = []
    log.watch(failures.append)
    acquired = take_over(second)
    first.wait(lambda: failures)
    assert isinstance(failures[0], Fenced)
    assert acquired.usable()


def test_the_check_of_a_stream_leaves_an_owner_that_appends_alone(nodes: NodesOverJetStream) -> None:
    first = nodes.start(1)
    log = first.own(LOG)
    checked: list[int] = []
    compare_end = log._check._compare_end

    def note(last_seq: int) -> None:
        checked.append(last_seq)
        compare_end(last_seq)

    log._check._compare_end = note
    results: list[int | AppendFailed] = []
    while len(checked) < 20:
        log.append(build_facts([(b"a", b"1")], 1), 1, results.append)
        log.check_stream()
        first.loop.run_until_complete(asyncio.sleep(0.001))
    assert log.usable()
    assert max(checked) > min(checked)


def test_a_log_that_has_failed_before_it_is_watched_reports_it_at_once(nodes: NodesOverJetStream) -> None:
    first = nodes.start(1)
    log = first.own(LOG)
    log.fence(Fenced("by the test"))
    failures: list[AppendFailed] = []
    log.watch(failures.append)
    assert failures == [log.chain.failure]


def test_an_earlier_owner_does_not_replace_the_message_of_a_later_one(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    earlier = first.store.view().owners[LOG]
    take_over(second)
    nodes.wait(lambda: owner_of(first) == 2)
    done: list[bool] = []
    first.store.meta.publish_owner(LOG, log.stream, earlier._replace(node=0), lambda: done.append(True))
    nodes.wait(lambda: done)
    assert owner_of(nodes.start(3)) == 2


def test_each_epoch_goes_to_one_of_many_simultaneous_claimants(nodes: NodesOverJetStream) -> None:
    all_nodes = [nodes.start(id) for id in (1, 2, 3)]
    owners: list[OwnedLog | HeldBy | Unreadable] = []
    for node in all_nodes:
        node.store.acquire(LOG, owners.append)
    nodes.wait(lambda: len(owners) == 3)
    claimed = [owner for owner in owners if isinstance(owner, GroupLog)]
    assert claimed
    assert len({log.epoch for log in claimed}) == len(claimed)
    newest = max(claimed, key=lambda log: log.epoch)
    written = [log for log in claimed if not isinstance(append(all_nodes[0], log, b"a"), AppendFailed)]
    assert written == [newest]


@pytest.mark.parametrize("lost", ["requests", "replies"])
def test_appends_are_stored_once_though_messages_get_lost(nodes: NodesOverJetStream, proxy: EngineProxy, lost: str) -> None:
    first = nodes.start(1)
    log = first.own(LOG)
    results: list[int | AppendFailed] = []
    proxy.drops_requests, proxy.drops_replies = lost == "requests", lost == "replies"
    for number in range(20):
        log.append(build_facts([(b"%d" % number, b"1")], 1), 1, results.append)
    first.loop.run_until_complete(asyncio.sleep(0.2))
    assert results == []
    proxy.cut()
    proxy.drops_requests = proxy.drops_replies = False
    first.wait(lambda: len(results) == 20)
    assert results == list(range(20))
    assert first.keys(log) == [b"%d" % number for number in range(20)]


def test_a_node_without_the_engine_stops_by_itself_and_claims_again(nodes: NodesOverJetStream, proxy: EngineProxy) -> None:
    first = nodes.start(1)
    log = first.own(LOG)
    append(first, log, b"a")
    failures: list[AppendFailed] = []
    log.watch(failures.append)
    proxy.drops_requests = proxy.drops_replies = True
    first.wait(lambda: failures)
    assert not log.usable()
    recovered: list[AppendFailed | None] = []
    log.recover(recovered.append)
    proxy.cut()
    proxy.drops_requests = proxy.drops_replies = False
    first.wait(lambda: recovered)
    assert recovered == [None]
    assert log.usable()
    append(first, log, b"b")
    assert first.keys(log) == [b"a", b"b"]


def test_a_node_that_comes_back_finds_its_log_with_another_owner(nodes: NodesOverJetStream, proxy: EngineProxy) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    proxy.drops_requests = proxy.drops_replies = True
    await_death(second, first)
    acquired = second.own(LOG)
    append(second, acquired, b"b")
    recovered: list[AppendFailed | None] = []
    first.wait(lambda: not log.usable())
    log.recover(recovered.append)
    proxy.cut()
    proxy.drops_requests = proxy.drops_replies = False
    first.wait(lambda: recovered)
    assert "node 2" in str(recovered[0])
    assert second.keys(acquired) == [b"a", b"b"]


def test_the_older_of_two_processes_with_one_id_ends(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    deposed: list[str] = []
    first.store.on_superseded = lambda: deposed.append("older")
    log = first.own(LOG)
    restarted = nodes.start(1)
    restarted.store.on_superseded = lambda: deposed.append("newer")
    nodes.wait(lambda: deposed)
    first.store.meta._send_heartbeat()
    finished: list[str] = []
    first.store.finish(True, finished.append)
    nodes.wait(lambda: finished)
    nodes.settle()
    assert not log.usable()
    assert restarted.own(LOG).epoch > log.epoch
    assert second.store.view().live.keys() == {1, 2}
    assert second.store.view().is_live(1, restarted.store.incarnation)
    assert deposed == ["older"]


def test_a_second_process_with_an_id_waits_for_the_lease_of_the_first_one(nodes: NodesOverJetStream) -> None:
    """The second process must wait, as the first one, which is cut off, may reply from memory until its lease ends."""
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    first.store.meta.closed = True  # from now on it neither reads nor sends messages
    begun = time.monotonic()
    restarted = nodes.start(1)
    assert isinstance(second.store.view().owned_by(LOG), Owner)
    acquired = restarted.own(LOG)
    assert time.monotonic() > begun + 0.9 * nodes.lease_ms / 1000
    assert restarted.keys(acquired) == [b"a"]


def test_a_second_process_that_knows_that_the_first_one_has_ended_does_not_wait(nodes: NodesOverJetStream) -> None:
    nodes.lease_ms = 60_000
    first, _ = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    first.store.meta._mark += "1"  # the mark of a process with the same pid but another start time
    first.store.meta._send_heartbeat()
    first.wait(lambda: not first.store.meta._heartbeat_pending)
    first.store.close()
    restarted = nodes.start(1)
    assert restarted.keys(restarted.own(LOG)) == [b"a"]


def test_a_log_is_not_claimed_from_a_live_node_that_a_lagging_replica_does_not_show(
    nodes: NodesOverJetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.lease_ms = 60_000
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    meta, read = second.store.meta, second.store.engine.read
    del meta.view.live[1]
    meta.seq = 0
    beats = meta._heartbeats_sent

    def lagging(name: str, seq: int, on_record: Any, ended: Any, **limits: Any) -> Any:
        if name == second.store.names.meta_stream and meta._heartbeats_sent == beats:
            second.loop.call_soon(ended, None)
            return None
        return read(name, seq, on_record, ended, **limits)

    monkeypatch.setattr(second.store.engine, "read", lagging)
    assert second.acquire(LOG) == HeldBy("node 1")
    assert log.usable()


def test_a_stream_that_was_made_anew_is_not_served(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    done: list[object] = []
    first.store.engine.delete(log.stream.name, done.append)
    first.wait(lambda: done)
    nodes.kill(first)
    refused = second.acquire(LOG)
    assert isinstance(refused, Unreadable)
    assert refused.damaged
    assert "does not exist any more" in refused.reason
    done.clear()
    second.store.engine.create(log.stream.name, log.stream.subject, 1, {}, done.append)
    second.wait(lambda: done)
    refused = second.acquire(LOG)
    assert isinstance(refused, Unreadable)
    assert "created anew" in refused.reason


def test_an_append_to_a_deleted_stream_ends(nodes: NodesOverJetStream) -> None:
    nodes.lease_ms = 60_000
    first = nodes.start(1)
    log = first.own(LOG)
    append(first, log, b"a")
    done: list[object] = []
    first.store.engine.delete(log.stream.name, done.append)
    first.wait(lambda: done)
    results: list[object] = []
    log.append(build_facts([(b"b", b"1")], 1), 1, results.append)
    first.wait(lambda: results)
    assert "does not exist any more" in str(results[0])
    assert not log.usable()
    refused = first.acquire(LOG)
    assert isinstance(refused, Unreadable)
    assert "is damaged at entry 2: the stream does not exist any more" in refused.reason
    assert list(first.store.quarantined) == [LOG]


def test_a_stream_whose_entries_were_all_removed_is_not_served_until_it_and_its_owner_are_deleted(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    engine, names = second.store.engine, second.store.names
    done: list[object] = []
    engine.call(f"STREAM.PURGE.{log.stream.name}", {}, done.append)
    second.wait(lambda: done)
    nodes.kill(first)
    refused = second.acquire(LOG)
    assert isinstance(refused, Unreadable)
    assert refused.damaged
    assert "the stream is empty" in refused.reason
    done.clear()
    engine.delete(log.stream.name, done.append)
    engine.call(f"STREAM.PURGE.{names.meta_stream}", {"filter": names.owner_key(log.stream)}, done.append)
    second.wait(lambda: len(done) == 2)
    nodes.kill(second)
    third = nodes.start(3)
    assert third.keys(third.own(LOG)) == []


def test_a_log_that_lost_its_end_is_not_served(nodes: NodesOverJetStream) -> None:
    first, second = nodes.start(1), nodes.start(2)
    log = first.own(LOG)
    append(first, log, b"a")
    owner = second.store.view().owned_by(LOG)
    assert owner is not None
    first.store.meta.publish_owner(LOG, log.stream, owner._replace(seq=1_000), lambda: None)
    second.wait(lambda: second.store.view().owners[LOG].seq == 1_000)
    nodes.kill(first)
    refused = second.acquire(LOG)
    assert isinstance(refused, Unreadable)
    assert "its owner had more" in refused.reason
    assert list(second.store.quarantined) == [LOG]
    # The operator accepts the loss: the stored state of the owner is deleted, and the nodes restart.
    done: list[object] = []
    subject = second.store.names.owner_key(log.stream)
    second.store.engine.call(f"STREAM.PURGE.{second.store.names.meta_stream}", {"filter": subject}, done.append)
    second.wait(lambda: done)
    third = nodes.start(3)
    assert third.keys(third.own(LOG)) == [b"a"]
    assert not third.store.quarantined


def test_an_entry_with_a_wrong_offset_is_never_served(nodes: NodesOverJetStream) -> None:
    first = nodes.start(1)
    log = first.own(LOG)
    append(first, log, b"a")
    stored: list[object] = []
    strange = Entry(DATA, log.epoch, 1, "other", 1, 7, 1, 0)  # base offset 7, where 1 is due
    headers = strange.headers(log.chain.committed_seq)
    first.store.connection.append(log.stream.subject, build_facts([(b"x", b"1")], 1), headers, stored.append)
    first.wait(lambda: stored)
    log.fence(AppendFailed("by the test"))
    reacquired = first.own(LOG)
    with pytest.raises(Exception, match="begins at offset 7 instead of 1"):
        first.keys(reacquired)


def refusal_of_start(*settings: str) -> str:
    async def open_store() -> None:
        store = JetStreamStore(load_config(settings=["cluster.name=refused", "node.id=1", *settings], environ={}), asyncio.get_running_loop())
        try:
            await store.open()
        finally:
            store.close()

    with pytest.raises(StartError) as refused:
        asyncio.run(open_store())
    return str(refused.value)


@pytest.mark.plain
def test_a_start_names_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_store, "START_ATTEMPTS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        assert refusal_of_start(f"store={url}") == f"store {url}: no answer"


@pytest.mark.plain
def test_a_start_with_replicas_on_a_single_server_advises_one_replica(one_server: NatsEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_store, "START_ATTEMPTS", 1)
    assert refusal_of_start(f"store={one_server.url}", "store.replicas=3").endswith("; for a single server, set store.replicas=1")
