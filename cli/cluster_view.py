"""What `tenure cluster` knows of a cluster. What cannot be asked is left out and named; the rest is known all the same."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from cli.client import Cluster, Exit, Failure, TopicInfo, failure
from cli.failure import NOT_READY
from cli.groups.everywhere import OFFSETS, list_everywhere
from cli.groups.listing import NOTES, unready_brokers
from cli.nodes import NodeStatus, node_status
from cli.shown import counted
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumRequestPartitionData, DescribeQuorumRequestTopicData

# What each part that may not be answered gets of the time that is left, so that the parts after it get some too.
BROKER_SHARE = 0.25
CONTROLLER_SHARE = 0.5
QUORUM_TOPIC = "__cluster_metadata"  # the leader of its only partition is the controller
FORBIDDEN = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
Versions = dict[int, tuple[int, int]]
Answer = TypeVar("Answer")


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
    controller: int | None  # None: see `controller_known`
    controller_known: bool  # if so, None means that this user may not know it
    tenure: bool
    brokers: list[BrokerView]
    versions: Versions  # of the broker that answered
    features: list[dict[str, Any]]
    topics: dict[str, TopicInfo]
    groups: Counter[str] | None  # by state; None: not counted
    problems: list[Failure]

    @property
    def leaderless(self) -> int:
        return sum(partition.leader < 0 for topic in self.topics.values() for partition in topic.partitions.values())

    @property
    def under_replicated(self) -> int:
        return sum(len(partition.isr) < len(partition.replicas) for topic in self.topics.values() for partition in topic.partitions.values())


def view_of(cluster: Cluster) -> View:
    """Raises Failure only if no broker answers."""
    topics = cluster.topics(None)
    cluster_id = cluster.id
    problems: list[Failure] = []
    tenure = asked(lambda: cluster.topics([NOTES])[NOTES].internal, False, "whether it is Tenure", problems)
    versions = asked(cluster.served_apis, Versions(), "its versions", problems)
    no_features: list[dict[str, Any]] = []
    known_features = asked(lambda: features(cluster), no_features, "its features", problems)
    brokers = broker_views(cluster, tenure, problems)
    problems += quarantined(brokers)
    controller, known = controller_id(cluster, problems)
    brokers = [broker._replace(controller=broker.id == controller) for broker in brokers]
    groups = counted_groups(cluster, brokers, tenure, problems)
    view = View(cluster_id, controller, known, tenure, brokers, versions, known_features, topics, groups, problems)
    problems += troubles_of_partitions(view)
    return view


def asked(question: Callable[[], Answer], otherwise: Answer, what: str, problems: list[Failure]) -> Answer:
    """The answer, or `otherwise` and a problem that names what is unknown."""
    try:
        return question()
    except Failure as trouble:
        problems.append(unknown(what, trouble))
        return otherwise


def unknown(what: str, trouble: Failure) -> Failure:
    return Failure(Exit.AGAIN if trouble.exit_code == Exit.UNREACHABLE else trouble.exit_code, f"{what} is unknown: {trouble.line}", kind=trouble.kind)


def wrong(line: str) -> Failure:
    return Failure(Exit.REFUSED, line)


def troubles_of_partitions(view: View) -> list[Failure]:
    troubles = []
    if view.leaderless:
        troubles.append(wrong(f"{counted(view.leaderless, 'partition')} {'has' if view.leaderless == 1 else 'have'} no leader"))
    if view.under_replicated:
        troubles.append(wrong(f"{counted(view.under_replicated, 'partition')} {'has' if view.under_replicated == 1 else 'have'} replicas that are not in sync"))
    return troubles


def controller_id(cluster: Cluster, problems: list[Failure]) -> tuple[int | None, bool]:
    """The id of the controller, and whether it is known. With KRaft only DescribeQuorum tells it: Metadata names a random broker as controller."""
    what = "the controller"
    try:
        if DescribeQuorumRequest.API_KEY not in cluster.served_apis():
            if cluster.controller_id >= 0:
                return cluster.controller_id, True
            raise Failure(Exit.AGAIN, "there is none at the moment")
        request = DescribeQuorumRequest([DescribeQuorumRequestTopicData(QUORUM_TOPIC, [DescribeQuorumRequestPartitionData(0)])])
        wait = cluster.wait(CONTROLLER_SHARE)
        while True:
            # A broker that has lost the controller holds the request for long, and is not asked again.
            reply = cluster.send_to_any(request, timeout=max(wait.deadline - time.monotonic(), cluster.patience.share(0.0)))
            partitions = [partition for topic in reply.topics for partition in topic.partitions]
            code = reply.error_code or next((partition.error_code for partition in partitions), 0)
            if not code and partitions and partitions[0].leader_id >= 0:
                return int(partitions[0].leader_id), True
            if code in FORBIDDEN:
                return None, True
            if not wait.again():
                raise failure(code, "the quorum") if code else Failure(Exit.AGAIN, "the quorum has no leader at the moment")
    except Failure as trouble:
        problems.append(unknown(what, trouble))
        return None, False


def broker_views(cluster: Cluster, tenure: bool, problems: list[Failure]) -> list[BrokerView]:
    known = {broker.id: (broker, False) for broker in cluster.brokers.values()}
    views = []
    none: list[Any] = []
    for broker in asked(lambda: fenced_brokers(cluster), none, "which brokers are fenced", problems):
        known.setdefault(broker.broker_id, (broker, True))
    for id, (broker, fenced) in sorted(known.items()):
        versions, problem = (None, "fenced") if fenced else advertised_versions(cluster, id)
        if fenced:
            problems.append(wrong(f"broker {id} is fenced: the cluster hears nothing of it"))
        elif problem:
            problems.append(wrong(f"broker {id} cannot be reached at its advertised address: {problem}"))
        node = node_status(cluster, id) if tenure and versions is not None else None
        views.append(BrokerView(id, broker.host, broker.port, broker.rack, False, fenced, versions, problem, node))
    return views


def advertised_versions(cluster: Cluster, id: int) -> tuple[Versions | None, str | None]:
    try:
        return cluster.apis_at_advertised_address(id, timeout=cluster.patience.share(BROKER_SHARE)), None
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


def quarantined(brokers: list[BrokerView]) -> list[Failure]:
    """A problem for each log that a node found damaged and does not serve."""
    damaged = {line for broker in brokers if broker.node and broker.node.store for line in broker.node.store.quarantined}
    return [wrong(f"no node serves {line}") for line in sorted(damaged)]


# Groups


def counted_groups(cluster: Cluster, brokers: list[BrokerView], tenure: bool, problems: list[Failure]) -> Counter[str] | None:
    """The number of groups by state; None if it is not known."""
    try:
        unready = unready_brokers(cluster, [broker.id for broker in brokers if broker.versions is not None]) if tenure else []
        problems += [Failure(Exit.REFUSED, f"{line}: groups are not counted", kind=NOT_READY) for line in unready]
        if unready:
            return None
        listing = list_everywhere(cluster)
        if not listing.problems and not all_groups_served(cluster, brokers):
            listing.problems.append(Failure(Exit.AGAIN, f"a partition of {OFFSETS} has no node at the moment"))
    except Failure as trouble:
        problems.append(Failure(trouble.exit_code, f"groups are not counted: {trouble.line}", kind=trouble.kind))
        return None
    problems += [problem.with_line(f"groups are not counted: {problem.line.removesuffix(': its groups are missing here')}") for problem in listing.problems]
    return None if listing.problems else Counter(group.group_state for group in listing.groups)


def all_groups_served(cluster: Cluster, brokers: list[BrokerView]) -> bool:
    """Whether each partition of __consumer_offsets has an owner. After a restart some have none for a moment, and no node lists their groups."""
    owned = [broker.node.groups_partitions for broker in brokers if broker.node is not None]
    return not owned or sum(owned) >= len(cluster.topics([OFFSETS])[OFFSETS].partitions)
