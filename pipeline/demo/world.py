"""`write_world`: a scripted week over some groups, as a data directory, and the truth about it as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pipeline.demo.directory import Directory
from pipeline.virtual import Client, TrueEpisode, World

START_MS: Final = 1_760_918_400_000  # a Monday, 00:00 UTC
DAY_MS: Final = 86_400_000
MINUTE_MS: Final = 60_000
PARTITIONS: Final = 4
TRUTH: Final = "truth.json"


def write_world(directory: str | Path, seed: int = 0, days: float = 7, notes: bool = True) -> dict[str, Any]:
    """The truth, which is in `truth.json` beside the directory's logs as well. `notes` False: what a real Kafka would leave."""
    recorder = Directory(str(directory), PARTITIONS, START_MS, ours=notes, seed=seed)
    world = World(START_MS, PARTITIONS, recorder=recorder, seed=seed)
    recorder.add_topic("orders", 12)
    pods = [
        world.client("checkout", f"checkout-{number}", topics={"orders": 12}, host=f"/10.0.0.{number + 10}", session_ms=10_000) for number in range(6)
    ]
    for pod in pods:
        pod.start()
        world.at(world.now + MINUTE_MS, _commit, pod)
    for day in range(int(days)):
        for number, pod in enumerate(pods):
            world.at(START_MS + day * DAY_MS + 14 * 3_600_000 + number * 45_000, pod.restart, 20_000)
    world.run_until(START_MS + int(days * DAY_MS))
    recorder.close()
    truth = truth_of(world)
    Path(directory, TRUTH).write_text(json.dumps(truth, indent=1))
    return truth


def _commit(pod: Client) -> None:
    now = pod.world.now
    if pod.working:
        offsets: dict[str, list[tuple[int, int]]] = {}
        for topic, partition in pod.owned:
            offsets.setdefault(topic, []).append((partition, (now - START_MS) // 1000))
        pod.commit(offsets)
    pod.world.at(now + MINUTE_MS, _commit, pod)


def truth_of(world: World) -> dict[str, Any]:
    groups = {name: {"episodes": [_episode(one) for one in world.episodes(name)]} for name in sorted(world.clients)}
    restarts = [asdict(one) | {"gap_ms": one.gap_ms} for one in world.restarts]
    return {"start_ms": world.start_ms, "end_ms": world.now, "groups": groups, "restarts": restarts}


def _episode(one: TrueEpisode) -> dict[str, Any]:
    return asdict(one) | {
        "rounds": one.rounds,
        "changes": [change._asdict() for change in one.changes],
        "restarts_alone": one.restarts_alone,
    }
