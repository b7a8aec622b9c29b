"""`tenure cluster`: an overview of the cluster."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from cli.client import Cluster, Exit, TopicInfo
from cli.client.api_names import api_name
from cli.client.releases import SINCE, Release, matching_release, release_text
from cli.cluster_view import BrokerView, Versions, View, view_of
from cli.nodes import time_if_known
from cli.shown import Column, Painted, Role, Screen, plain

UNKNOWN = "unknown"


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
    for problem in view.problems:
        screen.fail(problem)
    return exit_code(view)


def exit_code(view: View) -> int:
    """1 if something is wrong in the cluster, whatever else is unknown; 75 if nothing is known to be wrong, but not all is known."""
    codes = {problem.exit_code for problem in view.problems}
    return next((code for code in (Exit.REFUSED, Exit.AGAIN) if code in codes), max(codes, default=Exit.DONE))


# Output


def show(screen: Screen, view: View) -> None:
    facts: list[tuple[str, str]] = [
        ("cluster", plain(view.id or "-")),
        ("software", software(view)),
        ("controller", controller_text(view)),
        ("topics", topics_text(view.topics)),
        ("groups", UNKNOWN if view.groups is None else groups_text(view.groups)),
    ]
    if view.leaderless:
        facts.append(("leaderless", screen.paint(partitions_text(view.leaderless), Role.BAD)))
    if view.under_replicated:
        facts.append(("behind", screen.paint(f"{partitions_text(view.under_replicated)} with replicas that are not in sync", Role.CAREFUL)))
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


def controller_text(view: View) -> str:
    if view.controller is None:
        return "-" if view.controller_known else UNKNOWN
    kind = "broker" if any(broker.id == view.controller for broker in view.brokers) else "node"
    return f"{kind} {view.controller}{'' if kind == 'broker' else ', which is no broker'}"


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
    known_releases = releases(view)
    value: dict[str, Any] = {
        "id": view.id,
        "controller_id": view.controller,
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
            "partitions": partitions_of(view.topics),
            "leaderless_partitions": view.leaderless,
            "under_replicated_partitions": view.under_replicated,
        },
        "groups": None if view.groups is None else {"total": view.groups.total(), "states": {name: n for name, n in view.groups.items() if name}},
        "warnings": [problem.line for problem in view.problems],
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
