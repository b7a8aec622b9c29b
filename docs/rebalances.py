"""Writes the diagram and the table of causes in docs/rebalances.md, from the tables that the broker runs: python -m docs.rebalances [--check]"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

from coordinator.classic.rules import RULES
from coordinator.notes import Cause
from coordinator.states import COMPLETING, EMPTY, PREPARING, STABLE, TRANSITIONS, State
from docs.page import write_or_check
from history.words import TITLES_WITHOUT_MEMBER
from protocol.errors import ErrorCode

PAGE = Path(__file__).with_suffix(".md")
GENERATED = re.compile(r"(<!-- GENERATED (\w+) [^>]*-->\n).*?(<!-- END \2 -->)", re.DOTALL)


class CauseText(NamedTuple):
    """The transitions with this cause, and what the reader can do about it. `render` checks that all causes together have exactly the TRANSITIONS."""

    moves: tuple[tuple[State, State], ...]
    do: str = ""


SETTLED = ((STABLE, PREPARING),)
WHILE_ASSIGNING = ((COMPLETING, PREPARING),)
EITHER = SETTLED + WHILE_ASSIGNING

CAUSES: dict[Cause, CauseText] = {
    Cause.NEW_MEMBER: CauseText(
        ((EMPTY, PREPARING), *EITHER),
        "Expected when you add consumers. After a mere restart: give them a `group.instance.id`; a member that has it and still counts as new was away "
        "for longer than its session timeout",
    ),
    Cause.MEMBER_LEFT: CauseText(EITHER, "A consumer without `group.instance.id` was closed. With one, it would have kept its seat"),
    Cause.SESSION_EXPIRED: CauseText(
        (*EITHER, (PREPARING, COMPLETING)),
        "The member crashed, hung or lost its network. If its restart was only slow: a longer `session.timeout.ms`",
    ),
    Cause.ADMIN_REMOVED: CauseText(EITHER, "Deliberate: ask who administers the group"),
    Cause.LEADER_REJOINED: CauseText(SETTLED, "Expected when topics or partitions were added. Often: a subscription by pattern that keeps matching new topics"),
    Cause.MEMBER_METADATA_CHANGED: CauseText(
        EITHER, "Expected with cooperative assignors, which rebalance twice to move partitions. Otherwise: members with changed subscriptions"
    ),
    Cause.STATIC_PROTOCOL_CHANGED: CauseText(SETTLED, "Expected when a release changes assignors or topics. Change them on all members in one rollout"),
    Cause.STATIC_DURING_COMPLETING: CauseText(WHILE_ASSIGNING, "A member restarted during a rebalance. Restart one member after the other"),
    Cause.SYNC_TIMEOUT: CauseText(EITHER, "The member joined and then sent nothing for a rebalance timeout: look at its log of that time"),
    Cause.SYNC_FAILED: CauseText(WHILE_ASSIGNING, "The leader's assignments do not fit into `message.max.bytes`: fewer partitions, fewer members, or a larger limit"),
    Cause.PENDING_LEFT: CauseText(EITHER, "A consumer was closed while it was starting"),
    Cause.OVER_MAX_SIZE: CauseText(SETTLED, "The broker was started with a smaller `group.max.size` than the group has members"),
    Cause.ABSENCES_ENDED: CauseText(
        (*EITHER, (PREPARING, COMPLETING)),
        "Expected when you scale down, or have lowered `registration.timeout.ms`. Otherwise: start the instances again sooner, or raise it",
    ),
    Cause.REGISTRATION_UNSET: CauseText(
        (*EITHER, (PREPARING, COMPLETING)),
        "Deliberate: without `registration.timeout.ms` the group keeps no seats, so members that were away lost theirs. Before you unset it, "
        "`tenure group policy show` lists the members that are away",
    ),
    Cause.EXPANSION: CauseText(EITHER, "Expected when you scale up: one rebalance for all members that joined within `expansion.timeout.ms`"),
    Cause.ROSTER_COMPLETE: CauseText(EITHER, "Expected when you scale up: the last instance of `instance.ids` has joined"),
    Cause.ROSTER_CHANGED: CauseText(
        (*EITHER, (PREPARING, COMPLETING)), "Expected when you scale down: names were taken from `instance.ids`, or `roster.strict` was set"
    ),
    Cause.TOPICS_CHANGED: CauseText(EITHER, "Expected with `topics.watch` when topics or partitions are added or deleted"),
    Cause.TARGET_CHANGED: CauseText(EITHER, "Expected when `target.group.size` was changed: standbys become active, or active members standbys"),
    Cause.STANDBY_LATE: CauseText(
        SETTLED, "A standby did not fetch the assignment it took over within its session timeout, and no other standby was free: look at its poll loop"
    ),
    Cause.REQUESTED: CauseText(EITHER, "Deliberate: the policy `rebalance.request` was set, with the reason that the note quotes"),
    Cause.EVERYONE_JOINED: CauseText(((PREPARING, COMPLETING),)),
    Cause.JOIN_TIMEOUT: CauseText(
        ((PREPARING, COMPLETING),),
        "For a new group that is its initial delay. Otherwise members did not rejoin in time: their `max.poll.interval.ms` is their rebalance timeout",
    ),
    Cause.ASSIGNED: CauseText(((COMPLETING, STABLE),)),
    Cause.GROUP_EMPTIED: CauseText(((PREPARING, EMPTY),)),
}
# Causes in notes that other versions wrote; this version starts no rebalance with them.
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
    for state, ends in TRANSITIONS.items():
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
        lines.append(f"| `{cause.name.lower()}` | {TITLES_WITHOUT_MEMBER[cause]} | {description.do or 'nothing'} |")
    return "\n".join(lines) + "\n"


PARTS = {"diagram": diagram, "causes": causes}


def render(page: str) -> str:
    assert {*CAUSES} == {*Cause} - UNUSED, "a cause is not described"
    assert {move for description in CAUSES.values() for move in description.moves} == {(state, to) for state, ends in TRANSITIONS.items() for to in ends}
    assert [part for _, part, _ in GENERATED.findall(page)] == [*PARTS], "the page lost one of its generated parts"
    return GENERATED.sub(lambda match: match[1] + PARTS[match[2]]() + match[3], page)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, render(PAGE.read_text()), "coordinator/classic/rules.py and states.py say"))
