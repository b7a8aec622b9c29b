"""Resolve --from to a start offset for each partition."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.client import EXIT, Failure, check
from cli.groups.offsets_words import duration, moment, shown_moment
from cli.shown import counted
from cli.topics.log_offsets import EARLIEST, LATEST, Answer, Place, log_offsets

if TYPE_CHECKING:
    from cli.client import Cluster

WHERE: Final = "earliest, latest, an offset, -N for the last N, a time like 2026-11-21T08:30:00Z, or an age like 15m"


class Begin(NamedTuple):
    kind: str  # earliest, latest, offset, last, time
    number: int = 0  # an offset, how many, or milliseconds

    @property
    def words(self) -> str:
        match self.kind:
            case "offset":
                return f"from offset {self.number} on"
            case "last":
                return f"the last {counted(self.number, 'record')} of each partition" if self.number != 1 else "the last record of each partition"
            case "time":
                return f"from {shown_moment(self.number)} on"
        return "from the beginning on" if self.kind == "earliest" else "from the end on"


def begin_of(text: str) -> Begin:
    """ValueError: it is nothing of that."""
    if text in ("earliest", "beginning"):
        return Begin("earliest")
    if text in ("latest", "end"):
        return Begin("latest")
    if re.fullmatch(r"\d{1,19}", text, re.ASCII) and int(text) < 1 << 63:
        return Begin("offset", int(text))
    if re.fullmatch(r"-\d{1,18}", text, re.ASCII):
        return Begin("last", -int(text))
    try:
        return Begin("time", max(0, time.time_ns() // 1_000_000 - duration(text)))
    except ValueError:
        pass
    try:
        return Begin("time", moment(text))
    except ValueError as error:
        reason = str(error) if "before 1970" in str(error) else f"{text!r} is not a place to begin: {WHERE}"
        raise ValueError(reason) from None


def begin_offsets(
    cluster: Cluster, places: Iterable[Place], begin: Begin, warn: Callable[[str], None], *, committed: bool = False
) -> dict[Place, int]:
    """`committed`: logs end where the first open transaction begins, so that its records are read once it is committed."""
    places = list(places)
    if begin.kind == "earliest":
        return offsets_at(cluster, places, EARLIEST)
    ends = offsets_at(cluster, places, LATEST, committed=committed and begin.kind != "offset")
    if begin.kind == "latest":
        return ends
    if begin.kind == "time":
        found = known(log_offsets(cluster, dict.fromkeys(places, begin.number), committed=committed))
        return {place: ends[place] if offset < 0 else offset for place, offset in found.items()}
    begins = offsets_at(cluster, places, EARLIEST)
    if begin.kind == "last":
        return {place: max(begins[place], ends[place] - begin.number) for place in places}
    chosen: dict[Place, int] = {}
    for place in places:
        if begin.number > ends[place]:
            there = f"offsets {begins[place]} to {ends[place] - 1}" if ends[place] > begins[place] else f"no records, and {ends[place]} is its next offset"
            raise Failure(EXIT.MISSING, f"{place[0]}-{place[1]} has {there}, not {begin.number}")
        if begin.number < begins[place]:
            gone = counted(begins[place] - begin.number, "offset")
            warn(f"{place[0]}-{place[1]}: {gone} from {begin.number} on {'is' if gone.startswith('1 ') else 'are'} gone; beginning at {begins[place]}")
        chosen[place] = max(begin.number, begins[place])
    return chosen


def offsets_at(cluster: Cluster, places: Iterable[Place], where: int, *, committed: bool = False) -> dict[Place, int]:
    return known(log_offsets(cluster, dict.fromkeys(places, where), committed=committed))


def known(answers: dict[Place, Answer]) -> dict[Place, int]:
    for (topic, partition), answer in answers.items():
        check(answer.error, f"{topic}-{partition}")
    return {place: answer.offset for place, answer in answers.items()}
