"""Catalogue, section 4: replies to a replaced static member, for every request."""

from __future__ import annotations

import pytest

from coordinator.states import State
from protocol.errors import ErrorCode
from tests.coordinator.playbook import Play, row, scenario

pytestmark = pytest.mark.once  # no dependence on the Python version

FENCED, UNKNOWN = ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def restarted(play: Play) -> Play:
    """Two static members; b' has replaced b."""
    play.two_static()
    play.join("b'").expect(generation=1)
    play.expect_records("replacement")
    return play


@pytest.mark.parametrize(("instance", "error"), [row("FE-01", "ib", FENCED), row("FE-02", None, UNKNOWN)])
def test_the_old_process_cannot_join(restarted: Play, instance: str | None, error: int) -> None:
    restarted.join("b", instance=instance).expect(error, id="b")


@pytest.mark.parametrize(("instance", "error"), [row("FE-03", "ib", FENCED), row("FE-04", None, UNKNOWN)])
def test_the_old_process_cannot_sync(restarted: Play, instance: str | None, error: int) -> None:
    restarted.sync("b", generation=1, instance=instance).expect(error)


@pytest.mark.parametrize(
    ("id", "instance", "generation", "error"),
    [
        row("FE-05", "b", "ib", 1, FENCED),
        row("FE-06", "b", "ib", 0, FENCED),  # identity is checked before the generation
        row("FE-07", "", "ib", 1, FENCED),
        row("FE-08", "b'", "zz", 1, UNKNOWN),
        row("FE-09", "b'", "ia", 1, FENCED),
        row("FE-10", "b'", None, 1, ErrorCode.NONE),
    ],
)
def test_heartbeat_replies_by_identity(restarted: Play, id: str, instance: str | None, generation: int, error: int) -> None:
    restarted.heartbeat(id, generation, instance=instance).expect(error)


@pytest.mark.parametrize(
    ("id", "instance", "error"),
    [
        row("FE-11", "b", "ib", FENCED),
        row("FE-12", "b", None, UNKNOWN),
        row("FE-24", "b'", None, ErrorCode.NONE),
    ],
)
def test_leave_replies_by_identity(restarted: Play, id: str, instance: str | None, error: int) -> None:
    restarted.leave((id, instance)).expect(error)
    assert (restarted.group().state == State.STABLE) == (error != ErrorCode.NONE)


@pytest.mark.parametrize(
    ("id", "instance", "generation", "error"),
    [
        row("FE-14", "b", "ib", 1, FENCED),
        row("FE-15", "b", None, 1, UNKNOWN),
        row("FE-16", "b", "ib", -1, FENCED),
        row("FE-17", "", "ib", -1, FENCED),
        row("FE-23", "b'", "ib", 1, ErrorCode.NONE),
    ],
)
def test_commit_replies_by_identity(restarted: Play, id: str, instance: str | None, generation: int, error: int) -> None:
    restarted.commit(id, {("t0", 0): 5}, generation=generation, instance=instance).expect(error)
    restarted.fetch().expect(-1 if error else 5)
    restarted.expect_records(*([] if error else ["offset"]))


@scenario("FE-21")
def test_an_offset_fetch_checks_no_identity(restarted: Play) -> None:
    restarted.commit("b'", {("t0", 0): 5}).expect()
    restarted.fetch().expect(5)
