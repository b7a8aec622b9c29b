"""`tenure group history` after a broker was killed: events without notes are restored from records, or reported as missing."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.cli.conftest import Tenure, with_bootstrap
from tests.cli.group_history import entries_of
from tests.cli.group_members import group_members
from tests.running import Client
from tests.support.controlled import Controlled, port_of

pytestmark = pytest.mark.once


def test_a_rebalance_before_a_kill_is_restored_from_records_and_moves_are_shown(controlled: Controlled, tenure: Tenure) -> None:
    kafka = controlled(topics={"t": 3})
    ask = with_bootstrap(kafka.bootstrap, tenure)
    with group_members(kafka.bootstrap, "killed", ["t"]) as members:
        members.settle({"a": {"t": [0, 1, 2]}}, static=["a"])
        entries_of(ask, "killed", 1)  # wait until the notes of the first rebalance are written
        members.settle({"a": {"t": [0]}, "b": {"t": [1, 2]}}, static=["b"])
        kafka.kill()  # the notes of this rebalance are still in memory
    with Client(port_of(kafka)) as client:
        both = [MemberIdentity("", name, None) for name in ("a", "b")]
        assert client.ask(LeaveGroupRequest("killed", both), 5).error_code == 0
    entries = entries_of(ask, "killed", 2)
    output = ask("group", "history", "killed").out
    assert [entry["to_generation"] for entry in entries if entry["kind"] in ("rebalance", "gap")] == [1, 2, 3]
    second_one = next(entry for entry in entries if entry.get("to_generation") == 2)
    assert (second_one["kind"], second_one["from_generation"], second_one["noted"], second_one["complete"]) == ("rebalance", 1, False, False)
    assert second_one["cause"] is None  # no note has it
    b = second_one["joined"][0]["member_id"]
    assert second_one["inferred"] == {
        "cause": "new_member", "confidence": "strong", "evidence": "b joined and no member went away", "member_id": b, "instance_id": "b",
    }  # fmt: skip
    assert (second_one["members_before"], second_one["members_after"]) == (1, 2)
    assert moved(second_one) == {(1, "a", "b"), (2, "a", "b")}
    assert moved(entries[-1]) == {(0, "a", None), (1, "b", None), (2, "b", None)}
    started = next(entry for entry in entries if entry["kind"] == "coordinator")
    assert started["stopped_in_order"] is False
    assert "rebalance, generation 1 -> 2, duration unknown" in output
    assert "why       b joined and no member went away (inferred from records, strong)" in output
    assert "lost      its notes were lost" in output
    assert entries[-1]["complete"]  # no note of the new coordinator is missing
    assert "the last notes may be missing" in output


def moved(entry: dict[str, Any]) -> set[tuple[int, str | None, str | None]]:
    return {(move["partition"], move["from"], move["to"]) for move in entry["moved"]}
