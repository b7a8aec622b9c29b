"""Clusters: made in milliseconds, reset, removed."""

from __future__ import annotations

from typing import Any

from broker.control.cluster import Cluster
from broker.control.fields import OBJECT, TEXT, Field, Refused
from broker.control.verb import Call, Verb
from broker.runtime.node import Address
from broker.settings.endpoints import parse_endpoint

TOPICS = Field("topics", OBJECT, 'the topics to make, with their numbers of partitions: {"orders": 6}; or with settings: {"orders": {"partitions": 6, "config": {...}}}')
SETTINGS = Field("settings", OBJECT, "settings of the broker, by Kafka's names")


def shown(cluster: Cluster) -> dict[str, Any]:
    return {
        "id": cluster.id,
        "bootstrap": cluster.bootstrap,
        "cluster_id": cluster.kafka_id,
        "running": cluster.running,
        "in_memory": cluster.in_memory,
        "lives": cluster.lives,
    }


async def make(call: Call) -> Any:
    cluster = await call.host.make(call.fields["settings"] or {})
    try:
        await call.host.make_topics(cluster, call.fields["topics"] or {})
    except Refused:
        await call.host.remove(cluster.id)
        raise
    return shown(cluster)


async def list_all(call: Call) -> Any:
    return {"clusters": [shown(cluster) for cluster in call.host.clusters.values()]}


async def show(call: Call) -> Any:
    return shown(call.of)


async def remove(call: Call) -> Any:
    if call.of.id == "default":
        raise Refused(409, "the default cluster ends with the process", "reset it instead")
    left = call.of.open_clients()
    await call.host.remove(call.of.id)
    return {"removed": call.of.id, "open_connections": left}


async def reset(call: Call) -> Any:
    if not call.of.in_memory:
        raise Refused(409, "the cluster keeps its data in a directory", "reset clusters in memory only")
    await call.of.reset()
    await call.host.make_topics(call.of, call.fields["topics"] or {})
    return shown(call.of)


async def advertise(call: Call) -> Any:
    try:
        host, port = parse_endpoint(call.fields["address"], lowest_port=1)
    except ValueError as error:
        raise Refused(400, f"address: {error}", "HOST:PORT, as clients reach it") from None
    cluster = call.of
    first = cluster.addresses[0]
    await cluster.advertise(Address(first.name, host, port, first.listen_host, first.listen_port))
    return shown(cluster)


VERBS = (
    Verb("POST", "/v1/clusters", "make a cluster of its own: port, id, topics, groups, settings, clock and faults, in memory", make, (TOPICS, SETTINGS), {"topics": {"orders": 6}}),
    Verb("GET", "/v1/clusters", "list the clusters", list_all),
    Verb("GET", "/v1/clusters/{cluster}", "show a cluster", show),
    Verb("DELETE", "/v1/clusters/{cluster}", "end a cluster and its connections; it answers which clients were still connected", remove),
    Verb("POST", "/v1/clusters/{cluster}/reset", "topics, groups, faults and clock as new, on the same port", reset, (TOPICS,), {}),
    Verb(
        "POST", "/v1/clusters/{cluster}/advertise", "advertise another address, as for the random port of a container", advertise,
        (Field("address", TEXT, "HOST:PORT as clients reach it", required=True),), {"address": "localhost:49153"},
    ),
)  # fmt: skip
