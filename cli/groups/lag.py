"""The total lag of a group: a sum over its partitions, or the least that it can be if the ends of some logs are unknown."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol, TypeVar

from cli.client import TopicPartition
from cli.groups.partition_problems import failures_of, report
from cli.shown import Screen, counted
from protocol.errors import ErrorCode

NO_LOG: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})  # deleted: there is nothing left to read


class Row(Protocol):
    """A partition in a table of a group's offsets. Its lag is None if nothing is committed, or the end of its log is not known."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def lag(self) -> int | None: ...


R = TypeVar("R", bound=Row)


class TotalLag(NamedTuple):
    known: int | None  # the sum over the partitions whose lag is known; None: there is none
    unknown: int  # partitions the end of whose log is not known

    @property
    def lag(self) -> int | None:
        return None if self.unknown else self.known

    def may_exceed(self, limit: int) -> bool:
        """Whether the lag is over the limit, or may be."""
        return (self.known or 0) > limit or self.unknown > 0

    @property
    def text(self) -> str:
        if not self.unknown:
            return "unknown" if self.known is None else str(self.known)
        return f"at least {self.known or 0} ({counted(self.unknown, 'partition')} unknown)"

    def document(self) -> dict[str, object]:
        return {"lag": self.lag, "unknown_partitions": self.unknown}


def total_lag(rows: Iterable[Row], errors: Mapping[TopicPartition, int]) -> TotalLag:
    """`errors`: of partitions the end of whose log is not known."""
    listed = list(rows)
    known = [max(row.lag, 0) for row in listed if row.lag is not None]
    return TotalLag(sum(known) if known else None, sum(unknown_end(errors.get((row.topic, row.partition))) for row in listed))


def chosen_rows(options: argparse.Namespace, rows: Iterable[R]) -> list[R]:
    """The rows of partitions with a lag over --lag-over, in the order of --sort. A partition whose lag is not known is not over it."""
    chosen = [row for row in rows if options.lag_over is None or (row.lag is not None and row.lag > options.lag_over)]
    return sorted(chosen, key=lambda row: (row.lag is None, -(row.lag or 0))) if options.sort == "lag" else chosen


def unknown_end(error: int | None) -> bool:
    return bool(error) and error not in NO_LOG


def report_unknown(screen: Screen, errors: Mapping[TopicPartition, int]) -> int:
    """Name the partitions whose lag is unknown, with the reasons. Returns the exit code."""
    return report(screen, failures_of({tp: error for tp, error in errors.items() if unknown_end(error)}), "the lag of {} is unknown")
