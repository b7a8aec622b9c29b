"""`make soak ARGS="--only consume"` in its short form."""

from __future__ import annotations

import pytest

from tests.soak.consumers import consumed

pytestmark = [pytest.mark.once, pytest.mark.clients]


def test_members_that_come_and_go_print_each_record_once() -> None:
    found = consumed(10, 7, kills=False)
    assert found.wrong == []
    assert found.produced == 2_000


def test_members_that_are_killed_lose_no_record() -> None:
    found = consumed(6, 5, kills=True)
    assert found.wrong == []
    assert found.kills
