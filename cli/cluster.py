"""`tenure cluster`: an overview of the cluster."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any, NamedTuple

from cli.client import Cluster, Exit, Failure, TopicInfo, failure
from cli.client.api_names import api_name
from cli.client.releases import SINCE, Release, matching_release, release_text
from cli.groups.listing import unready_brokers
from cli.nodes import NodeStatus, node_status, time_if_known
from cli.shown import Column, Painted, Role, Screen, plain
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumRequestPartitionData, DescribeQuorumRequestTopicData
from protocol.messages.list_groups import ListGroupsRequest

# An internal topic that only Tenure has; Metadata reports it only to a request that names it.
NOTES_TOPIC = "__coordinator_notes"
OFFSETS_TOPIC = "__consumer_offsets"
QUORUM_TOPIC = "__cluster_metadata"  # the leader of its only partition is the controller
Versions = dict[int, tuple[int, int]]


class BrokerView(NamedTuple):
    """One broker of the overview."""

    id: int
    host: str
    port: int
    rack: str | None
    controller: bool
    fenced: bool
    versions: Versions | None  # None: no answer
    problem: str | None
    node: NodeStatus | None  # None: not one of several nodes


class View(NamedTuple):
    id: str | None
    controller_id: int | None
    tenure: bool
    brokers: list[BrokerView]
    versions: Versions  # of the broker that answered
    features: list[dict[str, Any]]
    topics: dict[str, TopicInfo]
    groups: Counter[str] | None  # by state; None: not counted
    warnings: list[str]


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    with Cluster.of(options) as cluster:
        view = view_of(cluster)
    if screen.json:
        screen.document(document(view, options.versions))
    else:
        show(screen, view)
        if options.versions:
            show_versions(screen, view)
    return max([screen.fail(Failure(Exit.REFUSED, line)) for line in view.warnings], default=Exit.DONE)


# Requests


def view_of(cluster: Cluster) -> View:
    topics = cluster.topics(None)
    warnings: list[str] = []
    controller = controller_id(cluster)
    tenure = cluster.topics([NOTES_TOPIC])[NOTES_TOPIC].internal
    brokers = broker_views(cluster, controller, tenure, warnings)
    warnings += quarantined(brokers)
    unready = unready_brokers(cluster, [broker.id for broker in brokers if broker.versions is not None]) if tenure else []
    warnings += [f"{line}: groups are not counted" for line in unready]
    return View(
        cluster.id,
        controller,
        tenure,
        brokers,
        cluster.served_apis(),
        features(cluster),
        topics,
        counted_groups(cluster, warnings) if not unready and all_groups_served(cluster, brokers) else None,
        warnings,
    )


def controller_id(cluster: Cluster) -> int | None:
    """The id of the controller; None if unknown. With KRaft only DescribeQuorum tells it: Metadata names a random broker as controller."""
    if DescribeQuorumRequest.API_KEY not in cluster.served_apis():
        return cluster.controller_id if cluster.controller_id >= 0 else None
    request = DescribeQuorumRequest([DescribeQuorumRequestTopicData(QUORUM_TOPIC, [DescribeQuorumRequestPartitionData(0)])])
    reply = cluster.send_to_any(request)
    partitions = [partition for topic in reply.topics for partition in topic.partitions]
    return None if reply.error_code or not partitions or partitions[0].error_code or partitions[0].leader_id < 0 else int(partitions[0].leader_id)


def broker_views(cluster: Cluster, controller: int | None, tenure: bool, warnings: list[str]) -> list[BrokerView]:
    known = {broker.id: (broker, False) for broker in cluster.brokers.values()}
    views = []
    for broker in fenced_brokers(cluster):
        known.setdefault(broker.broker_id, (broker, True))
    for id, (broker, fenced) in sorted(known.items()):
        versions, problem = (None, "fenced") if fenced else advertised_versions(cluster, id)
        if problem and not fenced:
            warnings.append(f"broker {id} cannot be reached at its advertised address: {problem}")
        node = node_status(cluster, id) if tenure and versions is not None else None
        views.append(BrokerView(id, broker.host, broker.port, broker.rack, id == controller, fenced, versions, problem, node))
    return views


def advertised_versions(cluster: Cluster, id: int) -> tuple[Versions | None, str | None]:
    try:
        return cluster.apis_at_advertised_address(id), None
    except Failure as trouble:
        return None, trouble.line


def fenced_brokers(cluster: Cluster) -> list[Any]:
    """Brokers that are registered but not running. Before Kafka 4.0 the cluster does not report them: none."""
    if cluster.version(DescribeClusterRequest.API_KEY) < 2:
        return []
    reply = cluster.send_to_any(DescribeClusterRequest(include_fenced_brokers=True))
    return [broker for broker in reply.brokers if broker.is_fenced]


def features(cluster: Cluster) -> list[dict[str, Any]]:
    reply = cluster.send_to_any(ApiVersionsRequest("tenure", "0"))
    finalized_levels = {entry.name: entry.max_version_level for entry in reply.finalized_features}
    return [
        {"name": entry.name, "min_version": entry.min_version, "max_version": entry.max_version, "finalized": finalized_levels.get(entry.name)}
        for entry in sorted(reply.supported_features, key=lambda entry: str(entry.name))
    ]


def all_groups_served(cluster: Cluster, brokers: list[BrokerView]) -> bool:
    """Whether each partition of __consumer_offsets has an owner. After a restart some have none for a moment, and no node lists their groups."""
    owned = [broker.node.groups_partitions for broker in brokers if broker.node is not None]
    return not owned or sum(owned) >= len(cluster.topics([OFFSETS_TOPIC])[OFFSETS_TOPIC].partitions)


def counted_groups(cluster: Cluster, warnings: list[str]) -> Counter[str] | None:
    missing: dict[int, Failure] = {}
    try:
        replies = cluster.ask_all_brokers(ListGroupsRequest(), missing=missing)
    except Failure as trouble:
        warnings.append(f"groups are not counted: {trouble.line}")
        return None
    refused = {id: reply.error_code for id, reply in replies.items() if reply.error_code}
    warnings += [failure(code, f"groups of broker {id} are not counted").line for id, code in refused.items()]
    if missing or refused:
        return None
    return Counter(group.group_state for reply in replies.values() for group in reply.groups)


# Output


def show(screen: Screen, view: View) -> None:
    partitions = [partition for topic in view.topics.values() for partition in topic.partitions.values()]
    leaderless = sum(partition.leader < 0 for partition in partitions)
    out_of_sync = sum(len(partition.isr) < len(partition.replicas) for partition in partitions)
    facts: list[tuple[str, str]] = [
        ("cluster", plain(view.id or "-")),
        ("software", software(view)),
        ("controller", controller_text(view)),
        ("topics", topics_text(view.topics)),
        ("groups", "-" if view.groups is None else groups_text(view.groups)),
    ]
    if leaderless:
        facts.append(("leaderless", screen.paint(partitions_text(leaderless), Role.BAD)))
    if out_of_sync:
        facts.append(("behind", screen.paint(f"{partitions_text(out_of_sync)} with replicas that are not in sync", Role.CAREFUL)))
    if finalized := [f"{plain(entry['name'])} {entry['finalized']}" for entry in view.features if entry["finalized"] is not None]:
        facts.append(("features", ", ".join(finalized)))
    for name, text in facts:
        screen.line(f"{screen.paint(f'{name:<12}', Role.DIM)}{text}")
    screen.line()
    mixed = len(releases(view)) > 1
    columns = [Column("BROKER"), Column("HOST"), Column("PORT"), Column("RACK"), Column("STATE")]
    rows: list[list[object]] = [[broker.id, broker.host, broker.port, broker.rack, state(broker)] for broker in view.brokers]
    if mixed:
        columns.append(Column("LOOKS LIKE"))
        for row, broker in zip(rows, view.brokers, strict=True):
            row.append(None if broker.versions is None else kafka_text(matching_release(broker.versions)))
    if any(broker.node for broker in view.brokers):
        columns += [Column("GROUPS", right=True), Column("TOPICS", right=True), Column("SINCE")]
        for row, broker in zip(rows, view.brokers, strict=True):
            node = broker.node
            row += [None] * 3 if node is None else [node.groups_partitions, node.topics_partitions, time_if_known(node.since_ms)]
    stores = [broker.node.store if broker.node else None for broker in view.brokers]
    if any(stores):
        columns += [Column("LEASE", right=True), Column("APPENDS", right=True), Column("OLDEST", right=True)]
        for row, store in zip(rows, stores, strict=True):
            row += [None] * 3 if store is None else [milliseconds(store.lease_left_ms), store.appends, milliseconds(store.oldest_append_ms)]
    screen.table(columns, rows)
    if any(broker.node for broker in view.brokers):
        screen.line()
        screen.line(screen.paint("GROUPS and TOPICS: partitions that the node owns; SINCE: when it got the last of them", Role.DIM))
    if any(stores):
        screen.line(screen.paint("LEASE: its remaining time; APPENDS: those that NATS has not answered; OLDEST: how long the oldest of them has waited", Role.DIM))


def milliseconds(number: int | None) -> str | None:
    return None if number is None else f"{number} ms"


def quarantined(brokers: list[BrokerView]) -> list[str]:
    """A line for each log that a node found damaged and does not serve."""
    damaged = {line for broker in brokers if broker.node and broker.node.store for line in broker.node.store.quarantined}
    return [f"no node serves {line}" for line in sorted(damaged)]


def controller_text(view: View) -> str:
    if view.controller_id is None:
        return "-"
    kind = "broker" if any(broker.id == view.controller_id for broker in view.brokers) else "node"
    return f"{kind} {view.controller_id}{'' if kind == 'broker' else ', which is no broker'}"


def state(broker: BrokerView) -> Painted:
    if broker.fenced:
        return Painted("fenced", Role.BAD)
    if broker.problem:
        return Painted("not reachable from here", Role.BAD)
    if broker.node is not None and broker.node.draining:
        return Painted("draining", Role.CAREFUL)
    return Painted("controller" if broker.controller else "up", Role.GOOD)


def topics_text(topics: dict[str, TopicInfo]) -> str:
    internal = {name: topic for name, topic in topics.items() if topic.internal}
    own = {name: topic for name, topic in topics.items() if not topic.internal}
    more = f", and {len(internal)} internal with {partitions_text(partitions_of(internal))}" if internal else ""
    return f"{len(own)} with {partitions_text(partitions_of(own))}{more}" if own else f"0{more}"


def partitions_of(topics: dict[str, TopicInfo]) -> int:
    return sum(len(topic.partitions) for topic in topics.values())


def partitions_text(number: int) -> str:
    return f"{number} partition{'' if number == 1 else 's'}"


def groups_text(groups: Counter[str]) -> str:
    states = ", ".join(f"{number} {plain(state)}" for state, number in sorted(groups.items()) if state)
    return f"{groups.total()}{f' ({states})' if states else ''}"


def releases(view: View) -> list[Release]:
    tables = [broker.versions for broker in view.brokers if broker.versions is not None] or [view.versions]
    return sorted({release for release in map(matching_release, tables) if release is not None})


def software(view: View) -> str:
    text = kafka_text(*releases(view))
    return f"Tenure, which serves what {text} does" if view.tenure else f"looks like {text}"


def kafka_text(*kafka_releases: Release | None) -> str:
    known = [release_text(release) for release in kafka_releases if release is not None]
    if not known:
        return "a Kafka before 2.4"
    newest = max(SINCE.values())
    more = " or later" if newest in kafka_releases else ""
    return f"Kafka {known[0]}{more}" if len(known) == 1 else f"Kafka {known[0]} to {known[-1]}{more}"


def show_versions(screen: Screen, view: View) -> None:
    """The APIs and versions that all brokers serve."""
    screen.line()
    common = common_versions(view)
    screen.table(["KEY", "REQUEST", Column("FROM", right=True), Column("TO", right=True)], [[key, api_name(key), *common[key]] for key in sorted(common)])


def common_versions(view: View) -> Versions:
    tables = [broker.versions for broker in view.brokers if broker.versions is not None] or [view.versions]
    keys = set.intersection(*map(set, tables))
    return {key: (max(table[key][0] for table in tables), min(table[key][1] for table in tables)) for key in keys}


def document(view: View, with_versions: bool) -> dict[str, Any]:
    partitions = [partition for topic in view.topics.values() for partition in topic.partitions.values()]
    known_releases = releases(view)
    value: dict[str, Any] = {
        "id": view.id,
        "controller_id": view.controller_id,
        "tenure": view.tenure,
        "release": release_text(known_releases[0]) if known_releases else None,
        "brokers": [
            {
                "id": broker.id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "controller": broker.controller,
                "fenced": broker.fenced,
                "reachable": broker.versions is not None,
                "problem": broker.problem,
                "release": release_of(broker),
                "node": broker.node.document() if broker.node else None,
            }
            for broker in view.brokers
        ],
        "features": view.features,
        "topics": {
            "total": len(view.topics),
            "internal": sum(topic.internal for topic in view.topics.values()),
            "partitions": len(partitions),
            "leaderless_partitions": sum(partition.leader < 0 for partition in partitions),
            "under_replicated_partitions": sum(len(partition.isr) < len(partition.replicas) for partition in partitions),
        },
        "groups": None if view.groups is None else {"total": view.groups.total(), "states": {name: n for name, n in view.groups.items() if name}},
        "warnings": view.warnings,
    }
    if with_versions:
        value["versions"] = [
            {"key": key, "name": api_name(key), "min_version": oldest, "max_version": newest}
            for key, (oldest, newest) in sorted(common_versions(view).items())
        ]
    return value


def release_of(broker: BrokerView) -> str | None:
    release = matching_release(broker.versions) if broker.versions is not None else None
    return release_text(release) if release else None
