"""Which transactional batches count: those whose producer's marker says COMMIT.

What is not decided yet is not read yet, nor is anything behind it, so that rows come in the order of the log. A transaction
that nothing ends within a day of the log's own time counts as aborted: a coordinator that lost it must not stop all analyses.
The verdict on a batch depends on what is before it, not on how much was read at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocol.batch import CONTROL, TRANSACTIONAL

ABANDONED_MS: Final = 24 * 3_600_000
COMMIT: Final = 1


class Verdicts(NamedTuple):
    aborted: NDArray[np.bool_]  # of each batch
    stable: int  # the first offset that is not decided; -1: all are


class _Open:
    """A transaction that has not ended."""

    def __init__(self, offset: int, clock: int) -> None:
        self.offset = offset
        self.clock = clock
        self.batches: list[int] = []


def verdicts(batches: NDArray[Any], clock: int, marker: Callable[[int], int]) -> Verdicts:
    """`clock`: the newest time before these batches; `marker`: the type of the control batch at that index."""
    aborted = np.zeros(len(batches), bool)
    special = np.flatnonzero(batches["attributes"] & (TRANSACTIONAL | CONTROL))
    if not len(special):
        return Verdicts(aborted, -1)
    clocks = np.maximum(np.maximum.accumulate(batches["max_ms"]), clock)
    opened: dict[int, _Open] = {}
    for index in special.tolist():
        one = batches[index]
        producer = int(one["producer_id"])
        transaction = opened.get(producer)
        if transaction is not None and clocks[index] - transaction.clock > ABANDONED_MS:
            aborted[transaction.batches] = True
            del opened[producer]
            transaction = None
        if not one["attributes"] & CONTROL:
            if transaction is None:
                transaction = opened[producer] = _Open(int(one["base"]), int(clocks[index]))
            transaction.batches.append(index)
        elif transaction is not None:
            if marker(index) != COMMIT:
                aborted[transaction.batches] = True
            del opened[producer]
    for producer, transaction in list(opened.items()):
        if clocks[-1] - transaction.clock > ABANDONED_MS:
            aborted[transaction.batches] = True
            del opened[producer]
    return Verdicts(aborted, min((transaction.offset for transaction in opened.values()), default=-1))
