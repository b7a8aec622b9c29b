"""Partitions that cannot be read at the moment: since when, why, and for how long that is borne."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from cli.client import Failure, TopicPartition
from history.moves import list_partitions


class Outage(NamedTuple):
    since: float
    problem: Failure


class Outages:
    """`endless`: whether partitions that can be read are read on, however long others cannot; `gives_up`: whether they are read to an end without the others."""

    def __init__(self, warn: Callable[[str], None], *, endless: bool, gives_up: bool) -> None:
        self._warn = warn
        self._endless = endless
        self._gives_up = gives_up
        self._outages: dict[TopicPartition, Outage] = {}
        self._reported: set[TopicPartition] = set()

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Forget other partitions than these."""
        self._outages = {tp: outage for tp, outage in self._outages.items() if tp in partitions}
        self._reported &= self._outages.keys()

    def begin(self, partitions: Iterable[TopicPartition], problem: Failure, since: float | None = None) -> None:
        """These partitions were not read; `since`: when it was tried."""
        for tp in partitions:
            before = self._outages.get(tp)
            began = before.since if before else time.monotonic() if since is None else since
            self._outages[tp] = Outage(began, problem)

    def end(self, tp: TopicPartition) -> None:
        if self._outages.pop(tp, None) is not None and tp in self._reported:
            self._reported.discard(tp)
            self._warn(f"{list_partitions([tp])} is read again")

    def lasting(self, seconds: float) -> dict[TopicPartition, Failure]:
        """The partitions that could not be read for so long, and why."""
        now = time.monotonic()
        return {tp: outage.problem for tp, outage in self._outages.items() if now - outage.since >= seconds}

    def check(self, partitions: Collection[TopicPartition], limit: float) -> None:
        """Raise Failure if an outage has lasted for `limit` seconds. Where others are read without that partition, only if no partition can be read;
        and without an end, report it once.
        """
        lasting = self.lasting(limit)
        if not lasting:
            return
        if len(lasting) == len(partitions) or not (self._endless or self._gives_up):
            raise next(iter(lasting.values()))
        if self._gives_up:
            return
        by_reason: dict[str, list[TopicPartition]] = {}
        for tp, problem in lasting.items():
            if tp not in self._reported:
                by_reason.setdefault(problem.line, []).append(tp)
        for reason, listed in by_reason.items():
            self._warn(f"{list_partitions(listed)} cannot be read at the moment, and will be when it can: {reason}")
            self._reported.update(listed)
