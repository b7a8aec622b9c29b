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
from tests.sequences.hunting import SEQUENCES_AT_ONCE, FoundDifference, Hunt, ServerPair
from tests.sequences.killing import KillableBroker, KillableKafka, KillableServerPair, hunt_killing, killable
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
    for command in (parser, recording := words.add_parser("record")):
        command.add_argument("--seed", default="1")
        command.add_argument("--at-once", type=int, default=SEQUENCES_AT_ONCE, help="sequences at one time")
        command.add_argument("--ticks", type=int, default=9, help="how long a sequence may be")
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
    options = parser.parse_args()
    try:
        return {None: hunt, "record": make_recording, "replay": play_recording}[options.word](options)
    except pytest.skip.Exception as reason:
        say(f"oracle: {reason}")
        return 2


def hunt(options: argparse.Namespace) -> int:
    return max(hunt_in(world, options) for world in options.worlds)


def hunt_in(world: str, options: argparse.Namespace) -> int:
    if world == KILLED:
        return hunt_where_servers_are_killed(options)
    with ExitStack() as stack:
        kafka_port = stack.enter_context(kafka_in(world))
        other_port = kafka_port if options.against == "kafka" else stack.enter_context(ours_in(world))
        versions = served_by(kafka_port, other_port)
        if not serves_groups(versions):
            say("oracle: this broker does not serve groups")
            return 2
        servers = ServerPair(kafka_port, other_port, f"{options.seed}{world[0]}", describe_groups=KEYS["describe"] in versions)
        hunting = Hunt(servers, versions, say, options.at_once, options.ticks, REBALANCES_IN.get(world, REBALANCES))
        if options.tell:
            hunting.on_difference = tell
        begin = time.monotonic()
        asyncio.run(hunting.run(options.minutes * 60 / len(options.worlds), options.count))
        say(f"\n=== {world}, seed {options.seed}, {time.monotonic() - begin:.0f} s")
        for line in hunting.coverage.lines(full=world == "full"):
            say(line)
        say(f"plays: {dict(hunting.counts)}; expected differences: {dict(hunting.deviations)}; differences: {len(hunting.finds)}")
        for find in hunting.finds.values():
            settle(servers, find, versions, world, options)
        return int(bool(hunting.finds))


def tell(number: int, difference: Difference, kafkas: Trace) -> None:
    say(f"once: sequence {number}, step {difference.step} {json.dumps(kafkas.steps[difference.step])}")
    say(f"      {difference.place}: ours {json.dumps(difference.ours)}, Kafka {json.dumps(difference.kafka_value)}")


def hunt_where_servers_are_killed(options: argparse.Namespace) -> int:
    with killable(KillableKafka) as first, killable(KillableKafka if options.against == "kafka" else KillableBroker) as second:
        versions = served_by(first.port, second.port)
        servers = KillableServerPair(first, second, f"{options.seed}k")
        coverage, finds, counts = asyncio.run(hunt_killing(servers, versions, options.minutes * 60 / len(options.worlds), say))
        say(f"\n=== {KILLED}, seed {options.seed}")
        for line in coverage.lines(full=False)[:-1]:
            say(line)
        say(f"plays: {dict(counts)}; differences: {len(finds)}")
        for find in finds.values():
            settle(servers, find, versions, KILLED, options)
        return int(bool(finds))


def settle(servers: ServerPair | KillableServerPair, find: FoundDifference, versions: Versions, world: str, options: argparse.Namespace) -> None:
    """Print the difference; without `--long`, also shrink its sequence, which is slow, and print the result."""
    show(find, world)
    if not options.long:
        show(asyncio.run(shrunk(servers, find, versions, say)), world)


def show(find: FoundDifference, world: str) -> None:
    FINDS.mkdir(parents=True, exist_ok=True)
    name = "".join(letter if letter.isalnum() else "-" for letter in find.difference.signature)
    file = FINDS / f"{world}-{name}.jsonl"
    closest = Trace(find.steps, find.kafka_trace.answers[: len(find.steps)], find.kafka_trace.group_states[: len(find.steps)])
    write(file, world, [closest])
    say(f"\n--- {world}: {find.difference.signature}")
    for number, step in enumerate(find.steps):
        say(f"{number:3} {json.dumps(step)}")
        for server, trace in (("ours ", find.ours), ("Kafka", find.kafka_trace)):
            answers = trace.answers[number] if number < len(trace.answers) else {}
            say(f"      {server} {json.dumps(answers)}")
    say(f"  differs at step {find.difference.step}, {find.difference.place}:")
    say(f"      ours  {json.dumps(find.difference.ours)}\n      Kafka {json.dumps(find.difference.kafka_value)}\n  {file}")


def make_recording(options: argparse.Namespace) -> int:
    with kafka_in(options.world) as port:
        traces = asyncio.run(record(port, options.seed, options.count, options.at_once, options.ticks, say, REBALANCES_IN.get(options.world, REBALANCES)))
    write(options.out, options.world, traces)
    say(f"{options.out}: {len(traces)} sequences, {sum(len(trace.steps) for trace in traces)} steps, {options.out.stat().st_size} bytes")
    return 0


def play_recording(options: argparse.Namespace) -> int:
    world, recorded = read(options.file)
    with ours_in(world) as port:
        differences = asyncio.run(replay(port, world, recorded))
    for number, difference in differences:
        say(f"{options.file.name}:{number + 2} step {difference.step} {difference.place}: ours {json.dumps(difference.ours)}, Kafka {json.dumps(difference.kafka_value)}")
    say(f"{len(recorded)} sequences, {len(differences)} differ")
    return int(bool(differences))


sys.exit(main())
