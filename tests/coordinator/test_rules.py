"""The table of rules: every cell is defined, and a scenario of the catalogue tests it."""

from __future__ import annotations

from itertools import product
from typing import Final, NamedTuple

import pytest

from coordinator.classic.rules import RULES, StateRules
from coordinator.states import State
from protocol.errors import ErrorCode
from tests.coordinator.playbook import Play
from tests.coordinator.test_catalogue import scenarios_with_tests

pytestmark = pytest.mark.once  # no dependence on the Python version

STATES = [state for state in State if state != State.DEAD]  # no group is ever DEAD


class Scenarios(NamedTuple):
    """The scenarios of one state, by the columns of `StateRules`."""

    rejoin: str
    static_return: str
    sync: str
    heartbeat: str
    after_leave: str
    commit: str


# fmt: off
SCENARIOS: Final = {
    #                           rejoin         static_return  sync           heartbeat      after_leave  commit
    State.EMPTY:      Scenarios("DJ-24",       "",            "SY-11",       "HB-06",       "",          "OC-04 OC-05"),
    State.PREPARING:  Scenarios("DJ-16 RB-01", "SR-40 SR-42", "SY-08 SY-09", "HB-05 RB-12", "RB-13",     "OC-06 RB-12"),
    State.COMPLETING: Scenarios("DJ-22 DJ-23", "SR-50 SR-51", "SY-01 SY-03", "HB-04 SY-12", "SY-23",     "OC-07 OC-23"),
    State.STABLE:     Scenarios("DJ-18 DJ-20", "SR-01 SR-06", "SY-02 ZB-04", "HB-01 HB-12", "LV-01",     "OC-08 OC-22"),
}
# fmt: on


def test_every_cell_of_the_table_is_there_and_has_a_scenario() -> None:
    assert list(RULES) == list(SCENARIOS) == STATES
    assert Scenarios._fields == StateRules._fields
    for state, column in product(STATES, StateRules._fields):
        rule = getattr(RULES[state], column)
        assert callable(rule) or isinstance(rule, int), f"{state.name} x {column}"
        for number in getattr(SCENARIOS[state], column).split():
            assert number in scenarios_with_tests(), f"{state.name} x {column}: no test has {number}"


def test_an_empty_group_knows_no_member_and_no_instance() -> None:
    """No request reaches these cells: the check of the member's identity comes before the table."""
    assert RULES[State.EMPTY][:4] == (ErrorCode.UNKNOWN_MEMBER_ID,) * 4


def group_in_state(play: Play, state: State) -> None:
    """A group in this state, of static members a (leader) and b; if EMPTY, they have left."""
    if state == State.EMPTY:
        play.two_static()
        play.leave("a", "b").expect(0, 0)
    elif state == State.PREPARING:
        play.leader_rejoins()
    elif state == State.COMPLETING:
        play.two_awaiting_assignment()
    else:
        play.two_static()
    play.group_is(state)
    play.expect_records(*(["empty group"] if state == State.EMPTY else []))


def test_a_pending_id_that_leaves_an_empty_group_changes_nothing(play: Play) -> None:
    group_in_state(play, State.EMPTY)
    play.join("p")
    play.leave("p").expect()
    play.group_is(State.EMPTY, generation=2, pending=[])


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
@pytest.mark.parametrize("static", [False, True])
def test_a_newcomer_is_parked_in_every_state(play: Play, state: State, static: bool) -> None:
    group_in_state(play, state)
    play.join("c", instance="ic" if static else None, version=9 if static else 3).expect_parked()
    play.group_is(State.PREPARING)
    assert play.id_of("c") in play.group().members


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_an_id_is_handed_out_in_every_state_and_changes_none(play: Play, state: State) -> None:
    group_in_state(play, state)
    play.join("p").expect(79, id="p")
    play.group_is(state, pending=["p"])
