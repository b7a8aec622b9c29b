"""What a heartbeat must say, whatever its group: the checks before the group is looked up, in Kafka's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from coordinator.consumer.calls import AWAY, JOIN, LEAVE, HeartbeatReply, HeartbeatRequest
from coordinator.consumer.config import ConsumerConfig
from coordinator.facts import storable
from protocol.errors import ErrorCode


class Check(NamedTuple):
    fails: Callable[[HeartbeatRequest], bool]
    message: str


def lacks_member_id(request: HeartbeatRequest) -> bool:
    """Before v1 the coordinator gives a new member its id. A static member of that version may go away without one, but no member has it."""
    return not request.member_id and (request.names_its_own_id or request.epoch > JOIN or request.epoch == LEAVE)


def fits_into_records(request: HeartbeatRequest) -> bool:
    texts = (request.group_id, request.member_id, request.instance_id, request.rack_id, request.client_id, request.client_host, request.expression)
    return storable(*texts, request.assignor, *(request.topics or ()))


# fmt: off
CHECKS: Final = (
    Check(lacks_member_id, "a member needs a member id"),
    Check(lambda request: not request.group_id, "the group id is empty"),
    Check(lambda request: request.instance_id == "", "the instance id is empty"),
    Check(lambda request: request.rack_id == "", "the rack id is empty"),
    Check(lambda request: request.epoch == JOIN and request.rebalance_timeout_ms == -1, "a member that joins needs a rebalance timeout"),
    Check(lambda request: request.epoch == JOIN and (request.owned is None or bool(request.owned)), "a member that joins owns no partitions, and says so"),
    Check(lambda request: request.epoch == JOIN and request.topics is None and request.expression is None, "a member that joins needs topics or an expression"),
    Check(lambda request: request.epoch == AWAY and request.instance_id is None, "only a member with an instance id can go and be back"),
    Check(lambda request: request.epoch < AWAY, "the member epoch has no meaning"),
)
# fmt: on


def switched_off(config: ConsumerConfig) -> HeartbeatReply | None:
    return None if config.enabled else HeartbeatReply(ErrorCode.UNSUPPORTED_VERSION, "the consumer protocol is switched off")


def refusal(config: ConsumerConfig, request: HeartbeatRequest) -> HeartbeatReply | None:
    refused = switched_off(config)
    if refused is not None:
        return refused
    for check in CHECKS:
        if check.fails(request):
            return HeartbeatReply(ErrorCode.INVALID_REQUEST, check.message)
    if request.assignor is not None and request.assignor not in config.assignors:
        return HeartbeatReply(ErrorCode.UNSUPPORTED_ASSIGNOR, f"the assignor is none of {', '.join(config.assignors)}")
    if not fits_into_records(request):
        return HeartbeatReply(ErrorCode.UNKNOWN_SERVER_ERROR, "a text is too long for a record")
    return None
