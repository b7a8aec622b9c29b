"""Virtual time: one heap of scheduled calls, one source of random numbers, and the trace of a run."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Iterable
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, NamedTuple

MS: Final = 1_000_000
SECOND: Final = 1_000_000_000
LINES_KEPT: Final = 20_000


class Promise(NamedTuple):
    """What a run keeps. The check that finds it broken declares it."""

    name: str
    sentence: str
    unless: tuple[str, ...] = ()  # faults under which it does not hold
    has_offsets: bool = False  # whether the description of a broken promise names an offset

    def holds(self, faults: Iterable[str]) -> bool:
        """Whether it holds in a run with these faults."""
        return set(self.unless).isdisjoint(faults)


class Broken(Exception):
    """A promise was broken."""

    def __init__(self, promise: Promise, what: str, about: str = "") -> None:
        """`about`: the group or partition whose promise was broken."""
        super().__init__(f"{promise.name}: {what}")
        self.promise = promise
        self.about = about


class Line:
    """One line of the trace."""

    __slots__ = ("about", "moment", "routine", "text")

    def __init__(self, moment: int, about: str, text: str, routine: bool = False) -> None:
        """`routine`: a successful request, which a story mostly leaves out."""
        self.moment = moment
        self.about = about
        self.text = text
        self.routine = routine

    def __str__(self) -> str:
        return f"{format_time(self.moment)}  {self.text}"


class World:
    """`now` is in nanoseconds of virtual time, since the run began."""

    def __init__(self, seed: int, show: Callable[[str], object] | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 0
        self.events = 0  # requests handled, timers that changed something, and faults
        self.counts: dict[str, int] = {}
        self.broken: Broken | None = None  # set by checks inside the broker, which would contain the exception
        self.lines: deque[Line] = deque(maxlen=LINES_KEPT)
        self.traced_clients: Collection[str] = ()  # groups, producers and readers whose requests and replies are added to the trace
        self._show = show
        self._heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._number = 0
        self._digest = hashlib.blake2b(digest_size=8)

    def at(self, moment: int, call: Callable[..., object], *arguments: Any) -> None:
        self._number = number = self._number + 1
        heappush(self._heap, (moment, number, call, arguments))

    def after(self, delay: int, call: Callable[..., object], *arguments: Any) -> None:
        self._number = number = self._number + 1
        heappush(self._heap, (self.now + delay, number, call, arguments))

    @property
    def next_at(self) -> int:
        """The moment of the next event."""
        heap = self._heap
        return heap[0][0] if heap else 1 << 62

    def run_until(self, moment: int, events_max: int = 1 << 62) -> None:
        """Run all events due until `moment`, or until `events_max` events were counted. Raises Broken."""
        heap = self._heap
        while heap and heap[0][0] <= moment:
            due, _, call, arguments = heappop(heap)
            if due > self.now:
                self.now = due
            call(*arguments)
            if self.broken is not None:
                raise self.broken
            if self.events >= events_max:
                return
        self.now = max(self.now, moment)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def between(self, low: int, high: int) -> int:
        """A random moment or delay between two; cheaper than `randint`."""
        return low + int(self.random.random() * (high - low))

    # The trace.

    def count(self, what: str, events: int = 0) -> None:
        """Add one to a count of the summary, and `events` to the events of the run."""
        self.counts[what] = self.counts.get(what, 0) + 1
        self.events += events

    def trace(self, text: str, about: str = "", routine: bool = False) -> None:
        """Add a line to the trace. `about`: the group, partition or node that it concerns."""
        line = Line(self.now, about, text, routine)
        self.lines.append(line)
        self._digest.update(b"%d %s\n" % (self.now, text.encode("utf-8", "replace")))
        if self._show is not None:
            self._show(str(line))

    @property
    def digest(self) -> str:
        """The digest of all lines so far: equal for equal seeds."""
        return self._digest.hexdigest()


def format_time(moment: int) -> str:
    """Virtual time as hours, minutes and seconds with microseconds."""
    seconds, microseconds = divmod(moment, SECOND)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}.{microseconds // 1000:06}"
