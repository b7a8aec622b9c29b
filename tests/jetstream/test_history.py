"""Each anomaly that history.py checks for, in a made-up history: the checker must report it."""

from __future__ import annotations

import pytest

from tests.jetstream.history import Generation, History, Leadership, Read, Record, Write


def history(
    writes: tuple[Write, ...] = (),
    reads: tuple[Read, ...] = (),
    last_reads: tuple[Read, ...] = (),
    generations: tuple[Generation, ...] = (),
    leaderships: tuple[Leadership, ...] = (),
    stored: tuple[Record, ...] = (),
    fetched: tuple[Record, ...] = (),
    last_fetched: tuple[Record, ...] = (),
) -> History:
    made = History()
    made.writes, made.reads, made.last_reads = list(writes), list(reads), list(last_reads)
    made.generations, made.leaderships = list(generations), set(leaderships)
    made.stored, made.fetched, made.last_fetched = list(stored), set(fetched), set(last_fetched)
    return made


SOUND = history(
    (Write("a", 1, 0, 1, True), Write("a", 2, 2, 5, False)),
    (Read("a", 1, 1, 2, 1), Read("a", 2, 3, 4, 2), Read("a", 1, 2.5, 4, 1)),
    (Read("a", 2, 9, 9, 1),),
    (Generation("g", 1, 0, 1), Generation("g", 3, 1, 2)),
    (Leadership("l", 1, 1), Leadership("l", 2, 2), Leadership("m", 1, 2)),
    (Record(0, 0, b"x"),),
    (Record(0, 0, b"x"),),
    (Record(0, 0, b"x"), Record(0, 1, b"y")),
)


def test_a_sound_history_has_no_anomaly() -> None:
    assert SOUND.anomalies() == []


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (history(writes=(Write("a", 1, 0, 1, True),), reads=(Read("a", -1, 2, 3, 1),)), "was acknowledged"),
        (history(writes=(Write("a", 1, 0, 1, True),), reads=(Read("a", 2, 2, 3, 1),)), "only 1 was written"),
        (history(writes=(Write("a", 1, 0, 9, False),), reads=(Read("a", 1, 1, 2, 1), Read("a", -1, 3, 4, 2))), "read before"),
        (history(generations=(Generation("g", 2, 0, 1), Generation("g", 2, 2, 3))), "behind"),
        (history(leaderships=(Leadership("l", 1, 1), Leadership("l", 1, 2))), "nodes [1, 2]"),
        (history(stored=(Record(0, 0, b"x"),)), "is gone"),
        (history(fetched=(Record(0, 0, b"x"),), last_fetched=(Record(0, 0, b"y"),)), "now b'y'"),
    ],
)
def test_each_anomaly_is_found(broken: History, reason: str) -> None:
    (found,) = broken.anomalies()
    assert reason in found


def test_without_leases_only_the_last_reads_count() -> None:
    without_leases = history(writes=(Write("a", 1, 0, 1, True),), reads=(Read("a", -1, 2, 3, 1),), last_reads=(Read("a", 1, 5, 6, 1),))
    assert without_leases.anomalies()
    assert without_leases.anomalies(stale_reads=True) == []
