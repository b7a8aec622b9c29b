"""Plays one sequence to one server.

Time is divided into ticks. Requests are sent in the first part of a tick, each after the previous was answered or clearly parked. Every
timeout in a sequence is a whole number of ticks plus a third, so it ends well after the requests of one tick and well before those of
the next, and replies do not depend on a few milliseconds. If the machine was too slow for this, the play is marked `late`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from protocol.errors import EncodeError
from protocol.messages.describe_groups import DescribeGroupsRequest
from tests.sequences.steps import NOBODY, ActorState, Names, Step, request_of
from tests.sequences.traces import UUID, Answers, GroupStates, Naming, Trace
from tests.sequences.wire import CLOSED, Wire

TICK_S = 1.2
REQUESTS_S = 0.3  # the first part of a tick, in which requests are sent
PARKED_S = 0.06  # without a reply for this time, a request counts as parked
LINGER_S = 0.008  # how long to wait for replies that the same step causes for other actors
LATE_S = 0.06
GROUPS = ("g", "h")
LOOK_VERSION = 5

WaitForRestart = Callable[[], Awaitable[None]]
Choose = Callable[["Player"], Step | None]


class Player:
    __slots__ = (
        "_answers",
        "_asks_describe_groups",
        "_awaiting_assignment",
        "_begin",
        "_looker",
        "_owners",
        "_port",
        "_raw",
        "_raw_looks",
        "_scale",
        "_steps",
        "_synced",
        "_tick",
        "_wait_for_restart",
        "_wires",
        "group_states",
        "groups",
        "killed",
        "late",
        "names",
        "tainted",
        "waiting",
    )  # fmt: skip

    def __init__(self, port: int, prefix: str, scale: float = 1.0, describe_groups: bool = True, wait_for_restart: WaitForRestart | None = None) -> None:
        self._wait_for_restart = wait_for_restart
        self.killed = False
        self._awaiting_assignment: set[str] = set()  # groups in which a static member got a new id, with no assignment since then
        self._asks_describe_groups = describe_groups
        self._port = port
        self._scale = scale
        self.names = Names(prefix, scale)
        self.groups = GROUPS
        self.late = False
        self.group_states: dict[str, Any] = {}  # group -> DescribedGroup, as of the last step
        self.waiting: dict[int, Step] = {}  # requests that are parked
        self.tainted: tuple[int, str] | None = None
        self._steps: list[Step] = []
        self._raw: list[list[tuple[int, Any]]] = []
        self._raw_looks: list[Any] = []
        self._owners: dict[str, str] = {}
        self._wires: dict[str, list[Wire]] = {}
        self._synced: set[str] = set()  # member ids that have got their assignment in the last generation
        self._looker: Wire | None = None
        self._tick = 0
        self._begin = 0.0

    async def play(self, choose: Choose) -> Trace:
        """Play step by step, until `choose` returns None."""
        self._looker = await Wire.open(self._port)
        try:
            await self._describe_groups()
            self._raw_looks.clear()
            self._begin = time.monotonic()
            while (step := choose(self)) is not None:
                await self._step(step)
            if not self._steps or self._steps[-1]["do"] != "tick":
                await self._step({"do": "tick"})  # let pending timeouts end
        finally:
            for wire in [self._looker, *(wire for wires in self._wires.values() for wire in wires)]:
                wire.drop()
        return self._trace()

    @property
    def spent(self) -> float:
        """The seconds since the tick began, divided by the scale of the play."""
        return (time.monotonic() - self._begin) / self._scale - self._tick * TICK_S

    def actor_state(self, actor: str, group: str = "g") -> ActorState:
        return self.names.of(actor, group)

    def members(self, group: str = "g") -> list[str]:
        return [member.member_id for member in self.group_states[group].members]

    def state(self, group: str = "g") -> str:
        return str(self.group_states[group].group_state)

    async def _step(self, step: Step) -> None:
        number = len(self._steps)
        self._steps.append(step)
        self._raw.append([])
        if step["do"] == "tick":
            await self._await_tick(step.get("n", 1))
        elif step["do"] == "drop":
            self._drop(step["by"])
        elif step["do"] == "kill":
            await self._kill(number)
        else:
            self.late = self.late or self.spent > REQUESTS_S + LATE_S / 2
            await self._ask(number, step)
        if self.waiting or step["do"] in ("join", "sync", "leave", "drop"):
            await asyncio.sleep(LINGER_S * self._scale)
        await self._describe_groups()

    async def _await_tick(self, ticks: int) -> None:
        self._tick += ticks
        due = self._begin + self._tick * TICK_S * self._scale
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        self.late = self.late or time.monotonic() - due > LATE_S * self._scale

    def _drop(self, actor: str) -> None:
        for wire in self._wires.pop(actor, []):
            wire.drop()
        for number, step in list(self.waiting.items()):
            if step["by"] == actor:
                del self.waiting[number]
                self.actor_state(actor, step.get("group", "g")).parked.discard(step["do"])

    async def _kill(self, number: int) -> None:
        """Kill the server. Taint Z13: ours at once stores the new id of a static member in a rebalance, Kafka only with the assignments."""
        assert self._wait_for_restart is not None
        if self._awaiting_assignment and self.tainted is None:
            self.tainted = (number, "Z13")
        for actor in list(self._wires):
            self._drop(actor)
        assert self._looker is not None
        self._looker.drop()
        self.killed = True
        await self._wait_for_restart()
        self._looker = await Wire.open(self._port)
        self._begin = time.monotonic() - self._tick * TICK_S * self._scale

    async def _ask(self, number: int, step: Step) -> None:
        answered = asyncio.Event()
        before = {name: group.group_state for name, group in self.group_states.items()}
        replaced = self._replaced(step)
        if step["do"] == "join" and not step["member"] and step.get("instance") is not None:
            self._awaiting_assignment.add(step.get("group", "g"))

        def arrived(reply: Any) -> None:
            self.waiting.pop(number, None)
            self._raw[-1].append((number, reply))
            if reply != CLOSED:
                self._learn(number, step, reply)
            if replaced and number == len(self._steps) - 1 and before.get(step.get("group", "g")) == "Stable":
                self._taint_if_unsynced(number, replaced, reply)
            if step["do"] == "commit" and before.get(step.get("group", "g")) == "Dead" and self.tainted is None and nothing_kept(reply):
                self.tainted = (number, "Z17")  # the group exists, but Kafka shows it after the next record of its partition
            answered.set()

        request = request_of(step, self.names)
        self.waiting[number] = step
        wire = await self._wire(step["by"], bool(step.get("behind")))
        self.actor_state(step["by"], step.get("group", "g")).parked.add(step["do"])
        with contextlib.suppress(TimeoutError):
            wire.send(request, step["v"], step.get("client", step["by"]), arrived)
            await asyncio.wait_for(answered.wait(), PARKED_S * self._scale)

    async def _wire(self, actor: str, pipelined: bool) -> Wire:
        """A free connection of this actor, or a busy one if the request must wait for an earlier request."""
        wires = self._wires.setdefault(actor, [])
        for wire in wires:
            if not wire.closed and wire.busy is pipelined:
                return wire
        wires.append(await Wire.open(self._port))
        return wires[-1]

    def _learn(self, number: int, step: Step, reply: Any) -> None:
        group = step.get("group", "g")
        state = self.actor_state(step["by"], group)
        state.parked.discard(step["do"])
        if step["do"] == "sync" and reply.error_code == 0:
            self._synced.add(self.names.member(step["member"], group))
        if step["do"] != "join" or reply.error_code not in (0, 79):
            return
        if UUID.search(reply.member_id) and reply.member_id not in state.ids.values():
            state.ids[number] = reply.member_id
            self._owners.setdefault(reply.member_id, f"{step['by']}@{number}")
        if number < state.newest:
            return
        state.newest = number
        state.pending = reply.error_code == 79
        if reply.error_code == 0:
            if reply.generation_id != state.generation:
                self._synced.discard(reply.member_id)
            state.generation = reply.generation_id
            state.type, state.protocol = reply.protocol_type or step["type"], reply.protocol_name
            state.members = [member.member_id for member in reply.members]
            state.leads = reply.leader == reply.member_id

    def _replaced(self, step: Step) -> str:
        """The member that this restart replaces, if any."""
        if step["do"] != "join" or step["member"] or step.get("instance") is None:
            return ""
        members = self.group_states[step.get("group", "g")].members if step.get("group", "g") in self.group_states else []
        return next((member.member_id for member in members if member.group_instance_id == step["instance"]), "")

    def _taint_if_unsynced(self, number: int, replaced: str, reply: Any) -> None:
        """Set taint Z3 if a member that had not synced is replaced in a stable group: there Kafka rebalances unnecessarily."""
        if reply != CLOSED and reply.error_code == 0 and replaced not in self._synced and self.tainted is None:
            self.tainted = (number + 1, "Z3")
        elif reply != CLOSED and reply.error_code == 0:
            self._synced.add(reply.member_id)

    async def _describe_groups(self) -> None:
        assert self._looker is not None
        if not self._asks_describe_groups:
            self._raw_looks.append(None)
            return
        asked_at = time.monotonic()
        reply = await self._looker.ask(DescribeGroupsRequest([self.names.group(name) for name in self.groups]), LOOK_VERSION)
        self.late = self.late or time.monotonic() - asked_at > LATE_S * self._scale
        if reply == CLOSED:
            raise ConnectionError("closed before the description of the groups")
        self._raw_looks.append(reply)
        self._awaiting_assignment -= {group.group_id.removeprefix(self.names.prefix) for group in reply.groups if group.group_state in ("Stable", "Empty")}
        self.group_states = {group.group_id.removeprefix(self.names.prefix): group for group in reply.groups}

    def _trace(self) -> Trace:
        naming = Naming(self.names.prefix, self._port, self._owners)
        answers: list[Answers] = [
            {number: reply if reply == CLOSED else self._answer(naming, number, reply) for number, reply in replies} for replies in self._raw
        ]
        group_states: list[GroupStates] = [naming.look(reply) if reply else {} for reply in self._raw_looks]
        trace = Trace(self._steps, answers, group_states, self.late)
        trace.tainted = self.tainted
        return trace

    def _answer(self, naming: Naming, number: int, reply: Any) -> Any:
        do = self._steps[number]["do"]
        if do == "list":
            reply.groups = [group for group in reply.groups if group.group_id.startswith(self.names.prefix)]
        return naming.plain(reply, do)


def nothing_kept(reply: Any) -> bool:
    return reply != CLOSED and not any(partition.error_code == 0 for topic in reply.topics for partition in topic.partitions)


def following(steps: Iterable[Step]) -> Choose:
    """Chooses the steps of a known sequence."""
    remaining = iter(list(steps))

    def choose(player: Player) -> Step | None:
        return next(remaining, None)

    return choose


def playable(step: Step) -> bool:
    """Whether this request exists in this version."""
    if step["do"] in ("tick", "drop", "kill"):
        return True
    try:
        request_of(step, Names("", 1.0)).encode(step["v"])
    except EncodeError:
        return False
    return True


__all__ = ["GROUPS", "NOBODY", "PARKED_S", "REQUESTS_S", "TICK_S", "Choose", "Player", "following", "playable"]
