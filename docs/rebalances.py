"""Writes the diagram and the table of causes in docs/rebalances.md, from the tables that the broker runs: python -m docs.rebalances [--check]"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

from coordinator.notes import Cause
from coordinator.rules import RULES
from coordinator.states import COMPLETING, EMPTY, MOVES, PREPARING, STABLE, State
from docs.page import write_or_check
from history.words import PLAIN
from protocol.errors import ErrorCode

PAGE = Path(__file__).with_suffix(".md")
GENERATED = re.compile(r"(<!-- GENERATED (\w+) [^>]*-->\n).*?(<!-- END \2 -->)", re.DOTALL)


class Told(NamedTuple):
    """From which states into which a cause leads, and what the reader can do about it. tests/coordinator compares every move with it."""

    moves: tuple[tuple[State, State], ...]
    do: str = ""


SETTLED = ((STABLE, PREPARING),)
WHILE_ASSIGNING = ((COMPLETING, PREPARING),)
EITHER = SETTLED + WHILE_ASSIGNING

CAUSES: dict[Cause, Told] = {
    Cause.NEW_MEMBER: Told(
        ((EMPTY, PREPARING), *EITHER),
        "Expected when you add consumers. After a mere restart: give them a `group.instance.id`; one that has it and still counts as new was away "
        "for longer than its session timeout",
    ),
    Cause.MEMBER_LEFT: Told(EITHER, "A consumer without `group.instance.id` was closed. With one, it would have kept its seat"),
    Cause.SESSION_EXPIRED: Told(
        (*EITHER, (PREPARING, COMPLETING)),
        "It crashed, hung or lost its network. If it was only slow to start again: a longer `session.timeout.ms`",
    ),
    Cause.ADMIN_REMOVED: Told(EITHER, "Deliberate: ask who administers the group"),
    Cause.LEADER_REJOINED: Told(SETTLED, "Expected when topics or partitions were added. Often: a subscription by pattern that keeps matching new topics"),
    Cause.MEMBER_METADATA_CHANGED: Told(
        EITHER, "Expected with cooperative assignors, which rebalance twice to move partitions. Otherwise: members that subscribe to something else than before"
    ),
    Cause.STATIC_PROTOCOL_CHANGED: Told(SETTLED, "Expected when a release changes assignors or topics. Change them in one rollout, not member by member back and forth"),
    Cause.STATIC_DURING_COMPLETING: Told(WHILE_ASSIGNING, "A restart met a rebalance that was under way. Restart one member after the other"),
    Cause.SYNC_TIMEOUT: Told(EITHER, "It joined and then went silent for a whole rebalance timeout: look at what it did then"),
    Cause.SYNC_FAILED: Told(WHILE_ASSIGNING, "The leader's assignments do not fit into `message.max.bytes`: fewer partitions, fewer members, or a larger limit"),
    Cause.PENDING_LEFT: Told(EITHER, "A consumer was closed in the moment in which it was started"),
    Cause.OVER_MAX_SIZE: Told(SETTLED, "The broker was started with a smaller `group.max.size` than the group has members"),
    Cause.ABSENCES_ENDED: Told(
        (*EITHER, (PREPARING, COMPLETING)), "Expected when you scale down. Otherwise: start the instances again sooner, or raise `registration.timeout.ms`"
    ),
    Cause.EXPANSION: Told(EITHER, "Expected when you scale up: one rebalance for all members that came within `expansion.timeout.ms`"),
    Cause.ROSTER_COMPLETE: Told(EITHER, "Expected when you scale up: the last instance of `instance.ids` has come"),
    Cause.ROSTER_CHANGED: Told(
        (*EITHER, (PREPARING, COMPLETING)), "Expected when you scale down: names were taken from `instance.ids`, or `roster.strict` was set"
    ),
    Cause.TOPICS_CHANGED: Told(EITHER, "Expected with `topics.watch` when topics or partitions are added or deleted"),
    Cause.TARGET_CHANGED: Told(EITHER, "Expected when `target.group.size` was changed: standbys become active, or active members standbys"),
    Cause.STANDBY_LATE: Told(
        SETTLED, "A standby did not fetch the assignment of the seat it got within its session timeout, and no other was free: look at its poll loop"
    ),
    Cause.REQUESTED: Told(EITHER, "Deliberate: the policy `rebalance.request` was set, with the reason that the note quotes"),
    Cause.EVERYONE_JOINED: Told(((PREPARING, COMPLETING),)),
    Cause.JOIN_TIMEOUT: Told(
        ((PREPARING, COMPLETING),),
        "For a new group that is its initial delay. Otherwise members did not come back in time: their `max.poll.interval.ms` is their rebalance timeout",
    ),
    Cause.ASSIGNED: Told(((COMPLETING, STABLE),)),
    Cause.GROUP_EMPTIED: Told(((PREPARING, EMPTY),)),
}
# Kept for what other versions write; nothing here begins a rebalance with them.
UNUSED = {Cause.REBALANCE_TIMEOUT, Cause.COORDINATOR_MOVED}

HEARTBEAT = {
    ErrorCode.NONE: "heartbeats are answered 0: go on",
    ErrorCode.REBALANCE_IN_PROGRESS: "heartbeats are answered 27: join again",
    ErrorCode.UNKNOWN_MEMBER_ID: "heartbeats are answered 25: the group has no members",
}


def causes_of(move: tuple[State, State]) -> list[Cause]:
    return [cause for cause, description in CAUSES.items() if move in description.moves]


def diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {EMPTY.shown}"]
    for state, ends in MOVES.items():
        for to in ends:
            names = [cause.name.lower() for cause in causes_of((state, to))]
            assert names, f"nothing leads from {state.name} to {to.name}"
            lines.append(f"    {state.shown} --> {to.shown}: {'<br/>'.join(names)}")
    for state, row in RULES.items():
        lines += [f"    note right of {state.shown}", f"        {HEARTBEAT[row.heartbeat]}", "    end note"]
    return "\n".join([*lines, "```"]) + "\n"


def causes() -> str:
    lines = ["| cause | what happened | what to do |", "|---|---|---|"]
    for cause, description in CAUSES.items():
        lines.append(f"| `{cause.name.lower()}` | {PLAIN[cause]} | {description.do or 'nothing'} |")
    return "\n".join(lines) + "\n"


PARTS = {"diagram": diagram, "causes": causes}


def render(page: str) -> str:
    assert {*CAUSES} == {*Cause} - UNUSED, "a cause is not told"
    assert {move for description in CAUSES.values() for move in description.moves} == {(state, to) for state, ends in MOVES.items() for to in ends}
    assert [part for _, part, _ in GENERATED.findall(page)] == [*PARTS], "the page lost one of its generated parts"
    return GENERATED.sub(lambda found: found[1] + PARTS[found[2]]() + found[3], page)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, render(PAGE.read_text()), "coordinator/rules.py and states.py say"))
