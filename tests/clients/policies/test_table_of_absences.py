"""The table of absences in docs/policies.md with real members: the earliest absence counts, and all absences end at once. 15 s take 6 s here."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

import pytest

from tests.clients.members import KINDS, ClientKind
from tests.clients.membership import Group
from tests.clients.policies.scenarios import CLOCKS_APART_SECONDS, await_status, set_policies

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

TIMEOUT_SECONDS = 6.0
SESSION_SECONDS = 2.0
LATE_SECONDS = 1.0


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_absence_of_b_counts_when_a_has_returned(kind: ClientKind, make_group: Callable[..., Group]) -> None:
    group = make_group(group_initial_rebalance_delay_ms="500", group_min_session_timeout_ms="1000")
    set_policies(group.port, group.name, {"registration.timeout.ms": f"{TIMEOUT_SECONDS * 1000:.0f}"})
    a, b, c = [group.start(kind, instance, alone=True, session_ms=round(SESSION_SECONDS * 1000)) for instance in "abc"]
    group.await_settled(a, b, c)
    generation = group.generation()
    a.kill()
    time.sleep(TIMEOUT_SECONDS * 10 / 15)
    b.kill()
    restarted = group.start(kind, "a", session_ms=round(SESSION_SECONDS * 1000))  # within 14 s of the table, including the session of a
    ended = await_status(group.port, group.name, "status.away", "b") + TIMEOUT_SECONDS
    time.sleep(ended - time.time() + LATE_SECONDS)
    group.await_settled(restarted, c)
    begun = [line for line in group.state_changes() if line["to"] == "preparing" and line["generation"] >= generation]
    assert [line["cause"] for line in begun] == ["absences_ended"]
    at = datetime.fromisoformat(begun[0]["time"]).timestamp()
    assert -CLOCKS_APART_SECONDS <= at - ended <= LATE_SECONDS
    assert group.generation() == generation + 1
