"""Who may do what: a port that every handler asks, with Kafka's operations and kinds of resources.

Today everybody may do everything. Whoever brings access control implements `Authorizer` and changes no handler.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Protocol

from broker.net.dispatch import Call


class Operation(IntEnum):
    """Numbered as Kafka numbers them: a set of operations is sent as a set of bits."""

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


class Resource(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME: Final = "kafka-cluster"  # the one resource of its kind

OPERATIONS_NOT_ASKED: Final = -(1 << 31)  # in a reply, in place of a set of operations

# What there is to be allowed about each kind.
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


class Authorizer(Protocol):
    """`open` says that nobody will be refused anything; then it need not be asked."""

    @property
    def open(self) -> bool: ...

    def allows(self, call: Call, operation: Operation, resource: Resource, name: str) -> bool: ...


def may(authorizer: Authorizer, call: Call, operation: Operation, resource: Resource, name: str) -> bool:
    return authorizer.open or authorizer.allows(call, operation, resource, name)


def group_allowed(authorizer: Authorizer, call: Call, operation: Operation, group_id: str) -> bool:
    return authorizer.open or authorizer.allows(call, operation, Resource.GROUP, group_id)


def topic_allowed(authorizer: Authorizer, call: Call, operation: Operation, name: str) -> bool:
    return authorizer.open or authorizer.allows(call, operation, Resource.TOPIC, name)


def cluster_allowed(authorizer: Authorizer, call: Call, operation: Operation) -> bool:
    return authorizer.open or authorizer.allows(call, operation, Resource.CLUSTER, CLUSTER_NAME)


class AllowAll:
    """Everybody may do everything."""

    __slots__ = ("open",)  # asked about every request: of an instance it is had quicker than of a class

    def __init__(self) -> None:
        self.open = True

    def allows(self, call: Call, operation: Operation, resource: Resource, name: str) -> bool:
        return True


def group_operations(authorizer: Authorizer, call: Call, group_id: str) -> int:
    """What the caller may do with the group, as a set of bits."""
    return sum(1 << operation for operation in GROUP_OPERATIONS if authorizer.allows(call, operation, Resource.GROUP, group_id))


_ALL_OF_A_TOPIC: Final = sum(1 << operation for operation in TOPIC_OPERATIONS)


def topic_operations(authorizer: Authorizer, call: Call, name: str) -> int:
    """What the caller may do with the topic, as a set of bits."""
    if authorizer.open:
        return _ALL_OF_A_TOPIC
    return sum(1 << operation for operation in TOPIC_OPERATIONS if authorizer.allows(call, operation, Resource.TOPIC, name))


def cluster_operations(authorizer: Authorizer, call: Call) -> int:
    """What the caller may do with the cluster; nothing is told to who may not describe it."""
    if not authorizer.allows(call, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
        return 0
    return sum(1 << operation for operation in CLUSTER_OPERATIONS if authorizer.allows(call, operation, Resource.CLUSTER, CLUSTER_NAME))
