"""Programs of a real Kafka: `record FILE --count 100 --seed s` plays random ones, compares the answers with the core's, and writes those that
are alike; `compare` only compares. With `--mixed`, clients of both protocols share each group. What differs in each of some plays is printed: it is a mistake of ours, or a known deviation, and no recording.
Needs Java; KAFKA_JARS names a folder with the jars of another release.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

from tests.coordinator.consumer.generating import Generator, generate
from tests.coordinator.consumer.kafka_player import SETTINGS, KafkaPlayer
from tests.coordinator.consumer.mixing import MixedGenerator
from tests.coordinator.consumer.programs import Answer
from tests.coordinator.consumer.recorded import Program, first_difference, write
from tests.kafka_process import kafka
from tests.running import Client
from tests.sequences.worlds import await_coordinator

AT_ONCE = 10
REPLAYS = 3


def warm_up(port: int) -> None:
    """Until all partitions of __consumer_offsets are served."""
    with Client(port) as client:
        for number in range(20):
            await_coordinator(client, f"warm-{number}")


def record(port: int, options: argparse.Namespace, number: int) -> Program:
    seed = options.seed
    random = Random(f"{seed}-{number}")
    player = KafkaPlayer(port, f"g-{seed}-{number}")
    kind = MixedGenerator if options.mixed else Generator
    generator = kind(random, f"p{seed}{number}", regexes=number % 4 == 0, waits=number % 5 == 1)
    try:
        program = generate(generator, player, options.length)
        player.drop_all()
    finally:
        player.close()
    program = program._replace(ids=player.ids, settings=options.settings)
    for attempt in range(REPLAYS):
        if first_difference(program) is None:
            break
        program = replay(port, program, f"g-{seed}-{number}-{attempt}")
    return program


def replay(port: int, program: Program, group: str) -> Program:
    """Play the same steps again: a busy machine causes a difference once, a rule always."""
    player = KafkaPlayer(port, group)
    moments: list[int] = []
    answers: list[Answer] = []
    steps = [{name: value for name, value in step.items() if name != "fresh"} for step in program.steps]
    try:
        for step in steps:
            moments.append(player.moment)
            answers.append(player.play(step))
        player.drop_all()
    finally:
        player.close()
    return Program(player.ids, steps, moments, answers, program.settings)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("do", choices=("record", "compare"))
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--length", type=int, default=25)
    parser.add_argument("--seed", default="s")
    parser.add_argument("--mixed", action="store_true", help="programs in which clients of both protocols share the group")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of Kafka, and of the core if it has it")
    parser.add_argument("--port", type=int, help="of a Kafka that runs already")
    options = parser.parse_args()
    options.settings = dict(setting.split("=", 1) for setting in options.set)
    if options.port:
        play_all(options.port, options)
    else:
        settings = {**SETTINGS, **options.settings}
        with kafka(None, **{name.replace(".", "_"): value for name, value in settings.items()}) as port:
            play_all(port, options)


def play_all(port: int, options: argparse.Namespace) -> None:
    warm_up(port)
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        programs = list(threads.map(lambda number: record(port, options, number), range(options.count)))
    print(f"{len(programs)} programs in {time.monotonic() - began:.0f} s")
    alike: list[Program] = []
    for number, program in enumerate(programs):
        difference = first_difference(program)
        if difference is None:
            alike.append(program)
        else:
            print(f"program {number}: {difference}")
    different = len(programs) - len(alike)
    print(f"{different} of {len(programs)} differ, {sum(len(program.steps) for program in programs)} steps")
    if options.do == "record":
        write(options.file, alike)
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
