"""`tenure group history` after a broker was killed: events without notes are restored from records, or reported as missing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.cli.admin import Admin
from tests.cli.conftest import Tenure, with_bootstrap
from tests.cli.group_history import entries_of
from tests.cli.group_members import group_members
from tests.running import Client, broker

pytestmark = pytest.mark.once

FAST = ("--listen", "127.0.0.1:0", "--set", "group.initial.rebalance.delay.ms=0")


def test_a_rebalance_before_a_kill_is_restored_from_records_and_moves_are_shown(tmp_path: Path, tenure: Tenure) -> None:
    with broker("--data", str(tmp_path), *FAST) as first:
        bootstrap = f"127.0.0.1:{first.port}"
        with Admin(first.port) as admin:
            admin.create_topic("t", counts=(1, 1, 1), begins={})
        with group_members(bootstrap, "killed", ["t"]) as members:
            members.settle({"a": {"t": [0, 1, 2]}}, static=["a"])
            entries_of(with_bootstrap(bootstrap, tenure), "killed", 1)  # wait until the notes of the first rebalance are written
            members.settle({"a": {"t": [0]}, "b": {"t": [1, 2]}}, static=["b"])
            first.kill()  # the notes of this rebalance are still in memory
    with broker("--data", str(tmp_path), *FAST) as second:
        ask = with_bootstrap(f"127.0.0.1:{second.port}", tenure)
        with Client(second.port) as client:
            both = [MemberIdentity("", name, None) for name in ("a", "b")]
            while (code := client.ask(LeaveGroupRequest("killed", both), 5).error_code) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                time.sleep(0.02)
            assert code == 0
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
