"""Sequences with a kill of the server in the middle: `make oracle ARGS="--worlds killed"`.

All sequences of a batch are played at once. When all have reached their `kill`, the server is killed with SIGKILL and started again
over its data, and all continue. The groups are restored from the log.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random

from tests.kafka_process import CLUSTER_ID, LOGGING, PROPERTIES, STOP_SECONDS, await_listening, free_ports
from tests.oracle import JAVA, kafka_jars, run_java
from tests.running import Broker
from tests.sequences.choosing import SequenceBuilder
from tests.sequences.comparing import first_difference, occurring, real_difference
from tests.sequences.coverage import Coverage
from tests.sequences.hunting import FoundDifference, Say, agreed
from tests.sequences.player import TICK_S, Choose, Player, following
from tests.sequences.recipes import MistakeCounts
from tests.sequences.steps import Step
from tests.sequences.traces import Trace
from tests.sequences.wire import Versions
from tests.sequences.worlds import EVERYWHERE, WORLDS, prepare

KAFKA_PLAYS = 3
OURS_PLAYS = 2
BATCH = 120
CONFIRMED_MAX = 12
LONG = (61_640,)  # longer than the start of a server, so that no timeout ends during it
WORLD = "plain"


class KillableKafka:
    """A Kafka over one directory, that can be killed and restarted on its port."""

    def __init__(self, folder: Path) -> None:
        kafka_jars()
        self.folder = folder
        self.port, controller = free_ports(2)
        more = "".join(f"{name}={value}\n" for name, value in (EVERYWHERE | WORLDS[WORLD]).items())
        (folder / "server.properties").write_text(PROPERTIES.format(node=1, port=self.port, controller=controller, folder=folder) + more)
        (folder / "log4j2.properties").write_text(LOGGING)
        run_java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", folder / "server.properties", cwd=folder)
        self.start()
        prepare(self.port)

    def start(self) -> None:
        command = [*JAVA, "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}", "-cp", f"{kafka_jars()}/*"]
        with (self.folder / "output").open("a+b") as output:
            self.process = subprocess.Popen(
                [*command, "kafka.Kafka", "server.properties"], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        await_listening(self.process, self.port, self.folder / "output")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def restart(self) -> None:
        self.kill()
        self.start()
        prepare(self.port, topics=False)


class KillableBroker:
    """This broker over one directory, that can be killed and restarted on its port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self.start()
        prepare(self.port)

    def start(self) -> None:
        flags = [flag for name, value in (EVERYWHERE | WORLDS[WORLD]).items() for flag in ("--set", f"{name}={value}")]
        data = ("--listen", f"127.0.0.1:{self.port}", "--data", str(self.folder / "data"), "--set", "log.level=warning")
        self.broker = Broker(*data, *flags)

    def kill(self) -> None:
        self.broker.kill()

    def restart(self) -> None:
        self.kill()
        self.start()
        prepare(self.port, topics=False)


Killable = KillableKafka | KillableBroker


@contextmanager
def killable(kind: type[Killable]) -> Iterator[Killable]:
    with tempfile.TemporaryDirectory(prefix="tenure-killable-", ignore_cleanup_errors=True) as folder:
        server = kind(Path(folder))
        try:
            yield server
        finally:
            server.kill()


class KillBarrier:
    """A server and its players. The server is killed when all remaining players wait for it."""

    def __init__(self, server: Killable, players: int) -> None:
        self.server = server
        self.players = players
        self.waiting = 0
        self.back = asyncio.Event()

    async def wait_for_restart(self) -> None:
        self.waiting += 1
        await self._kill_if_all_wait()
        await self.back.wait()

    async def leave(self) -> None:
        self.players -= 1
        await self._kill_if_all_wait()

    async def _kill_if_all_wait(self) -> None:
        if self.waiting and self.waiting == self.players and not self.back.is_set():
            await asyncio.to_thread(self.server.restart)
            self.back.set()


class KilledHalfway:
    """A sequence under construction, with a kill after its first part."""

    def __init__(self, seed: str, versions: Versions, recipes: MistakeCounts) -> None:
        self.builder = SequenceBuilder(Random(seed), versions, recipes, 5, LONG, LONG)
        self.killed = False

    def __call__(self, player: Player) -> Step | None:
        step = self.builder(player)
        if step is None and not self.killed:
            self.killed = True
            self.builder.ticks_left = 3
            return {"do": "kill"}
        return step


class KillableServerPair:
    def __init__(self, kafka: Killable, opponent: Killable, seed: str) -> None:
        self.kafka = kafka
        self.other = opponent
        self.seed = seed
        self._numbers = count()

    async def plays(self, server: Killable, choices: list[Choose]) -> list[Trace]:
        barrier = KillBarrier(server, len(choices))
        return list(await asyncio.gather(*[self._play(barrier, choose, place * 0.618 % 1 * TICK_S) for place, choose in enumerate(choices)]))

    async def _play(self, barrier: KillBarrier, choose: Choose, pause: float) -> Trace:
        async def wait_for_restart() -> None:
            await barrier.wait_for_restart()
            await asyncio.sleep(pause)

        await asyncio.sleep(pause)
        player = Player(barrier.server.port, f"q{self.seed}-{next(self._numbers)}.", wait_for_restart=wait_for_restart)
        try:
            return await player.play(choose)
        finally:
            if not player.killed:
                await barrier.leave()

    async def find(self, steps: list[Step]) -> FoundDifference | None:
        return (await self.find_all([steps]))[0]

    async def find_all(self, candidates: list[list[Step]]) -> list[FoundDifference | None]:
        """Play each sequence several times, in two batches."""
        kafkas = await self.plays(self.kafka, [following(steps) for steps in candidates for _ in range(KAFKA_PLAYS)])
        ours = await self.plays(self.other, [following(steps) for steps in candidates for _ in range(OURS_PLAYS)])
        return [
            find_of(steps, ours[number * OURS_PLAYS :][:OURS_PLAYS], kafkas[number * KAFKA_PLAYS :][:KAFKA_PLAYS])
            for number, steps in enumerate(candidates)
        ]


def find_of(steps: list[Step], ours: list[Trace], kafkas: list[Trace]) -> FoundDifference | None:
    difference = real_difference(ours, kafkas)
    return difference and FoundDifference(steps, difference, ours[0], max(kafkas, key=lambda trace: agreed(ours[0], trace)))


async def hunt_killing(servers: KillableServerPair, versions: Versions, seconds: float, say: Say) -> tuple[Coverage, dict[str, FoundDifference], Counter[str]]:
    coverage, recipes, finds, counts = Coverage(), MistakeCounts(), dict[str, FoundDifference](), Counter[str]()
    until = time.monotonic() + seconds
    numbers = count()
    while time.monotonic() < until:
        traces = await servers.plays(servers.kafka, [KilledHalfway(f"{servers.seed}-{next(numbers)}", versions, recipes) for _ in range(BATCH)])
        kafkas = [trace for trace in traces if not trace.late]
        ours = await servers.plays(servers.other, [following(trace.steps) for trace in kafkas])
        differing = []
        for our_trace, theirs in zip(ours, kafkas, strict=True):
            coverage.add(theirs)
            counts.update(occurring(our_trace, theirs))
            if theirs.tainted:
                counts[theirs.tainted[1]] += 1
            if (difference := first_difference(our_trace, theirs)) and difference.signature not in finds:
                differing.append(theirs.steps)
        counts["compared"] += len(kafkas)
        counts["differed at first"] += len(differing)
        if differing:
            for find in await servers.find_all(differing[:CONFIRMED_MAX]):
                if find and find.difference.signature not in finds:
                    finds[find.difference.signature] = find
                    say(f"difference: step {find.difference.step}: {find.difference.signature}")
    return coverage, finds, counts
