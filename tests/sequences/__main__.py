"""`make oracle`: random sequences to this broker and to Apache Kafka, until they differ.

    python -m tests.sequences [--seed 1] [--minutes 5] [--count N] [--ticks 9] [--worlds plain delayed full killed] [--against kafka]
    python -m tests.sequences record --count 60 --world plain --out FILE
    python -m tests.sequences replay FILE                     recorded sequences, to this broker

A difference is shrunk, printed, and written to build/oracle/ in the format of tests/sequences/recorded/.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.running import ROOT
from tests.sequences.choosing import REBALANCES
from tests.sequences.comparing import Difference
from tests.sequences.hunting import LANES, Arena, Find, Hunt
from tests.sequences.killing import MortalArena, MortalBroker, MortalKafka, hunt_killing, mortals
from tests.sequences.recording import read, record, replay, write
from tests.sequences.shrinking import shrunk
from tests.sequences.steps import KEYS
from tests.sequences.traces import Trace
from tests.sequences.wire import Versions
from tests.sequences.worlds import REBALANCES_IN, WORLDS, kafka_in, ours_in, served_by, serves_groups

KILLED = "killed"
FINDS = ROOT / "build" / "oracle"


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="oracle", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = parser.add_subparsers(dest="word")
    for one in (parser, recording := words.add_parser("record")):
        one.add_argument("--seed", default="1")
        one.add_argument("--lanes", type=int, default=LANES, help="sequences at one time")
        one.add_argument("--ticks", type=int, default=9, help="how long a sequence may be")
    parser.add_argument("--count", type=int, default=10**9, help="sequences per world")
    parser.add_argument("--minutes", type=float, default=5, help="for all worlds together, without shrinking")
    parser.add_argument("--worlds", nargs="+", choices=[*sorted(WORLDS), KILLED], default=[*WORLDS, KILLED])
    parser.add_argument("--against", choices=("ours", "kafka"), default="ours", help="kafka: against itself, to try the comparison")
    parser.add_argument("--tell", action="store_true", help="also what differed once and not again")
    parser.add_argument("--long", action="store_true", help="leave finds as long as they are")
    recording.add_argument("--count", type=int, default=60)
    recording.add_argument("--world", choices=sorted(WORLDS), default="plain")
    recording.add_argument("--out", type=Path, required=True)
    words.add_parser("replay").add_argument("file", type=Path)
    given = parser.parse_args()
    try:
        return {None: hunt, "record": make_recording, "replay": play_recording}[given.word](given)
    except pytest.skip.Exception as reason:
        say(f"oracle: {reason}")
        return 2


def hunt(given: argparse.Namespace) -> int:
    return max(hunt_in(world, given) for world in given.worlds)


def hunt_in(world: str, given: argparse.Namespace) -> int:
    if world == KILLED:
        return hunt_where_servers_die(given)
    with ExitStack() as servers:
        kafka_port = servers.enter_context(kafka_in(world))
        other_port = kafka_port if given.against == "kafka" else servers.enter_context(ours_in(world))
        versions = served_by(kafka_port, other_port)
        if not serves_groups(versions):
            say("oracle: this broker does not serve groups")
            return 2
        arena = Arena(kafka_port, other_port, f"{given.seed}{world[0]}", looking=KEYS["describe"] in versions)
        chase = Hunt(arena, versions, say, given.lanes, given.ticks, REBALANCES_IN.get(world, REBALANCES))
        if given.tell:
            chase.on_difference = tell
        begin = time.monotonic()
        asyncio.run(chase.run(given.minutes * 60 / len(given.worlds), given.count))
        say(f"\n=== {world}, seed {given.seed}, {time.monotonic() - begin:.0f} s")
        for line in chase.coverage.lines(full=world == "full"):
            say(line)
        say(f"plays: {dict(chase.counts)}; meant: {dict(chase.deviations)}; differences: {len(chase.finds)}")
        for found in chase.finds.values():
            settle(arena, found, versions, world, given)
        return int(bool(chase.finds))


def tell(number: int, one: Difference, kafkas: Trace) -> None:
    say(f"once: sequence {number}, step {one.step} {json.dumps(kafkas.steps[one.step])}")
    say(f"      {one.place}: ours {json.dumps(one.ours)}, Kafka {json.dumps(one.kafkas)}")


def hunt_where_servers_die(given: argparse.Namespace) -> int:
    with mortals(MortalKafka) as first, mortals(MortalKafka if given.against == "kafka" else MortalBroker) as second:
        versions = served_by(first.port, second.port)
        arena = MortalArena(first, second, f"{given.seed}k")
        coverage, finds, counts = asyncio.run(hunt_killing(arena, versions, given.minutes * 60 / len(given.worlds), say))
        say(f"\n=== {KILLED}, seed {given.seed}")
        for line in coverage.lines(full=False)[:-1]:
            say(line)
        say(f"plays: {dict(counts)}; differences: {len(finds)}")
        for found in finds.values():
            settle(arena, found, versions, KILLED, given)
        return int(bool(finds))


def settle(arena: Arena | MortalArena, found: Find, versions: Versions, world: str, given: argparse.Namespace) -> None:
    """Print the difference before it is shrunk, which takes a while, and after it."""
    show(found, world)
    if not given.long:
        show(asyncio.run(shrunk(arena, found, versions, say)), world)


def show(found: Find, world: str) -> None:
    FINDS.mkdir(parents=True, exist_ok=True)
    name = "".join(letter if letter.isalnum() else "-" for letter in found.difference.signature)
    file = FINDS / f"{world}-{name}.jsonl"
    closest = Trace(found.steps, found.kafkas.answers[: len(found.steps)], found.kafkas.looks[: len(found.steps)])
    write(file, world, [closest])
    say(f"\n--- {world}: {found.difference.signature}")
    for number, step in enumerate(found.steps):
        say(f"{number:3} {json.dumps(step)}")
        for who, trace in (("ours ", found.ours), ("Kafka", found.kafkas)):
            came = trace.answers[number] if number < len(trace.answers) else {}
            say(f"      {who} {json.dumps(came)}")
    say(f"  differs at step {found.difference.step}, {found.difference.place}:")
    say(f"      ours  {json.dumps(found.difference.ours)}\n      Kafka {json.dumps(found.difference.kafkas)}\n  {file}")


def make_recording(given: argparse.Namespace) -> int:
    with kafka_in(given.world) as port:
        traces = asyncio.run(record(port, given.seed, given.count, given.lanes, given.ticks, say, REBALANCES_IN.get(given.world, REBALANCES)))
    write(given.out, given.world, traces)
    say(f"{given.out}: {len(traces)} sequences, {sum(len(trace.steps) for trace in traces)} steps, {given.out.stat().st_size} bytes")
    return 0


def play_recording(given: argparse.Namespace) -> int:
    world, recorded = read(given.file)
    with ours_in(world) as port:
        found = asyncio.run(replay(port, world, recorded))
    for number, one in found:
        say(f"{given.file.name}:{number + 2} step {one.step} {one.place}: ours {json.dumps(one.ours)}, Kafka {json.dumps(one.kafkas)}")
    say(f"{len(recorded)} sequences, {len(found)} differ")
    return int(bool(found))


sys.exit(main())
