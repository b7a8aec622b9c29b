"""Which transactional batches were committed, according to the control records.

Records of an open transaction, and all after its start, are not read yet, so that rows are in log order. A transaction without an end
within a day of the log's time counts as aborted: a transaction that its coordinator lost must not block all analyses. The verdict on a batch does
not depend on how much is read at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocol.batch import CONTROL, TRANSACTIONAL

ABANDONED_MS: Final = 24 * 3_600_000
COMMIT: Final = 1


class TransactionVerdicts(NamedTuple):
    aborted: NDArray[np.bool_]  # of each batch
    open_from_offset: int  # the first offset of an open transaction; -1: none is open


class _OpenTransaction:
    """A transaction without an end so far."""

    def __init__(self, offset: int, clock: int) -> None:
        self.offset = offset
        self.clock = clock
        self.batches: list[int] = []


def verdicts(batches: NDArray[Any], clock: int, marker: Callable[[int], int]) -> TransactionVerdicts:
    """Which of these batches were aborted, and where the first open transaction begins.

    `clock`: the newest time before these batches; `marker`: returns the type of the control batch at an index.
    """
    aborted = np.zeros(len(batches), bool)
    transactional = np.flatnonzero(batches["attributes"] & (TRANSACTIONAL | CONTROL))
    if not len(transactional):
        return TransactionVerdicts(aborted, -1)
    clocks = np.maximum(np.maximum.accumulate(batches["max_ms"]), clock)
    open_transactions: dict[int, _OpenTransaction] = {}
    for index in transactional.tolist():
        batch = batches[index]
        producer = int(batch["producer_id"])
        transaction = open_transactions.get(producer)
        if transaction is not None and clocks[index] - transaction.clock > ABANDONED_MS:
            aborted[transaction.batches] = True
            del open_transactions[producer]
            transaction = None
        if not batch["attributes"] & CONTROL:
            if transaction is None:
                transaction = open_transactions[producer] = _OpenTransaction(int(batch["base"]), int(clocks[index]))
            transaction.batches.append(index)
        elif transaction is not None:
            if marker(index) != COMMIT:
                aborted[transaction.batches] = True
            del open_transactions[producer]
    for producer, transaction in list(open_transactions.items()):
        if clocks[-1] - transaction.clock > ABANDONED_MS:
            aborted[transaction.batches] = True
            del open_transactions[producer]
    return TransactionVerdicts(aborted, min((transaction.offset for transaction in open_transactions.values()), default=-1))
