"""What a member does after each error: the table has all errors of group requests, and `tenure consume` follows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.client.remedies import REMEDIES, Next, joins_again, loses_member_id
from docs.groups import render
from protocol.errors import RETRIABLE, ErrorCode
from tests.running import ROOT

E = ErrorCode
REQUESTS = ("join_group", "sync_group", "heartbeat", "leave_group", "offset_commit", "offset_fetch", "find_coordinator", "delete_groups", "offset_delete")
# Of FindCoordinator for other things than groups, and of policies set by an administrator.
OTHERS = {E.INVALID_REQUEST, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.NONE}


def codes_in(path: Path) -> Iterator[ErrorCode]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ErrorCode" and node.attr in E.__members__:
            yield ErrorCode[node.attr]


@pytest.mark.once
def test_the_table_has_every_error_that_answers_a_request_of_a_member() -> None:
    answering = [*ROOT.glob("coordinator/**/*.py"), ROOT / "broker/groups/group_journal.py", *[ROOT / f"broker/api/{name}.py" for name in REQUESTS]]
    answered = {code for path in answering for code in codes_in(path)}
    assert len(answered) > 15
    assert answered - OTHERS <= REMEDIES.keys()


def test_a_member_joins_again_after_these_errors_and_after_no_others() -> None:
    assert {E(code) for code in REMEDIES if joins_again(code)} == {
        E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.REBALANCE_IN_PROGRESS, E.GROUP_ID_NOT_FOUND,
    }  # fmt: skip
    assert {E(code) for code in REMEDIES if loses_member_id(code)} == {E.UNKNOWN_MEMBER_ID, E.GROUP_ID_NOT_FOUND}
    assert not joins_again(E.NONE)
    assert not joins_again(999)


def test_what_kafkas_clients_retry_is_repeated() -> None:
    repeated = {code for code, remedy in REMEDIES.items() if remedy.next in (Next.REPEAT, Next.LOOK_UP, Next.LEAVE_OUT)}
    assert REMEDIES.keys() & RETRIABLE <= repeated


def test_the_page_has_a_row_for_each_error() -> None:
    page = render()
    assert all(f"\n| {code} {E(code).name} | " in page for code in REMEDIES)
    rows = [line for line in page.splitlines() if line[:3].strip("| -").isdigit()]
    assert all(line.count("|") == 6 for line in rows)
