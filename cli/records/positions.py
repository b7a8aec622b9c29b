"""Finds the start offset of each partition for --from."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from cli.client import Exit, Failure, TopicPartition, check
from cli.groups.offset_formats import parse_duration, parse_time, time_text
from cli.hints import nearest
from cli.shown import counted
from cli.topics.log_offsets import EARLIEST, LATEST, log_offsets

if TYPE_CHECKING:
    from cli.client import Cluster

EARLIEST_WORDS: Final = ("begin", "first", "oldest", "start", "smallest")  # of other tools
LATEST_WORDS: Final = ("last", "largest", "newest", "now", "tail")
FIRST_LIKELY_MS: Final = 1_000_000_000_000  # in 2001: a larger number that is no offset may be a time in milliseconds
POSITIONS: Final = "earliest, latest, an offset, -N for the last N, a time like 2026-11-21T08:30:00Z, or an age like 15m"


class StartPosition(NamedTuple):
    kind: str  # earliest, latest, offset, last, time
    number: int = 0  # an offset, a count, or milliseconds

    @property
    def text(self) -> str:
        match self.kind:
            case "offset":
                return f"from offset {self.number} on"
            case "last":
                return f"the last {counted(self.number, 'record')} of each partition" if self.number != 1 else "the last record of each partition"
            case "time":
                return f"from {time_text(self.number)} on"
        return "from the start of the log" if self.kind == "earliest" else "from the end of the log"


def parse_position(text: str) -> StartPosition:
    """Parse a position in a log. ValueError for an invalid one."""
    if text in ("earliest", "beginning"):
        return StartPosition("earliest")
    if text in ("latest", "end"):
        return StartPosition("latest")
    if re.fullmatch(r"\d{1,19}", text, re.ASCII) and int(text) < 1 << 63:
        return StartPosition("offset", int(text))
    if re.fullmatch(r"-\d{1,18}", text, re.ASCII):
        return StartPosition("last", -int(text))
    try:
        return StartPosition("time", max(0, time.time_ns() // 1_000_000 - parse_duration(text)))
    except ValueError:
        pass
    try:
        return StartPosition("time", parse_time(text))
    except ValueError as error:
        if re.match(r"\d{4}[-/.]", text, re.ASCII) and " like " not in str(error):  # a date, of which the error names what is wrong
            raise
        suggestion = position_meant(text)
        raise ValueError(f"{text!r} is not a position{suggestion or f': {POSITIONS}'}") from error


def position_meant(text: str) -> str:
    """A suggestion for a position as other tools write it; "" if there is none."""
    word = text.lower().lstrip("@:")
    mistyped = nearest(word, ("earliest", "latest", "beginning"))
    if mistyped is not None and word != mistyped and word.isalpha():
        return f"; did you mean {mistyped}?"
    if word in EARLIEST_WORDS:
        return "; did you mean earliest?"
    if word in LATEST_WORDS:
        return "; did you mean latest?"
    if word in ("stored", "committed"):
        return "; a member of a group (--group) continues at its committed offsets"
    unit = re.fullmatch(r"(\d{1,9}) ?(second|sec|minute|min|hour|hr|day|week)s?", text.lower(), re.ASCII)
    if unit:
        return f"; did you mean {unit[1]}{unit[2][0]}?"
    if from_end := re.fullmatch(r"(?:end|latest)-(\d+)", text.lower(), re.ASCII):
        return f"; did you mean -{from_end[1]}?"
    if re.fullmatch(r"-(\d+(ms|[wdhms]))+", text, re.ASCII):
        return f"; did you mean {text[1:]}? An age has no sign"
    stamp = re.fullmatch(r"[se]?@(\d{10,13})", text.lower(), re.ASCII)
    return f"; did you mean {time_text(int(stamp[1]) * (1000 if len(stamp[1]) == 10 else 1))}?" if stamp else ""


class Known(NamedTuple):
    """The offsets of the partitions whose leaders answered, and the error codes of the others."""

    offsets: dict[TopicPartition, int]
    errors: dict[TopicPartition, int]

    def checked(self) -> dict[TopicPartition, int]:
        """The offsets. Raises Failure if there is an error."""
        for (topic, partition), error in self.errors.items():
            check(error, f"{topic}-{partition}")
        return self.offsets


def begin_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], begin: StartPosition, warn: Callable[[str], None], *, committed: bool = False
) -> dict[TopicPartition, int]:
    """The start offset of each partition. `committed`: take the last stable offset, before the first open transaction, as the log end."""
    return known_begin_offsets(cluster, partitions, begin, warn, committed=committed).checked()


def known_begin_offsets(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    begin: StartPosition,
    warn: Callable[[str], None],
    *,
    committed: bool = False,
    timeout: float | None = None,
) -> Known:
    """The start offsets of the partitions whose leaders answer. `timeout`: as of `known_offsets`."""
    if begin.kind != "offset":
        return known_positions(cluster, partitions, begin, committed=committed, timeout=timeout)
    ends = known_offsets(cluster, partitions, LATEST, timeout=timeout)
    starts = known_offsets(cluster, ends.offsets, EARLIEST, timeout=timeout)
    chosen: dict[TopicPartition, int] = {}
    for tp, start in starts.offsets.items():
        end = ends.offsets[tp]
        if begin.number > end:
            range_text = f"offsets {start} to {end - 1}" if end > start else f"no records, and {end} is its next offset"
            time = f" (a time is written {time_text(begin.number)})" if begin.number >= FIRST_LIKELY_MS else ""
            raise Failure(Exit.MISSING, f"{tp[0]}-{tp[1]} has {range_text}, not {begin.number}{time}")
        if begin.number < start:
            count_deleted = counted(start - begin.number, "offset")
            warn(f"{tp[0]}-{tp[1]}: {count_deleted} from {begin.number} on {'is' if count_deleted.startswith('1 ') else 'are'} deleted; starting at {start}")
        chosen[tp] = max(begin.number, start)
    return Known(chosen, ends.errors | starts.errors)


def known_positions(
    cluster: Cluster, partitions: Iterable[TopicPartition], position: StartPosition, *, committed: bool = False, timeout: float | None = None
) -> Known:
    """The offset of a position in each partition whose leader answers: earliest, latest, before the last N, of a time (or else the end)."""
    if position.kind == "earliest":
        return known_offsets(cluster, partitions, EARLIEST, timeout=timeout)
    ends = known_offsets(cluster, partitions, LATEST, committed=committed, timeout=timeout)
    if position.kind == "latest":
        return ends
    timestamp = position.number if position.kind == "time" else EARLIEST
    found = known_offsets(cluster, ends.offsets, timestamp, committed=committed and position.kind == "time", timeout=timeout)
    if position.kind == "time":
        offsets = {tp: ends.offsets[tp] if offset < 0 else offset for tp, offset in found.offsets.items()}
    else:
        offsets = {tp: max(start, ends.offsets[tp] - position.number) for tp, start in found.offsets.items()}
    return Known(offsets, ends.errors | found.errors)


def offsets_at(cluster: Cluster, partitions: Iterable[TopicPartition], timestamp: int, *, committed: bool = False) -> dict[TopicPartition, int]:
    return known_offsets(cluster, partitions, timestamp, committed=committed).checked()


def known_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], timestamp: int, *, committed: bool = False, timeout: float | None = None
) -> Known:
    """`timeout`: ask each leader once, for so long; None: ask again within --timeout."""
    results = log_offsets(cluster, dict.fromkeys(partitions, timestamp), retry=timeout is None, committed=committed, timeout=timeout)
    return Known({tp: result.offset for tp, result in results.items() if not result.error}, {tp: result.error for tp, result in results.items() if result.error})
