"""The verdict of the measurement over JetStream."""

from __future__ import annotations

import pytest

from bench.jetstream import Measured, Raw, Round, report
from bench.load import Sample
from bench.rows import CPU_FIELD


def sample(cpu: float, requests: int = 4_000) -> Sample:
    return {"requests": requests, "rps": requests, "p50_us": 1_000, "p99_us": 2_000, CPU_FIELD: cpu}


@pytest.mark.parametrize(("cpu", "appends", "good"), [(39.0, 1_000, True), (41.0, 1_000, False), (41.0, 2_000, True)])
def test_a_commit_may_cost_twice_as_much_where_appends_are_shared(cpu: float, appends: int, good: bool) -> None:
    measured = Measured({50: [Round(sample(20.0), sample(cpu), appends)]}, [Raw(1_000, 3, 9)], 500, 2.0)
    text, found = report(measured)
    assert found is good
    assert f"{4_000 / appends:.1f}" in text
    assert "250 a second" in text
