"""Commands on groups of the consumer protocol (KIP-848) of our own broker: what they hold, whom they wait for, and changes by an administrator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from protocol.errors import ErrorCode
from tests.cli.conftest import CommandResult, Tenure
from tests.support.consumer_members import GROUP, ConsumerClient
from tests.support.in_loop import InLoopBroker

pytestmark = [pytest.mark.asyncio, pytest.mark.once]

Run = Callable[..., Awaitable[CommandResult]]


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[InLoopBroker]:
    broker = InLoopBroker(tmp_path / "data")
    await broker.start(group_consumer_assignment_interval_ms=0)
    yield broker
    await broker.stop()


@pytest_asyncio.fixture
async def consumers(served: InLoopBroker) -> ConsumerClient:
    client = ConsumerClient(served, await served.connect())
    await client.topic("t", 4)
    return client


@pytest.fixture
def run(served: InLoopBroker, tenure: Tenure) -> Run:
    """Run `tenure group WORDS`, in a thread, as the broker is in this one."""

    async def run_it(*words: str) -> CommandResult:
        return await asyncio.to_thread(tenure, "group", *words, "--bootstrap", f"127.0.0.1:{served.port}")

    return run_it


async def document(run: Run, *words: str) -> Any:
    done = await run(*words, "--json")
    assert not done.code, done.err
    return json.loads(done.out)


async def wait_for_one(consumers: ConsumerClient) -> None:
    """`a` has two partitions to give up, for which `b` waits."""
    await consumers.join("a", "t")
    await consumers.join("b", "t")
    await consumers.say("a", 2)


async def give_up(consumers: ConsumerClient) -> None:
    await consumers.say("a", 2, {"t": [0, 1]})
    await consumers.say("b", 3)


def member(id: str, epoch: int, instance: str | None = None) -> dict[str, object]:
    return {"member_id": id, "instance_id": instance, "epoch": epoch}


async def test_describe_says_whom_the_group_waits_for(consumers: ConsumerClient, run: Run) -> None:
    await wait_for_one(consumers)
    lines = (await run("describe", GROUP)).out.splitlines()
    assert lines[0].startswith("g: Reconciling, type consumer, protocol uniform, epoch 3, target epoch 3, coordinator ")
    assert lines[-1] == "waits for a (epoch 2) to give up t 2,3, for b"
    (group,) = (await document(run, "describe", GROUP))["groups"]
    assert (group["type"], group["epoch"], group["target_epoch"]) == ("consumer", 3, 3)
    assert group["waits_for"] == [{**member("a", 2), "partitions": [{"topic": "t", "partitions": [2, 3]}], "for": [member("b", 3)]}]
    assert (group["behind_members"], group["away_members"]) == ([], [])


async def test_describe_names_the_members_that_have_not_heard_of_the_newest_epoch(consumers: ConsumerClient, run: Run) -> None:
    await wait_for_one(consumers)
    await consumers.say("a", 2, {"t": [0, 1]})
    assert (await run("describe", GROUP)).out.splitlines()[-1] == "at the next heartbeat in epoch 3: b (epoch 3)"
    await consumers.say("b", 3)
    assert "heartbeat" not in (await run("describe", GROUP)).out
    (group,) = (await document(run, "describe", GROUP))["groups"]
    assert (group["state"], group["waits_for"], group["behind_members"]) == ("Stable", [], [])


async def test_describe_tells_an_assignment_that_is_still_to_be_computed(consumers: ConsumerClient, run: Run) -> None:
    await wait_for_one(consumers)
    await give_up(consumers)
    await consumers.say("b", -1)
    lines = (await run("describe", GROUP)).out.splitlines()
    assert lines[0].startswith("g: Assigning, type consumer, protocol uniform, epoch 4, target epoch 3, ")
    assert "the assignment of epoch 4 is computed at the next heartbeat of a member, when the assignment interval has passed" in lines


async def test_members_have_their_epochs_what_they_hold_and_what_they_wait_for(consumers: ConsumerClient, run: Run) -> None:
    await wait_for_one(consumers)
    lines = [line.split() for line in (await run("members", GROUP)).out.splitlines()]
    assert lines[0][-4:] == ["EPOCH", "COUNT", "PARTITIONS", "TARGET"]
    assert lines[1][-6:] == ["2", "4", "t", "0-3", "t", "0,1"]
    assert lines[2][-5:] == ["3", "0", "-", "t", "2,3"]
    assert " ".join(lines[3]) == "waits for a (epoch 2) to give up t 2,3, for b"
    first, second = (await document(run, "members", GROUP))["members"]
    moving = [{"topic": "t", "partitions": [2, 3]}]
    assert (first["epoch"], first["gives_up"], first["waits_for"], first["away"], first["speaks"]) == (2, moving, [], False, "consumer")
    assert (second["epoch"], second["gives_up"], second["waits_for"]) == (3, [], moving)


async def test_a_static_member_that_is_away_is_named(consumers: ConsumerClient, run: Run) -> None:
    await consumers.join("a", "t", instance_id="seat")
    await consumers.say("a", -2, instance_id="seat")
    lines = (await run("members", GROUP)).out.splitlines()
    assert lines[1].split()[-4:] == ["away", "4", "t", "0-3"]
    assert lines[2] == "away, and their partitions are kept: seat"
    (group,) = (await document(run, "describe", GROUP))["groups"]
    assert (group["state"], group["away_members"]) == ("Reconciling", [member("a", -2, "seat")])


async def test_a_classic_member_of_such_a_group_is_shown_as_one(consumers: ConsumerClient, run: Run) -> None:
    await consumers.join("a", "t")
    await consumers.join_classic("t")
    lines = [line.split() for line in (await run("members", GROUP)).out.splitlines()]
    assert "SPEAKS" in lines[0]
    assert [("classic" in line, "consumer" in line) for line in lines[1:3]].count((True, False)) == 1
    assert {one["speaks"] for one in (await document(run, "members", GROUP))["members"]} == {"classic", "consumer"}


async def test_a_group_is_listed_with_its_type_and_assignor(consumers: ConsumerClient, run: Run) -> None:
    await consumers.join("a", "t", server_assignor="range")
    lines = [line.split() for line in (await run("list", "--type", "consumer")).out.splitlines()]
    assert lines[1][:6] == ["g", "Stable", "consumer", "range", "1", "0"]
    assert not (await document(run, "list", "--type", "classic"))["groups"]


async def test_a_static_member_is_removed_by_its_instance_even_while_it_is_away(consumers: ConsumerClient, run: Run) -> None:
    await consumers.join("a", "t", instance_id="seat")
    await consumers.join("b", "t")
    await consumers.say("a", -2, instance_id="seat")
    done = await run("remove-member", GROUP, "--instance", "seat", "--yes")
    assert (done.code, done.err) == (0, "")
    assert "4 partitions will move:\n  t 0-3: from seat to " in done.out
    assert "removed seat from group g: it has 1 member now" in done.out
    assert (await consumers.say("a", 2, instance_id="seat")).error_code == 25
    assert consumers.assigned(await consumers.say("b", 3)) == {"t": [0, 1, 2, 3]}


async def test_a_dynamic_member_is_removed_by_its_member_id_as_from_kafka(consumers: ConsumerClient, run: Run) -> None:
    for name in ("a", "b", "c"):
        await consumers.join(name, "t")
    shown = await run("remove-member", GROUP, "--member", "a", "--dry-run")
    assert "as the coordinator decides" in shown.out
    assert "leader" not in shown.out
    removed = await document(run, "remove-member", GROUP, "--member", "a", "--yes")
    assert [(one["member_id"], one["error"]) for one in removed["removed"]] == [("a", None)]
    assert (removed["members_left"], removed["all_partitions_stop"]) == (2, False)
    assert (await consumers.say("a", 2)).error_code == 25
    missing = await run("remove-member", GROUP, "--member", "a", "--yes")
    assert (missing.code, "group g has no member a" in missing.err) == (66, True)


async def test_a_group_with_members_is_not_deleted_and_one_without_is(consumers: ConsumerClient, run: Run) -> None:
    await consumers.join("a", "t")
    refused = await run("delete", GROUP, "--yes")
    assert (refused.code, "group g has 1 member: stop it first" in refused.err) == (1, True)
    await consumers.say("a", -1)
    assert (await document(run, "delete", GROUP, "--yes"))["groups"][0]["deleted"] is True
    assert (await run("describe", GROUP)).code == 66


async def test_offsets_change_while_the_group_is_empty(consumers: ConsumerClient, run: Run) -> None:
    await consumers.join("a", "t")
    assert await consumers.commit("a", 2, {"t": [0]}) == {0}
    assert (await run("offsets", "show", GROUP)).out.splitlines()[1].split()[:4] == ["g", "t", "0", "7"]
    reset = ("offsets", "reset", GROUP, "--topic", "t", "--to-earliest", "--yes")
    refused = await run(*reset)
    assert (refused.code, "has 1 member" in refused.err) == (1, True)
    refused = await run("offsets", "delete", GROUP, "--topic", "t", "--yes")
    assert (refused.code, "members of group g are subscribed to the topic" in refused.err) == (1, True)
    await consumers.say("a", -1)
    assert (await run(*reset)).code == 0
    assert (await consumers.fetch(None, -1))[1]["t"][0] == 0
    assert (await run("offsets", "delete", GROUP, "--topic", "t", "--yes")).code == 0
    assert "has committed no offsets" in (await run("offsets", "show", GROUP)).out


async def test_the_history_says_who_was_told_to_give_up_what_for_whom(consumers: ConsumerClient, run: Run) -> None:
    await wait_for_one(consumers)
    assert "for a, which was told to give up t 2,3 for b" in (await run("history", GROUP)).out
    await give_up(consumers)
    formed, moved = (await document(run, "history", GROUP))["entries"]
    assert (formed["from_generation"], formed["to_generation"]) == (0, 2)
    (waited,) = moved["waited_for"]
    assert (waited["member_id"], waited["partitions"], waited["waiting"]) == ("a", [{"topic": "t", "partitions": [2, 3]}], ["b"])


async def test_the_history_has_the_cause_the_assignor_and_who_held_it_up_at_once(consumers: ConsumerClient, run: Run) -> None:
    """The notes of the last second are waited for."""
    await wait_for_one(consumers)
    await give_up(consumers)
    moved = (await document(run, "history", GROUP))["entries"][-1]
    assert (moved["cause"], moved["assignor"], [one["member_id"] for one in moved["held_up"]]) == ("new_member", "uniform", ["a"])
    assert "  assigned  by uniform" in (await run("history", GROUP)).out


async def test_the_history_shows_refused_commits_with_their_epochs(served: InLoopBroker, consumers: ConsumerClient, run: Run) -> None:
    await consumers.join("a", "t")
    assert await consumers.commit("a", 1, {"t": [0]}) == {113}
    shard = served.server.broker.shards.journal_of(GROUP).shard
    served.server.broker.shards.journal_of(GROUP).call(shard._refusals.due, shard._out, shard.groups)
    await consumers.say("a", 2)
    assert (await document(run, "history", GROUP))["entries"][-1]["kind"] == "commits_refused"
    assert "a commit of a refused, with epoch 1 in place of 2: " in (await run("history", GROUP)).out


async def test_a_policy_that_does_not_apply_is_refused_and_one_from_before_is_named(consumers: ConsumerClient, run: Run) -> None:
    assert (await run("policy", "set", GROUP, "topics.watch=true", "--yes")).code == 0
    await consumers.join("a", "t")
    refused = await run("policy", "set", GROUP, "expansion.timeout.ms=5000", "--yes")
    assert refused.code == 1
    assert "group g is of the consumer protocol, to which the policy does not apply: new members stop nobody there" in refused.err
    assert (await consumers.configure(expansion_timeout_ms="5000"))[0] == ErrorCode.INVALID_CONFIG
    assert "ignored: topics.watch" in (await run("describe", GROUP)).out
    assert (await document(run, "policy", "show", GROUP))["status"] == {"ignored": ["topics.watch"]}


async def test_a_policy_that_applies_is_explained_and_a_rebalance_is_a_new_epoch(consumers: ConsumerClient, run: Run) -> None:
    await consumers.join("a", "t", instance_id="seat")
    shown = await run("policy", "set", GROUP, "registration.timeout.ms=60000", "--dry-run")
    assert "1 static member would keep its partitions for up to 1 min 0 s after the session ended" in shown.out
    shown = await run("rebalance", GROUP, "--reason", "t has grown", "--dry-run")
    assert "the group would get a new epoch, and the coordinator compute a new assignment; no member would rejoin or be removed" in shown.out
    assert (await run("rebalance", GROUP, "--reason", "t has grown", "--yes")).code == 0
    assert ((await consumers.describe()).group_epoch, (await consumers.say("a", 2, instance_id="seat")).member_epoch) == (3, 3)
    assert 'an operator requested a rebalance: "t has grown"' in (await run("history", GROUP)).out


async def test_a_static_return_that_moves_nothing_is_shown_as_a_seat_that_was_kept(consumers: ConsumerClient, run: Run) -> None:
    await consumers.join("a", "t", instance_id="seat")
    await consumers.say("a", -2, instance_id="seat")
    assert consumers.assigned(await consumers.join("a2", "t", instance_id="seat")) == {"t": [0, 1, 2, 3]}
    told = (await document(run, "history", GROUP))["entries"]
    assert [one["kind"] for one in told] == ["rebalance", "member_away", "static_member_returned"]
    assert "and kept its seat: no rebalance" in (await run("history", GROUP)).out
