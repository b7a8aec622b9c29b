"""Writes the diagram and the table of causes in docs/rebalances.md, from the tables that the broker runs: python -m docs.rebalances [--check]"""

from __future__ import annotations

import sys
from pathlib import Path

from coordinator.classic.rules import RULES
from coordinator.states import EMPTY, TRANSITIONS
from docs.page import with_parts, write_or_check
from history.causes import CAUSES, AnyCause, name_of
from protocol.errors import ErrorCode

PAGE = Path(__file__).with_suffix(".md")

HEARTBEAT = {
    ErrorCode.NONE: "heartbeats are answered 0: go on",
    ErrorCode.REBALANCE_IN_PROGRESS: "heartbeats are answered 27: join again",
    ErrorCode.UNKNOWN_MEMBER_ID: "heartbeats are answered 25: the group has no members",
}


def diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {EMPTY.shown}"]
    for state, ends in TRANSITIONS.items():
        for to in ends:
            names = [name_of(cause) for cause, row in CAUSES.items() if (state, to) in row.moves]
            assert names, f"nothing leads from {state.name} to {to.name}"
            lines.append(f"    {state.shown} --> {to.shown}: {'<br/>'.join(names)}")
    for state, row in RULES.items():
        lines += [f"    note right of {state.shown}", f"        {HEARTBEAT[row.heartbeat]}", "    end note"]
    return "\n".join([*lines, "```"]) + "\n"


def table(causes: list[AnyCause]) -> str:
    lines = ["| cause | what happened | what to do |", "|---|---|---|"]
    lines += [f"| `{name_of(cause)}` | {CAUSES[cause].title} | {CAUSES[cause].advice or 'nothing'} |" for cause in causes]
    return "\n".join(lines) + "\n"


def causes() -> str:
    return table([cause for cause, row in CAUSES.items() if row.moves])


def epochs() -> str:
    return table([cause for cause, row in CAUSES.items() if row.consumer])


PARTS = {"diagram": diagram, "causes": causes, "epochs": epochs}


def render(page: str) -> str:
    assert {move for row in CAUSES.values() for move in row.moves} == {(state, to) for state, ends in TRANSITIONS.items() for to in ends}
    return with_parts(page, PARTS)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, render(PAGE.read_text()), "coordinator/classic/rules.py and states.py say"))
