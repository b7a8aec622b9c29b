"""The authorization that all handlers call, with Kafka's operations and resource types.

Today every request is allowed. Access control needs an `Authorizer` with another function, and no change of the handlers.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, Protocol

from broker.net.connection import Connection


class Operation(IntEnum):
    """Kafka's codes; a set of operations is sent as a bit field."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class ResourceType(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME: Final = "kafka-cluster"  # the only resource of type CLUSTER

OPERATIONS_NOT_REQUESTED: Final = -(1 << 31)  # the field's value in a reply if the request did not ask for authorized operations

# The operations that exist for each resource type.
GROUP_OPERATIONS: Final = (Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
TOPIC_OPERATIONS: Final = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


class AuthorizableRequest(Protocol):
    """The request to be authorized: a Call (`broker/net/dispatch.py`)."""

    @property
    def connection(self) -> Connection: ...


class Authorizer:
    """`allows_all`: every request is allowed, so that `allows` need not be called.

    A class and not a Protocol: compiled code reads the attributes of a class without a lookup, and every request reads `allows_all`.
    """

    __slots__ = ("allows", "allows_all")

    def __init__(self, allows: Callable[[AuthorizableRequest, Operation, ResourceType, str], bool] | None = None) -> None:
        """`allows`: whether the caller may run the operation on the resource of this name; None: everything is allowed."""
        self.allows_all = allows is None
        self.allows = allows or _allow_all


def _allow_all(call: AuthorizableRequest, operation: Operation, resource: ResourceType, name: str) -> bool:
    return True


def is_allowed(authorizer: Authorizer, call: AuthorizableRequest, operation: Operation, resource: ResourceType, name: str) -> bool:
    return authorizer.allows_all or authorizer.allows(call, operation, resource, name)


def group_allowed(authorizer: Authorizer, call: AuthorizableRequest, operation: Operation, group_id: str) -> bool:
    return authorizer.allows_all or authorizer.allows(call, operation, ResourceType.GROUP, group_id)


def topic_allowed(authorizer: Authorizer, call: AuthorizableRequest, operation: Operation, name: str) -> bool:
    return authorizer.allows_all or authorizer.allows(call, operation, ResourceType.TOPIC, name)


def cluster_allowed(authorizer: Authorizer, call: AuthorizableRequest, operation: Operation) -> bool:
    return authorizer.allows_all or authorizer.allows(call, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def group_operations(authorizer: Authorizer, call: AuthorizableRequest, group_id: str) -> int:
    """The caller's allowed operations on the group, as a bit field."""
    return sum(1 << operation for operation in GROUP_OPERATIONS if authorizer.allows(call, operation, ResourceType.GROUP, group_id))


_ALL_TOPIC_OPERATIONS: Final = sum(1 << operation for operation in TOPIC_OPERATIONS)


def topic_operations(authorizer: Authorizer, call: AuthorizableRequest, name: str) -> int:
    """The caller's allowed operations on the topic, as a bit field."""
    if authorizer.allows_all:
        return _ALL_TOPIC_OPERATIONS
    return sum(1 << operation for operation in TOPIC_OPERATIONS if authorizer.allows(call, operation, ResourceType.TOPIC, name))


def cluster_operations(authorizer: Authorizer, call: AuthorizableRequest) -> int:
    """The caller's allowed operations on the cluster, as a bit field; 0 without permission to describe it."""
    if not authorizer.allows(call, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return sum(1 << operation for operation in CLUSTER_OPERATIONS if authorizer.allows(call, operation, ResourceType.CLUSTER, CLUSTER_NAME))
