"""A short form of `python -m tests.testing.suite`, which has the figures of docs/testcontainers.md."""

from __future__ import annotations

import pytest

from tests.testing.suite import TENURE, run

pytestmark = [pytest.mark.once, pytest.mark.alone]

TESTS = 20
CPU_SECONDS_MAX = 15.0  # measured 4 to 6: two workers, two brokers, and 0.1 for each test. 200 tests within a minute on two cores leave 120


def test_a_cluster_for_each_test_costs_little() -> None:
    pytest.importorskip("kafka", reason="kafka-python is not installed for this Python")
    timing = run(TENURE, TESTS, "-n", "2")
    assert timing.passed == TESTS, timing.output
    assert timing.cpu_seconds < CPU_SECONDS_MAX, timing


def test_a_suite_that_fails_has_passed_nothing() -> None:
    assert run(TENURE.replace("round_trip(", "raise AssertionError("), 2).passed == 0
