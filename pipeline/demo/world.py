"""`write_world`: a scripted week of some groups as a data directory, and the truth about it as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pipeline.demo.cast import play
from pipeline.demo.cluster import START_MS, Cluster
from pipeline.demo.directory import Directory
from pipeline.virtual import Client, DiscardingRecorder, TrueRebalance, World

PARTITIONS: Final = 4
TRUTH: Final = "truth.json"
ENDS_MS: Final = 60_000  # the interval of end offset notes


def write_world(
    directory: str | Path,
    seed: int = 0,
    days: float = 7,
    notes: bool = True,
    *,
    start_ms: int = START_MS,
    hostile: bool = False,
) -> dict[str, Any]:
    """Write the directory; return the truth, which is also in its `truth.json`.

    With `notes` False the directory looks like Apache Kafka's. `hostile`: with groups that have hostile names.
    """
    recorder = Directory(str(directory), PARTITIONS, start_ms, ours=notes, seed=seed)
    cluster = _cluster(World(start_ms, PARTITIONS, recorder=recorder, seed=seed), days, hostile)
    cluster.note_ends(ENDS_MS)
    cluster.world.run_until(cluster.end_ms)
    for topic in cluster.topics.values():
        if topic.has_legal_name:
            recorder.add_topic(topic.name, topic.partitions, {"retention.ms": str(topic.retention_ms)})
            topic.write(recorder, cluster.end_ms)
    truth = truth_of(cluster)
    cluster.world.stop()
    recorder.close(cluster.end_ms)
    others = {membership: _without_commits(start_ms, days, seed, membership, hostile) for membership in ("dynamic", "static")}
    for name, group in truth["groups"].items():
        group |= {f"rebalances_if_{membership}": len(other.episodes(name)) for membership, other in others.items()}
    Path(directory, TRUTH).write_text(json.dumps(truth, indent=1))
    return truth


def _cluster(world: World, days: float, hostile: bool, commits: bool = True, membership: str = "") -> Cluster:
    cluster = Cluster(world, days, commits, membership, hostile)
    play(cluster)
    return cluster


def _without_commits(start_ms: int, days: float, seed: int, membership: str, hostile: bool) -> World:
    """Simulate the week with only static or only dynamic members, for the true number of avoidable rebalances."""
    cluster = _cluster(World(start_ms, PARTITIONS, recorder=DiscardingRecorder(), seed=seed), days, hostile, False, membership)
    cluster.world.run_until(cluster.end_ms)
    return cluster.world


def truth_of(cluster: Cluster) -> dict[str, Any]:
    world = cluster.world
    groups = {}
    for name, service in sorted(cluster.services.items()):
        avoidable = {id(episode) for episode in world.avoidable(name)}
        group = world.group(name)
        groups[name] = {
            "partition": world.coordinator_of(name).number,
            "static": service.static,
            "members": [_living(client) for client in world.clients.get(name, []) if client.alive and group is not None and client.member_id in group.members],
            "generation": world.generation(name),
            "episodes": [_episode(episode) | {"avoidable": id(episode) in avoidable} for episode in world.episodes(name)],
            "avoidable": len(avoidable),
            "saved": [change._asdict() for change in world.saved(name)],
            "restarts": [asdict(restart) | {"gap_ms": restart.gap_ms} for restart in world.restarts if restart.group == name],
        }
    return {
        "start_ms": world.start_ms,
        "end_ms": world.now,
        "groups": groups,
        "deploys": [asdict(deploy) | {"rebalances": _rebalances_of(world, deploy.group, deploy.start_ms, deploy.end_ms)} for deploy in cluster.deploys],
        "stuck": [asdict(stuck) for stuck in cluster.stuck],
        "remarks": cluster.remarks,
        "topics": {name: _ends(cluster, name) for name in cluster.topics},
    }


def _living(client: Client) -> dict[str, Any]:
    """A member at the end of the week, with what a process needs that goes on as this member."""
    return {
        "member": client.member_id,
        "instance": client.instance,
        "client_id": client.client_id,
        "assignors": client.assignors,
        "topics": client.topics,
        "owned": client.owned,
        "session_ms": client.session_ms,
        "rebalance_ms": client.rebalance_ms,
        "heartbeat_ms": client.heartbeat_ms,
    }


def _episode(episode: TrueRebalance) -> dict[str, Any]:
    return asdict(episode) | {"rounds": episode.rounds, "changes": [change._asdict() for change in episode.changes]}


def _rebalances_of(world: World, group: str, start_ms: int, end_ms: int) -> int:
    """The number of rebalances caused by restarts in this period, with the second steps of cooperative ones."""
    restarted = {restart.number for restart in world.restarts if restart.group == group and start_ms <= restart.at_ms <= end_ms}
    count, before = 0, False
    for episode in world.episodes(group):
        before = bool(episode.restarts & restarted) or (episode.follows and before)
        count += before
    return count


def _ends(cluster: Cluster, name: str) -> list[dict[str, int]]:
    topic, now = cluster.topics[name], cluster.world.now
    return [{"log_start": topic.log_start(number, now), "end": topic.end(number, now)} for number in range(topic.partitions)]
