"""The report of the measurement with logs in JetStream, and whether its figures are good enough."""

from __future__ import annotations

import pytest

from bench.jetstream import Measured, Round, report
from bench.load import LoadError, Sample
from bench.nats_bench import Raw, parse
from bench.rows import CPU_FIELD


def sample(cpu: float, requests: int = 4_000) -> Sample:
    return {"requests": requests, "rps": requests, "p50_us": 1_000, "p99_us": 2_000, CPU_FIELD: cpu}


@pytest.mark.parametrize(("cpu", "appends", "good"), [(39.0, 1_000, True), (41.0, 1_000, False), (41.0, 2_000, True)])
def test_a_commit_may_cost_twice_as_much_where_appends_are_shared(cpu: float, appends: int, good: bool) -> None:
    measured = Measured({50: [Round(sample(20.0), sample(cpu), appends)]}, [Raw(1_000, 3, 9)], [Raw(3_000, 2, 8)], 500, 2.0)
    text, found = report(measured)
    assert found is good
    assert f"{4_000 / appends:.1f}" in text
    assert "250 a second" in text


def test_the_figures_of_the_engines_own_tool_are_those_of_all_its_clients() -> None:
    output = """
  [1] 900 msgs/sec ~ 99 KiB/sec ~ min: 1.00us ~ avg: 2.00us ~ max: 3.00us ~ P50: 4.00us ~ P90: 5.00us ~ P99: 6.00us ~ P99.9: 7.00us (2,000 msgs)

 NATS JetStream synchronous publisher aggregated stats: 1,898 msgs/sec ~ 209 KiB/sec
 message rates min 900 | avg 949 | max 1,000 | stddev 50 msgs
 latencies per operation min 1.00us | avg 2.00us | max 3.00us | stddev 1.00us | P50 12,345.67us | P90 20,000.00us | P99 45,000.00us | P99.9: 50,000.00us
"""
    assert parse(output) == Raw(1_898, 12.34567, 45.0)
    with pytest.raises(LoadError, match="no servers"):
        parse("nats: error: no servers available for connection")
