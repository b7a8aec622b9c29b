"""The analysis of logs from virtual worlds, and random histories in which processes are restarted, added, or removed without return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from pipeline.advice import AdviceTables, advise
from pipeline.restarts import Restarts
from pipeline.rows import Episode, GroupTables
from pipeline.timeouts import Options
from pipeline.virtual import Client, MemoryRecorder, World
from pipeline.whatif import Script
from tests.pipeline.playing import CLUSTER, GROUP, fold
from tests.pipeline.scenarios import BEGIN_MS, HOUR_MS, pod

MINUTE_MS = 60_000


def folded(world: World, *, notes: bool = True, until_ms: int | None = None) -> GroupTables:
    memory = world.recorder
    assert isinstance(memory, MemoryRecorder)
    now = world.now if until_ms is None else until_ms
    notes_until_now = [note_record for note_record in memory.note_records() if note_record.at_ms <= now] if notes else []
    return fold(notes_until_now, [group_record for group_record in memory.group_records(GROUP) if group_record.at_ms <= now], now_ms=now)


def advised(world: World, *, notes: bool = True, until_ms: int | None = None, options: Options | None = None) -> AdviceTables:
    now = world.now if until_ms is None else until_ms
    return advise(CLUSTER, GROUP, folded(world, notes=notes, until_ms=until_ms), now, options)


def script_of(world: World) -> tuple[Restarts, Script, list[Episode]]:
    restarts = Restarts(folded(world), world.now)
    episodes = advised(world).episodes
    return restarts, Script(GROUP, restarts, episodes, 3_000), episodes


def counted(episodes: Sequence[Episode], verdict: str) -> int:
    return sum(episode.avoidable == verdict for episode in episodes)


def played(script: Callable[[World], None], more_ms: int = 2 * HOUR_MS) -> World:
    world = World(BEGIN_MS)
    script(world)
    world.run(more_ms)
    return world


def random_restarts(seed: int, apart_ms: Sequence[int], steps: int = 20, static: bool = False) -> Callable[[World], None]:
    """A script of random steps. `apart_ms`: possible times between two steps. No absence is longer than the rebalance timeout."""

    def script(world: World) -> None:
        random = Random(seed)
        running: list[Client] = [pod(world, number, static) for number in range(5)]
        world.run(10 * MINUTE_MS)
        for number in range(steps):
            settled = [consumer for consumer in running if consumer.settled]
            client = random.choice(settled) if settled else None
            action = random.randrange(8)
            if client is None or action == 0:
                running.append(pod(world, 100 + number, static))
            elif action == 1 and len(settled) > 2:
                running.remove(client)
                random.choice([client.stop, client.crash])()
            elif action == 2:
                client.change_topics({"t": 12, f"u{number}": 1})
            else:
                client.restart(random.choice([1_000, 8_000, 25_000, 70_000, 130_000]), graceful=random.random() < 0.6)
            world.run(random.choice(apart_ms))

    return script
