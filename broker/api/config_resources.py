"""Resource types of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from enum import IntEnum

from broker.api.refused import Refused
from broker.net.dispatch import Call
from broker.security.authorizer import Authorizer, Operation, cluster_allowed, group_allowed, topic_allowed
from broker.topics.registry import Topic, TopicRegistry, name_problem
from protocol.errors import ErrorCode


class ConfigResourceType(IntEnum):
    """Resource type codes of these APIs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def authorization_error(authorizer: Authorizer, call: Call, operation: Operation, kind: int, name: str) -> ErrorCode:
    match kind:
        case ConfigResourceType.TOPIC:
            return ErrorCode.NONE if topic_allowed(authorizer, call, operation, name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        case ConfigResourceType.GROUP:
            return ErrorCode.NONE if group_allowed(authorizer, call, operation, name) else ErrorCode.GROUP_AUTHORIZATION_FAILED
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER | ConfigResourceType.CLIENT_METRICS:
            return ErrorCode.NONE if cluster_allowed(authorizer, call, operation) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def check_broker(name: str, node_id: int) -> None:
    try:
        id = int(name) if name.isascii() else None
    except ValueError:
        id = None
    if id is None or "_" in name or name != name.strip():
        raise Refused(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if id != node_id:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")


def find_topic(topics: TopicRegistry, name: str, missing: str) -> Topic:
    """Find a topic; raises Refused, with the message `missing` for an unknown topic."""
    topic = topics.by_name.get(name)
    if topic is None:
        check_topic_name(name)
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, missing)
    return topic


def check_topic_name(name: str) -> None:
    problem = name_problem(name)
    if problem is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
