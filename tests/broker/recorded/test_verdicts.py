"""Kafka's LogValidator and ProducerStateManager accept and refuse the same batches, and its consumer reads the same records as we do."""

from __future__ import annotations

import os

import pytest

from tests.broker.recorded.verdicts import FAMILIES, RECORDED, corner_cases, difference, kafka_verdicts, random_cases, recorded

DEPTH = int(os.environ.get("TEST_DEPTH", "0"))


@pytest.mark.once
def test_our_verdicts_on_recorded_batches_are_kafkas() -> None:
    cases = list(recorded())
    assert len(cases) == len(list(corner_cases())) + RECORDED * len(FAMILIES)
    assert [text for case, kafka in cases if (text := difference(case, kafka))] == []


@pytest.mark.kafka
@pytest.mark.parametrize("family", FAMILIES)
def test_our_verdicts_on_random_batches_are_kafkas(family: str) -> None:
    cases = list(random_cases(family, 1_000 + 500 * DEPTH, DEPTH))
    assert [text for case, kafka in zip(cases, kafka_verdicts(cases), strict=True) if (text := difference(case, kafka))] == []
