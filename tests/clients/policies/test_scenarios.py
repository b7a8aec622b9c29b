"""The short form of `make policies-demo`, and the arithmetic of its pauses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.members import CONFLUENT, KAFKA_PYTHON, ClientKind
from tests.clients.membership import Group
from tests.clients.policies.scenarios import BROKER_SETTINGS, Run, of_name, worst_and_mean_pause

PLACE, OTHER = ("orders", 0), ("orders", 1)


@pytest.mark.clients
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize(("kind", "name"), [(KAFKA_PYTHON, "scale-up"), (CONFLUENT, "full-stop")], ids=str)
def test_with_policies_a_scenario_needs_no_more_generations_than_allowed(kind: ClientKind, name: str, make_group: Callable[..., Group]) -> None:
    scenario = of_name(name)
    result = Run(scenario, kind, make_group(**BROKER_SETTINGS), with_policies=True).measure()
    assert result.generations <= scenario.generations_max


def test_a_pause_counts_beyond_the_longest_ordinary_one() -> None:
    times = {PLACE: [1.0, 1.5, 2.0, 5.0, 5.5], OTHER: [1.0, 2.0, 3.0, 4.0, 5.0]}
    assert worst_and_mean_pause(times, quiet_from=1.0, quiet_until=2.0) == (2.5, 1.25)


def test_a_pause_before_the_quiet_time_does_not_count() -> None:
    assert worst_and_mean_pause({PLACE: [0.0, 9.0, 9.5, 10.0, 10.5]}, quiet_from=9.0, quiet_until=10.0) == (0.0, 0.0)
