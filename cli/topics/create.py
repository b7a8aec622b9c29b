"""`tenure topic create`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from cli.client import Cluster, Exit, Failure, TopicInfo, check
from cli.client.shapes import PartitionInfo
from cli.client.words import json_code_of
from cli.shown import Screen, counted, topic_id_text
from cli.topics.finding import await_change
from cli.topics.settings import similar_names, value_meant
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreatableTopicResult, CreateTopicsRequest

CLUSTER_DEFAULT: Final = -1  # for partitions and replicas; since version 4 of CreateTopics


def run(options: argparse.Namespace) -> int:
    screen = Screen.of(options)
    names = list(dict.fromkeys(options.topics))
    with Cluster.of(options) as cluster:
        if not options.dry_run and not screen.confirm(question(options, names), options):
            raise Failure(Exit.REFUSED, "nothing was changed")
        reply = cluster.send_to_controller(request(options, names, cluster.timeout), oldest=4)
        results = {result.name: result for result in reply.topics}
        entries = [entry(name, results.get(name), options) for name in names]
        created = [topic["name"] for topic in entries if topic["outcome"] == "created"]
        await_change(cluster, created, has_leaders)
    if screen.json:
        screen.document({"dry_run": options.dry_run, "topics": entries})
    failure: Failure | None = None
    for name, topic in zip(names, entries, strict=True):
        if topic["outcome"] == "refused":
            failure = refusal(name, results.get(name), options.settings)
            if len(names) > 1:
                screen.fail(failure)
        elif not screen.json:
            screen.line(entry_text(topic))
    if failure is None:
        return 0
    if len(names) > 1:
        return failure.exit_code
    raise failure


def question(options: argparse.Namespace, names: list[str]) -> str:
    properties = []
    if options.partitions:
        properties.append(counted(options.partitions, "partition"))
    if options.replication_factor:
        properties.append(f"replication factor {options.replication_factor}")
    properties += [f"{name}={value}" for name, value in options.settings]
    return f"Create {', '.join(names)}" + (f" with {', '.join(properties)}" if properties else "") + "?"


def request(options: argparse.Namespace, names: list[str], timeout: float) -> CreateTopicsRequest:
    settings = [CreatableTopicConfig(name, value) for name, value in dict(options.settings).items()]
    partitions = options.partitions or CLUSTER_DEFAULT
    replicas = options.replication_factor or CLUSTER_DEFAULT
    topics = [CreatableTopic(name, partitions, replicas, [], settings) for name in names]
    return CreateTopicsRequest(topics, int(timeout * 1000), options.dry_run)


def create_if_missing(cluster: Cluster, name: str) -> bool:
    """Create a topic with the cluster's defaults, for `tenure produce`. Returns False if the topic existed."""
    result = send_defaults(cluster, name, dry_run=False)
    if result is not None and result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        return False
    if result is None or result.error_code:
        raise refusal(name, result, [])
    await_change(cluster, [name], has_leaders)
    return True


def planned_topic(cluster: Cluster, name: str) -> TopicInfo:
    """The topic that `create_if_missing` would create. The cluster checks the request; raises Failure if it refuses."""
    result = send_defaults(cluster, name, dry_run=True)
    if result is None or result.error_code:
        raise refusal(name, result, [])
    return TopicInfo(None, False, 0, {number: PartitionInfo(0, -1, [], [], 0) for number in range(max(result.num_partitions, 1))})


def send_defaults(cluster: Cluster, name: str, *, dry_run: bool) -> CreatableTopicResult | None:
    """Send a request for the topic with the cluster's defaults; returns its result."""
    options = argparse.Namespace(topics=[name], partitions=None, replication_factor=None, settings=[], dry_run=dry_run)
    reply = cluster.send_to_controller(request(options, [name], cluster.timeout), oldest=4)
    return next((result for result in reply.topics if result.name == name), None)


def has_leaders(topic: TopicInfo) -> bool:
    return not topic.error and all(partition.leader >= 0 for partition in topic.partitions.values())


def entry(name: str, result: CreatableTopicResult | None, options: argparse.Namespace) -> dict[str, Any]:
    if result is None:
        return {"name": name, "outcome": "refused", "error": refusal(name, None, []).document()}
    if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and options.if_not_exists:
        return {"name": name, "outcome": "exists"}
    if result.error_code:
        return {"name": name, "outcome": "refused", "error": refusal(name, result, options.settings).document()}
    return {
        "name": name,
        "outcome": "would be created" if options.dry_run else "created",
        "id": topic_id_text(result.topic_id),
        "partitions": reported_or_requested(result.num_partitions, options.partitions),
        "replication_factor": reported_or_requested(result.replication_factor, options.replication_factor),
        "settings": dict(options.settings),
    }


def reported_or_requested(reported: int, requested: int | None) -> int | None:
    """The value in the reply; if there is none, as from older clusters, the requested value."""
    return reported if reported > 0 else requested


def entry_text(topic: dict[str, Any]) -> str:
    if topic["outcome"] == "exists":
        return f"{topic['name']} exists already; it was not changed"
    parts = []
    if topic["partitions"]:
        parts.append(counted(topic["partitions"], "partition"))
    if topic["replication_factor"]:
        parts.append(f"replication factor {topic['replication_factor']}")
    parts += [f"{name}={value}" for name, value in topic["settings"].items()]
    return f"{topic['name']} {topic['outcome']}" + (f": {', '.join(parts)}" if parts else "")


def refusal(name: str, result: CreatableTopicResult | None, settings: Sequence[tuple[str, str]]) -> Failure:
    code = ErrorCode.UNKNOWN_SERVER_ERROR if result is None else result.error_code
    if code == ErrorCode.TOPIC_ALREADY_EXISTS:
        hint = f"tenure topic describe {name}; --if-not-exists keeps it unchanged"
        return Failure(Exit.REFUSED, f"topic {name} exists already ({hint})", kind=json_code_of(code), hint=hint)
    try:
        hint = similar_names(name for name, _ in settings) or value_meant(settings) if code == ErrorCode.INVALID_CONFIG else ""
        check(code, f"topic {repr(name) if code == ErrorCode.INVALID_TOPIC_EXCEPTION else name}", None if result is None else f"{result.error_message or ''}{hint}")
    except Failure as failure:
        return failure
    raise AssertionError(f"{name} was refused with code {code}")
