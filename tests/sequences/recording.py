"""Sequences with Kafka's replies, in files: the first line has the settings of the server, each other line is one sequence.

Only reproducible results are recorded: each sequence is played several times, and cut before the first step at which two plays differ.
"""

from __future__ import annotations

import asyncio
import json
from itertools import count
from pathlib import Path
from random import Random

from tests.sequences.choosing import SequenceBuilder
from tests.sequences.comparing import Difference, differences, first_difference
from tests.sequences.coverage import Coverage
from tests.sequences.hunting import Say, ServerPair
from tests.sequences.player import TICK_S, following
from tests.sequences.recipes import MistakeCounts
from tests.sequences.traces import Trace
from tests.sequences.worlds import served_by

PLAYS = 5
STEPS_MIN = 6
# The time scales of the replays of a difference. The delayed world is not scaled, as the server's initial delay is fixed.
REPLAYS = (1.0, 1.0, 1.5, 2.0, 2.5)
REPLAYS_IN = {"delayed": (1.0,) * 6}


def write(file: Path, world: str, traces: list[Trace]) -> None:
    lines: list[object] = [{"world": world}]
    lines += [{"steps": trace.steps, "trace": trace.as_json()} for trace in traces]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line, separators=(",", ":"), ensure_ascii=True) + "\n" for line in lines))


def read(file: Path) -> tuple[str, list[Trace]]:
    first, *lines = [json.loads(line) for line in file.read_text().splitlines()]
    return first["world"], [Trace.from_json(line["steps"], line["trace"]) for line in lines]


async def record(port: int, seed: str, wanted_count: int, at_once: int, ticks: int, say: Say, rebalances: tuple[int, ...]) -> list[Trace]:
    """Record up to `wanted_count` sequences: short ones are preferred, and those with rare replies."""
    servers = ServerPair(port, port, f"r{seed}")
    versions, recipes, numbers = await asyncio.to_thread(served_by, port), MistakeCounts(), count()
    kept: list[Trace] = []

    async def play_in_turn() -> None:
        await asyncio.sleep(Random().random() * TICK_S)
        while (number := next(numbers)) < 4 * wanted_count:
            trace = await servers.play(port, SequenceBuilder(Random(f"{seed}-{number}"), versions, recipes, ticks, rebalances))
            if settled := await reproducible_part(servers, port, trace):
                kept.append(settled)

    await asyncio.gather(*[play_in_turn() for _ in range(at_once)])
    say(f"{len(kept)} of {4 * wanted_count} sequences are certain")
    return chosen_for_coverage(kept, wanted_count)


async def reproducible_part(servers: ServerPair, port: int, trace: Trace) -> Trace | None:
    """The beginning of the sequence that has the same result in every play; None: it is too short, or a play was late."""
    if trace.late:
        return None
    replays = await asyncio.gather(*[servers.play_until_in_time(port, trace.steps) for _ in range(PLAYS)])
    same = min((difference.step for repeated in replays for difference in differences(repeated, trace)), default=len(trace.steps))
    if same < STEPS_MIN or any(repeated.late for repeated in replays):
        return None
    return Trace(trace.steps[:same], trace.answers[:same], trace.group_states[:same])


def chosen_for_coverage(traces: list[Trace], wanted_count: int) -> list[Trace]:
    unused = list(traces)
    chosen: list[Trace] = []
    covered = Coverage()
    while unused and len(chosen) < wanted_count:

        def news(trace: Trace) -> float:
            coverage = Coverage()
            coverage.add(trace)
            return sum(1 / (1 + covered.seen[key]) for key in coverage.seen) / (8 + len(trace.steps))

        best = max(unused, key=news)
        unused.remove(best)
        chosen.append(best)
        covered.add(best)
    return chosen


async def replay(port: int, world: str, recorded: list[Trace], seed: str = "p") -> list[tuple[int, Difference]]:
    """Play all sequences at once, and replay those that differ: a busy machine causes a difference once, a bug always."""
    unsettled = list(range(len(recorded)))
    differing: list[tuple[int, Difference]] = []
    for attempt, scale in enumerate(REPLAYS_IN.get(world, REPLAYS)):
        servers = ServerPair(port, port, f"{seed}{attempt}", scale)
        traces = await asyncio.gather(*[play_staggered(servers, port, recorded[number], place) for place, number in enumerate(unsettled)])
        compared = [(number, first_difference(trace, recorded[number])) for number, trace in zip(unsettled, traces, strict=True)]
        differing = [(number, difference) for number, difference in compared if difference]
        late = any(trace.late for trace in traces)
        unsettled = [number for number, _ in differing]
        if not unsettled or (attempt >= 2 and not late):
            break
    return differing


async def play_staggered(servers: ServerPair, port: int, recorded: Trace, place: int) -> Trace:
    await asyncio.sleep(place * 0.618 % 1 * TICK_S)  # so that the ticks of the players are spread evenly
    return await servers.play(port, following(recorded.steps))
