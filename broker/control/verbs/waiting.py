"""Wait for a state, a commit or a request; marks and histories."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker.control.fields import OBJECT, TEXT, WHOLE, Field, Refused, read_fields, timeout_field
from broker.control.verb import Call, Verb
from broker.faults.book import Book
from broker.faults.fault import BadFault, Fault

OF_GROUP = (
    Field("name", TEXT, "the group's id", required=True),
    Field("state", TEXT, "Stable, Empty, PreparingRebalance, CompletingRebalance or Dead"),
    Field("members", WHOLE, "how many members", least=0),
    Field("generation", WHOLE, "at least this generation", least=0),
    Field("assigned", WHOLE, "how many partitions its members have together", least=0),
)
OF_COMMIT = (
    Field("group", TEXT, "the group's id", required=True),
    Field("topic", TEXT, "the topic", required=True),
    Field("partition", WHOLE, "the partition", 0, least=0),
    Field("offset", WHOLE, "at least this offset", 1, least=0),
)


async def wait(call: Call) -> Any:
    wanted = [name for name in ("group", "committed", "request") if call.fields[name] is not None]
    if len(wanted) != 1:
        raise Refused(400, "wait for one of group, committed and request")
    return await {"group": for_group, "committed": for_commit, "request": for_request}[wanted[0]](call)


async def for_group(call: Call) -> Any:
    wanted = read_fields(OF_GROUP, call.fields["group"])

    def reached() -> bool:
        group = call.of.group(wanted["name"])
        if group is None:
            return wanted["state"] == "Dead" or (wanted["state"] is None and wanted["members"] == 0)
        return (
            (wanted["state"] is None or group.state.shown.lower() == wanted["state"].lower())
            and (wanted["members"] is None or len(group.members) == wanted["members"])
            and (wanted["generation"] is None or group.generation >= wanted["generation"])
            and (wanted["assigned"] is None or assigned(call.of.group_document(group)) == wanted["assigned"])
        )

    ok = await call.of.until(reached, call.fields["timeout_ms"])
    group = call.of.group(wanted["name"])
    state = call.of.group_document(group) if group is not None else None
    if not ok:
        raise Refused(408, f"group {wanted['name']!r} is not there after {call.fields['timeout_ms']} ms: {in_words(state)}", "", state=state)
    return state


def assigned(group: dict[str, Any]) -> int:
    return sum(len(partitions) for member in group["members"] for partitions in (member["partitions"] or {}).values())


def in_words(state: dict[str, Any] | None) -> str:
    return "there is no such group" if state is None else f"it is {state['state']} with {len(state['members'])} members in generation {state['generation']}"


async def for_commit(call: Call) -> Any:
    wanted = read_fields(OF_COMMIT, call.fields["committed"])

    def committed() -> int:
        return call.of.committed(wanted["group"], wanted["topic"], wanted["partition"])

    ok = await call.of.until(lambda: committed() >= wanted["offset"], call.fields["timeout_ms"])
    if not ok:
        raise Refused(408, f"offset {committed()} is committed, and not {wanted['offset']}" if committed() >= 0 else "nothing is committed there", "", state={"offset": committed()})
    return {"offset": committed()}


async def for_request(call: Call) -> Any:
    try:
        fault = Fault.parse({**call.fields["request"], "action": {"observe": True}})
    except BadFault as error:
        raise Refused(400, str(error), error.hint) from None
    book = Book(call.of.topic_name)
    installed = book.install(fault)
    seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def watch(request: Any) -> None:
        book.match(request)
        if not installed.left and not seen.done():
            seen.set_result(None)

    call.of.traffic.watchers[seen] = watch
    try:
        async with asyncio.timeout(call.fields["timeout_ms"] / 1000):
            await seen
    except TimeoutError:
        raise Refused(408, "no such request came", installed.story(), state=installed.report()) from None
    finally:
        del call.of.traffic.watchers[seen]
    return {"seen": list(installed.hit)}


async def commits(call: Call) -> Any:
    """All commits in their order, and those that went back."""
    newest: dict[int, int] = {}
    found, went_back = [], []
    async for partition, offset in call.of.commits(call.fields["group"], call.fields["topic"]):
        found.append({"partition": partition, "offset": offset})
        if offset < newest.get(partition, 0):
            went_back.append({"partition": partition, "from": newest[partition], "to": offset})
        newest[partition] = offset
    return {"commits": found, "went_back": went_back}


async def mark(call: Call) -> Any:
    return {"mark": call.of.clock.wall_ns() // 1_000_000}


async def history(call: Call) -> Any:
    name = call.fields["group"]
    read: Callable[[str, str, int | None], dict[str, Any]] = call.host.read_history
    cluster = call.of
    cluster.running_or_refuse()
    return await asyncio.to_thread(read, cluster.local_bootstrap, name, call.fields["since"])


PATH = "/v1/clusters/{cluster}"
VERBS = (
    Verb(
        "POST", PATH + "/wait", "wait for the state of a group, a commit, or a request that a fault's selectors choose", wait,
        (
            Field("group", OBJECT, "name, and any of state, members, generation"),
            Field("committed", OBJECT, "group, topic, partition, and the offset that is reached"),
            Field("request", OBJECT, "selectors of a fault"),
            timeout_field(),
        ),
        {"group": {"name": "billing", "state": "Stable", "members": 3}, "timeout_ms": 10000},
    ),
    Verb("POST", PATH + "/mark", "a moment, from which histories can be read", mark, example={}),
    Verb(
        "GET", PATH + "/commits", "the commits of a group for a topic, in their order, and which of them went back", commits,
        (Field("group", TEXT, "the group's id", required=True), Field("topic", TEXT, "the topic", required=True)),
    ),
    Verb(
        "GET", PATH + "/history", "the history of a group: what `tenure group history --json` says, and the same in words", history,
        (Field("group", TEXT, "the group's id", required=True), Field("since", WHOLE, "only what ended since this mark")),
    ),
)  # fmt: skip
