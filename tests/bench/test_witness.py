"""A round of a measurement begins once nothing else slows its core, or after a limited wait."""

from __future__ import annotations

from typing import Any

import pytest

from bench import witness
from bench.witness import CALM_AT_MOST, WAIT_SECONDS, Sample, Witness, measure_alternately


class FakeWitness:
    """A clock, and the slowness of the witness (work whose duration shows the speed of the core) at each time; a measurement lasts a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *noise: tuple[float, float]) -> None:
        self.seconds = 0.0
        self.noise = noise
        self.measured: list[tuple[str, int, float]] = []
        monkeypatch.setattr(witness, "monotonic", lambda: self.seconds)
        monkeypatch.setattr(witness, "sleep", self.sleep)
        self.witness = Witness(None)
        self.witness.best = self.witness.worst = 1.0
        monkeypatch.setattr(self.witness, "_time", self.slow)

    def slow(self) -> float:
        return next((times for since, times in reversed(self.noise) if self.seconds >= since), 1.0)

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def measure(self, name: str, number: int) -> Sample | None:
        self.seconds += 1.0
        self.measured.append((name, number, self.slow()))
        return {"slow": self.slow(), "number": number}

    def take(self, rounds: int, patience: float, names: tuple[str, ...] = ("floor", "ours")) -> Any:
        return measure_alternately(self.witness, rounds, patience, lambda: list(names), self.measure)


def numbers(samples: list[Sample]) -> list[int]:
    return [sample["number"] for sample in samples]


def test_a_quiet_machine_is_measured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    neighbour = FakeWitness(monkeypatch)
    rounds = neighbour.take(5, 30.0)
    assert (rounds.calm_enough, rounds.calm, rounds.taken, neighbour.seconds) == (True, 5, 5, 10.0)
    assert {name: numbers(samples) for name, samples in rounds.samples.items()} == {"floor": [0, 1, 2, 3, 4], "ours": [0, 1, 2, 3, 4]}


def test_a_disturbed_round_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    neighbour = FakeWitness(monkeypatch, (2.5, 2.0), (4.0, CALM_AT_MOST))
    rounds = neighbour.take(3, 30.0)
    assert (rounds.calm_enough, rounds.calm, rounds.taken) == (True, 3, 4)
    assert numbers(rounds.samples["ours"]) == numbers(rounds.samples["floor"]) == [0, 2, 3]


def test_a_round_does_not_begin_while_another_process_has_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    neighbour = FakeWitness(monkeypatch, (0.0, 2.0), (WAIT_SECONDS / 2, 1.0))
    rounds = neighbour.take(3, 30.0)
    assert (rounds.calm, rounds.taken) == (3, 3)
    assert [slow for _, _, slow in neighbour.measured] == [1.0] * 6


@pytest.mark.parametrize(("patience", "tried"), [(0.0, 3), (-1.0, 3), (30.0, 3), (60.0, 5)])
def test_after_the_wait_limit_disturbed_rounds_count_too(monkeypatch: pytest.MonkeyPatch, patience: float, tried: int) -> None:
    neighbour = FakeWitness(monkeypatch, (0.0, 2.0))
    rounds = neighbour.take(3, patience)
    assert (rounds.calm_enough, rounds.calm, rounds.taken) == (False, 0, tried)
    assert len(rounds.samples["ours"]) == len(rounds.samples["floor"]) == tried
    assert neighbour.seconds <= max(patience, 0) + WAIT_SECONDS + 3 * 2


def test_only_calm_rounds_count_if_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    neighbour = FakeWitness(monkeypatch, (6.5, 2.0))
    rounds = neighbour.take(5, 20.0)
    assert (rounds.calm_enough, rounds.calm) == (True, 3)
    assert [sample["slow"] for sample in rounds.samples["ours"]] == [1.0] * 3


def test_a_failed_row_is_not_measured_in_later_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    neighbour = FakeWitness(monkeypatch)
    lost: list[str] = []

    def measure(name: str, number: int) -> Sample | None:
        if name == "kafka" and number == 1:
            lost.append(name)
            return None
        return neighbour.measure(name, number)

    rounds = measure_alternately(neighbour.witness, 3, 30.0, lambda: [name for name in ("floor", "ours", "kafka") if name not in lost], measure)
    assert {name: numbers(samples) for name, samples in rounds.samples.items()} == {"floor": [0, 1, 2], "ours": [0, 1, 2]}


def test_the_witness_records_its_fastest_and_slowest_time() -> None:
    watched = Witness(None)
    looks = [watched.measure() for _ in range(20)]
    assert 0 < watched.best <= watched.worst
    assert all(1.0 <= look <= watched.worst / watched.best for look in looks)
