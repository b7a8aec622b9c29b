"""The rows of causes and removals."""

from __future__ import annotations

from typing import get_args

import pytest

from coordinator.notes import Cause, Removal
from coordinator.policies.door import POLICIES
from history.causes import CAUSES, REMOVALS, AnyCause, Family
from history.episodes import MemberJoined, MemberRemoved, Rebalance
from history.words import describe_removal, title
from pipeline.report.charts import LEGEND

pytestmark = pytest.mark.once  # no dependence on the Python version

STEPS = (Cause.EVERYONE_JOINED, Cause.ASSIGNED)


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_has_a_colour_of_the_report(cause: AnyCause) -> None:
    assert (CAUSES[cause].family == "unknown") is (cause in STEPS)


def test_every_colour_has_a_place_in_the_legend() -> None:
    assert LEGEND.keys() == {*get_args(Family)}


@pytest.mark.parametrize("row", [*CAUSES.values(), *REMOVALS.values()])
def test_rows_name_policies(row: object) -> None:
    assert {*getattr(row, "policies")} <= {*POLICIES}  # noqa: B009


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_a_title_with_and_without_names(cause: Cause) -> None:
    row = CAUSES[cause]
    join = MemberJoined(5, "m", None, "", "", 10_000, False, None)
    removal = MemberRemoved(5, "m", None, row.removal, 10_000, 10_000, None)
    assert title(Rebalance(5, None, 1, cause)) == row.title
    full = title(Rebalance(5, None, 1, cause, "m", "topics: t", joins=[join], removals=[removal]))
    assert not set("{}") & set(full)
    assert (full != row.title) is bool(row.named)


@pytest.mark.parametrize("removal", Removal)
def test_every_removal_has_a_text(removal: Removal) -> None:
    assert describe_removal(MemberRemoved(5, "m", None, removal, 2_000, 10_000, None)).removeprefix("m ").strip("{}")
