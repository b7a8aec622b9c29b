"""Play many sequences at once: each is generated while it is played to Kafka, played again to the other server, and compared.

A difference counts if it occurs in all of several more plays on both servers, so that it is neither chance nor a busy machine.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from random import Random

from tests.sequences.choosing import REBALANCES, SequenceBuilder
from tests.sequences.comparing import Difference, first_difference, occurring, real_difference
from tests.sequences.coverage import Coverage
from tests.sequences.player import TICK_S, Choose, Player, following
from tests.sequences.recipes import MistakeCounts
from tests.sequences.steps import Step
from tests.sequences.traces import Trace
from tests.sequences.wire import Versions

SEQUENCES_AT_ONCE = 60
KAFKA_PLAYS = 5  # free choices have few outcomes, so among this many plays one mostly has the same outcome as ours
OURS_PLAYS = 3
PLAYS_UNTIL_IN_TIME_MAX = 3
FINDS_MAX = 12
Say = Callable[[str], None]


class FoundDifference:
    """A sequence whose results differ in every play."""

    __slots__ = ("difference", "kafka_trace", "ours", "steps")

    def __init__(self, steps: list[Step], difference: Difference, ours: Trace, kafkas: Trace) -> None:
        self.steps = steps
        self.difference = difference
        self.ours = ours
        self.kafka_trace = kafkas


class ServerPair:
    """The connections to Kafka and the other server, with a new name for each play."""

    def __init__(self, kafka_port: int, other_port: int, seed: str, scale: float = 1.0, describe_groups: bool = True) -> None:
        self.kafka_port = kafka_port
        self.other_port = other_port
        self.seed = seed
        self.scale = scale
        self.describe_groups = describe_groups  # whether the other server supports DescribeGroups
        self._numbers = count()

    async def play(self, port: int, choose: Choose, scale: float | None = None) -> Trace:
        player = Player(port, f"q{self.seed}-{next(self._numbers)}.", scale or self.scale, self.describe_groups or port == self.kafka_port)
        return await player.play(choose)

    async def play_until_in_time(self, port: int, steps: list[Step]) -> Trace:
        """Play up to PLAYS_UNTIL_IN_TIME_MAX times, each time more slowly, until a play is not late; return the last play."""
        for attempt in range(PLAYS_UNTIL_IN_TIME_MAX):
            trace = await self.play(port, following(steps), self.scale * (1 + attempt / 2))
            if not trace.late:
                break
        return trace

    async def find(self, steps: list[Step], ours: int = OURS_PLAYS, kafkas: int = KAFKA_PLAYS) -> FoundDifference | None:
        """A difference, if every play of these steps on our server differs from every play on Kafka; None: not so, or a play was late."""
        ports = [self.kafka_port] * kafkas + [self.other_port] * ours
        traces = await asyncio.gather(*[self.play_until_in_time(port, steps) for port in ports])
        difference = real_difference(traces[kafkas:], traces[:kafkas])
        if difference is None or any(trace.late for trace in traces):
            return None
        closest = max(traces[:kafkas], key=lambda trace: agreed(traces[kafkas], trace))
        return FoundDifference(steps, difference, traces[kafkas], closest)

    async def find_all(self, candidates: list[list[Step]]) -> list[FoundDifference | None]:
        return list(await asyncio.gather(*[self.find(steps, ours=2, kafkas=3) for steps in candidates]))


def agreed(ours: Trace, kafkas: Trace) -> int:
    difference = first_difference(ours, kafkas)
    return difference.step if difference else len(ours.steps)


class Hunt:
    """A run: until the time is over or enough sequences were played."""

    def __init__(
        self, servers: ServerPair, versions: Versions, say: Say, at_once: int = SEQUENCES_AT_ONCE, ticks: int = 9, rebalances: tuple[int, ...] = REBALANCES
    ) -> None:
        self.rebalances = rebalances
        self.servers = servers
        self.versions = versions
        self.say = say
        self.at_once = at_once
        self.ticks = ticks
        self.coverage = Coverage()
        self.recipes = MistakeCounts()
        self.finds: dict[str, FoundDifference] = {}
        self.counts: Counter[str] = Counter()
        self.deviations: Counter[str] = Counter()
        self.on_difference: Callable[[int, Difference, Trace], None] | None = None
        self._numbers = count()

    async def run(self, seconds: float, sequences: int) -> None:
        until = time.monotonic() + seconds
        chance = Random(self.servers.seed)
        await asyncio.gather(*[self._play_in_turn(until, sequences, chance.random() * TICK_S) for _ in range(self.at_once)])

    async def _play_in_turn(self, until: float, sequences: int, pause: float) -> None:
        await asyncio.sleep(pause)  # so that the ticks of the players do not begin together
        while time.monotonic() < until and (number := next(self._numbers)) < sequences:
            await self._sequence(number)

    async def _sequence(self, number: int) -> None:
        builder = SequenceBuilder(Random(f"{self.servers.seed}-{number}"), self.versions, self.recipes, self.ticks, self.rebalances)
        kafkas = await self.servers.play(self.servers.kafka_port, builder)
        if kafkas.late:
            self.counts["late at Kafka"] += 1
            return
        self.coverage.add(kafkas)
        ours = await self.servers.play(self.servers.other_port, following(kafkas.steps))
        self.deviations.update(occurring(ours, kafkas))
        if kafkas.tainted:
            self.deviations[kafkas.tainted[1]] += 1
        difference = first_difference(ours, kafkas)
        self.counts["compared"] += 1
        if difference is None:
            return
        self.counts["differed at first"] += 1
        if self.on_difference is not None:
            self.on_difference(number, difference, kafkas)
        if difference.signature in self.finds or len(self.finds) >= FINDS_MAX:
            self.counts["most likely known"] += 1
            return
        steps = kafkas.steps[: difference.step + 1]
        find = await self.servers.find(steps)
        if find is None:
            self.counts["did not differ again"] += 1
            return
        if find.difference.signature not in self.finds:
            self.finds[find.difference.signature] = find
            self.say(f"difference: sequence {number}, step {find.difference.step}: {find.difference.signature}")
