"""Which transactional batches were committed, according to the control records.

Only the records of an open transaction wait for its end; those behind them are read at once. A transaction without an end within a day of the
log's time counts as aborted, so that records of a transaction that its coordinator lost do not wait for ever. The verdict on a batch does not
depend on how much is read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protocol.batch import CONTROL, TRANSACTIONAL, CorruptBatch, records

ABANDONED_MS: Final = 24 * 3_600_000
COMMIT: Final = 1
UNREADABLE: Final = -1


class OpenTransaction(NamedTuple):
    """A transaction without an end so far."""

    producer: int
    offset: int  # its first
    clock: int  # the log's time at its start


class TransactionVerdicts(NamedTuple):
    aborted: NDArray[np.bool_]  # of each batch
    waiting: NDArray[np.bool_]  # of each batch: its transaction is open
    ended: dict[int, bool]  # for each producer whose transaction was open before these batches and has ended: whether it was committed
    open: tuple[OpenTransaction, ...]


def verdicts(batches: NDArray[Any], clock: int, marker: Callable[[int], int], earlier: Iterable[OpenTransaction] = ()) -> TransactionVerdicts:
    """Which of these batches were aborted, and which belong to open transactions.

    `clock`: the newest time before these batches; `earlier`: the transactions that were open there; `marker`: returns the type of the control
    batch at an index.
    """
    open_before = {transaction.producer: transaction for transaction in earlier}
    open_transactions = dict(open_before)
    batches_of: dict[int, list[int]] = {producer: [] for producer in open_transactions}
    result = TransactionVerdicts(np.zeros(len(batches), bool), np.zeros(len(batches), bool), {}, tuple(open_transactions.values()))
    if not len(batches):
        return result
    clocks = np.maximum(np.maximum.accumulate(batches["max_ms"]), clock)

    def end(producer: int, committed: bool) -> None:
        result.aborted[batches_of.pop(producer)] = not committed
        if open_transactions.pop(producer) is open_before.get(producer):
            result.ended[producer] = committed

    def end_abandoned(producer: int, now: int) -> None:
        if producer in open_transactions and now - open_transactions[producer].clock > ABANDONED_MS:
            end(producer, False)

    for index in np.flatnonzero(batches["attributes"] & (TRANSACTIONAL | CONTROL)).tolist():
        batch = batches[index]
        producer = int(batch["producer_id"])
        end_abandoned(producer, int(clocks[index]))
        if not batch["attributes"] & CONTROL:
            if producer not in open_transactions:
                open_transactions[producer] = OpenTransaction(producer, int(batch["base"]), int(clocks[index]))
                batches_of[producer] = []
            batches_of[producer].append(index)
        elif producer in open_transactions:
            end(producer, marker(index) == COMMIT)
    for producer in list(open_transactions):
        end_abandoned(producer, int(clocks[-1]))
    for waiting in batches_of.values():
        result.waiting[waiting] = True
    return result._replace(open=tuple(open_transactions.values()))


def marker_type(data: bytes, at: int) -> int:
    """The type of the transaction marker in the batch at this position: 0 abort, 1 commit, or UNREADABLE."""
    try:
        (record, *_) = records(data, at)
    except (CorruptBatch, ValueError):
        return UNREADABLE
    key = record.key or b""
    return int.from_bytes(key[2:4], "big") if len(key) >= 4 else UNREADABLE
