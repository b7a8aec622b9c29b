"""The table of rules: every cell is defined and tested."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from coordinator.calls import Commit
from coordinator.rules import RULES, Row
from coordinator.states import State
from protocol.errors import ErrorCode
from tests.coordinator.playbook import T0_T1, Play

pytestmark = pytest.mark.once  # no dependence on the Python version

STATES = [state for state in State if state != State.DEAD]  # no group is ever DEAD

Case = Callable[[Play], None]
CELLS: dict[tuple[State, str], Case] = {}


def cell(state: State, column: str) -> Callable[[Case], Case]:
    def register(case: Case) -> Case:
        assert (state, column) not in CELLS
        CELLS[state, column] = case
        return case

    return register


def group_in_state(play: Play, state: State) -> None:
    """Members a (leader) and b, both static, in a group of this state; EMPTY: after they left."""
    if state == State.EMPTY:
        play.s2()
        play.leave("a", "b").expect(0, 0)
    elif state == State.PREPARING:
        play.p2()
    elif state == State.COMPLETING:
        play.c2()
    else:
        play.s2()
    play.group_is(state)
    play.wrote(*(["W3"] if state == State.EMPTY else []))


@cell(State.EMPTY, "rejoin")
@cell(State.EMPTY, "static_return")
def an_empty_group_has_no_member_to_rejoin(play: Play) -> None:
    """An empty group knows no member and no instance, so the cell cannot be reached; the reply to a client is the same."""
    assert RULES[State.EMPTY].rejoin == RULES[State.EMPTY].static_return == ErrorCode.UNKNOWN_MEMBER_ID
    play.join("b").expect(ErrorCode.UNKNOWN_MEMBER_ID, id="b")
    play.group_is(State.EMPTY)


@cell(State.EMPTY, "sync")
def sync_with_an_empty_group_is_refused(play: Play) -> None:
    assert RULES[State.EMPTY].sync == ErrorCode.UNKNOWN_MEMBER_ID
    play.sync("b").expect(ErrorCode.UNKNOWN_MEMBER_ID)


@cell(State.EMPTY, "heartbeat")
def heartbeat_to_an_empty_group_is_refused(play: Play) -> None:
    assert RULES[State.EMPTY].heartbeat == ErrorCode.UNKNOWN_MEMBER_ID
    play.heartbeat("b").expect(ErrorCode.UNKNOWN_MEMBER_ID)


@cell(State.EMPTY, "after_leave")
def an_id_that_leaves_an_empty_group_changes_nothing(play: Play) -> None:
    play.join("p")
    play.leave("p").expect()
    play.group_is(State.EMPTY, generation=2, pending=[])


@cell(State.EMPTY, "commit")
def any_client_may_commit_to_an_empty_group(play: Play) -> None:
    assert RULES[State.EMPTY].commit == ErrorCode.NONE
    play.commit("x", generation=-1).expect()


@cell(State.PREPARING, "rejoin")
def the_last_missing_member_ends_the_join_phase(play: Play) -> None:
    play.join("b").expect(generation=2)
    play.group_is(State.COMPLETING)


@cell(State.PREPARING, "static_return")
def a_restarted_member_takes_its_place_in_the_join_phase(play: Play) -> None:
    play.join("b'").expect(generation=2, id="b'")
    play.group_is(State.COMPLETING, members=["a", "b'"])


@cell(State.PREPARING, "sync")
def sync_in_the_join_phase_gets_rebalance_in_progress(play: Play) -> None:
    play.sync("b").expect(ErrorCode.REBALANCE_IN_PROGRESS)


@cell(State.PREPARING, "heartbeat")
def heartbeat_in_the_join_phase_gets_rebalance_in_progress_and_renews_the_session(play: Play) -> None:
    play.after(1_000).heartbeat("b").expect(ErrorCode.REBALANCE_IN_PROGRESS)
    assert play.session_left("b") == 10_000


@cell(State.PREPARING, "after_leave")
def leave_of_the_last_missing_member_ends_the_join_phase(play: Play) -> None:
    play.leave("b").expect()
    play.group_is(State.COMPLETING, generation=2, members=["a"])


@cell(State.PREPARING, "commit")
def commit_in_the_join_phase_is_accepted_and_renews_the_session(play: Play) -> None:
    play.after(1_000).commit("b").expect()
    assert play.session_left("b") == 10_000


@cell(State.COMPLETING, "rejoin")
def only_a_change_begins_a_rebalance_while_assignments_are_awaited(play: Play) -> None:
    play.join("a").expect(generation=1, members=["a", "b"])
    play.join("b").expect(generation=1, members=[])
    play.group_is(State.COMPLETING)
    play.join("b", metadata=T0_T1).parks()
    play.group_is(State.PREPARING)


@cell(State.COMPLETING, "static_return")
def a_restart_begins_a_rebalance_while_assignments_are_awaited(play: Play) -> None:
    play.join("b'").parks()
    play.group_is(State.PREPARING, members=["a", "b'"])


@cell(State.COMPLETING, "sync")
def sync_of_the_leader_makes_the_group_stable(play: Play) -> None:
    b = play.sync("b").parks()
    play.sync("a", {"b": 2}).expect()
    b.expect(assignment=2)
    play.group_is(State.STABLE)


@cell(State.COMPLETING, "heartbeat")
def heartbeat_while_assignments_are_awaited_renews_the_session(play: Play) -> None:
    play.after(1_000).heartbeat("b").expect()
    assert play.session_left("b") == 10_000


@cell(State.COMPLETING, "after_leave")
@cell(State.STABLE, "after_leave")
def leave_causes_a_rebalance_of_the_remaining_members(play: Play) -> None:
    play.leave("b").expect()
    play.group_is(State.PREPARING, members=["a"])


@cell(State.COMPLETING, "commit")
def commit_while_assignments_are_awaited_is_refused_and_renews_no_session(play: Play) -> None:
    play.after(1_000).commit("b").expect(ErrorCode.REBALANCE_IN_PROGRESS)
    assert play.session_left("b") == 9_000
    play.fetch().expect(-1)


@cell(State.STABLE, "rejoin")
def the_leader_or_a_change_begins_a_rebalance(play: Play) -> None:
    play.join("b").expect(generation=1)
    play.group_is(State.STABLE)
    play.join("a").parks()
    play.group_is(State.PREPARING)


@cell(State.STABLE, "static_return")
def a_restart_in_a_stable_group_causes_no_rebalance(play: Play) -> None:
    play.join("b'").expect(generation=1, id="b'")
    play.group_is(State.STABLE, generation=1)
    play.wrote("W4")


@cell(State.STABLE, "sync")
def sync_in_a_stable_group_returns_the_assignment_again(play: Play) -> None:
    play.sync("b").expect(assignment=2)
    play.sync("a", {"a": 9, "b": 9}).expect(assignment=1)
    play.wrote()


@cell(State.STABLE, "heartbeat")
def heartbeat_in_a_stable_group_renews_the_session(play: Play) -> None:
    play.after(1_000).heartbeat("b").expect()
    assert play.session_left("b") == 10_000


@cell(State.STABLE, "commit")
def commit_in_a_stable_group_renews_the_session(play: Play) -> None:
    play.after(1_000).commit("b").expect()
    assert play.session_left("b") == 10_000


def test_every_cell_of_the_table_is_there() -> None:
    assert list(RULES) == STATES
    for state, column in product(STATES, Row._fields):
        rule = getattr(RULES[state], column)
        assert callable(rule) or isinstance(rule, int), f"{state.name} x {column}"


def test_every_cell_of_the_table_has_a_case() -> None:
    assert set(CELLS) == set(product(STATES, Row._fields))


@pytest.mark.parametrize(("state", "column"), list(product(STATES, Row._fields)), ids=lambda value: getattr(value, "name", value))
def test_each_cell_does_what_the_table_says(play: Play, state: State, column: str) -> None:
    group_in_state(play, state)
    CELLS[state, column](play)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
@pytest.mark.parametrize("static", [False, True])
def test_a_newcomer_is_parked_in_every_state(play: Play, state: State, static: bool) -> None:
    group_in_state(play, state)
    play.join("c", instance="ic" if static else None, version=9 if static else 3).parks()
    play.group_is(State.PREPARING)
    assert play.id_of("c") in play.group().members


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_an_id_is_handed_out_in_every_state_and_changes_none(play: Play, state: State) -> None:
    group_in_state(play, state)
    play.join("p").expect(79, id="p")
    play.group_is(state, pending=["p"])


# Commit permissions (g.1): a row per request, a column per state.
COMMITS = [
    # generation, id, instance                  EMPTY PREPARING COMPLETING STABLE
    ((-1, "", None), (0, 25, 25, 25)),
    ((-1, "b", None), (0, 22, 22, 22)),
    ((-1, "", "ib"), (0, 82, 82, 82)),
    ((1, "b", None), (25, 0, 27, 0)),
    ((1, "b", "ib"), (25, 0, 27, 0)),
    ((0, "b", "ib"), (25, 22, 22, 22)),
    ((1, "old", "ib"), (25, 82, 82, 82)),
    ((1, "b", "zz"), (25, 25, 25, 25)),
    ((1, "p", None), (25, 25, 25, 25)),
]


@pytest.mark.parametrize(
    ("committer", "state", "error"),
    [(committer, state, error) for committer, errors in COMMITS for state, error in zip(STATES, errors, strict=True)],
)
def test_commit_permissions_by_state(play: Play, committer: tuple[int, str, str | None], state: State, error: int) -> None:
    generation, id, instance = committer
    group_in_state(play, state)
    play.join("p")
    play.commit_as_is(Commit("g", generation, play.id_of(id), instance, [])).expect(error)
