"""A short form of `python -m tests.testing.suite`, which has the figures of docs/testcontainers.md."""

from __future__ import annotations

import pytest

from tests.support.fixed_loop import loop_seconds
from tests.testing.suite import TENURE, run

pytestmark = [pytest.mark.once, pytest.mark.alone]

TESTS = 20
# Of processor time, in units of `loop_seconds`: two workers, two brokers, and 0.1 s for each test. Measured 450.
CPU_MAX = 1200.0


def test_a_cluster_for_each_test_costs_little() -> None:
    pytest.importorskip("kafka", reason="kafka-python is not installed for this Python")
    before = loop_seconds()
    timing = run(TENURE, TESTS, "-n", "2")
    assert timing.passed == TESTS, timing.output
    assert timing.cpu_seconds < CPU_MAX * max(before, loop_seconds()), timing


def test_a_suite_that_fails_has_passed_nothing() -> None:
    assert run(TENURE.replace("round_trip(", "raise AssertionError("), 2).passed == 0
