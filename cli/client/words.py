"""Kafka's error codes as messages: the problem, the remedy, and the exit code."""

from __future__ import annotations

import re
from typing import Final

from cli.failure import UNKNOWN_GROUP, UNKNOWN_MEMBER, UNKNOWN_TOPIC, Exit, Failure
from cli.shown import plain
from protocol.errors import ErrorCode

E = ErrorCode

# For each error code: the text that follows "group orders: ", and the exit code of the command.
WORDS: Final[dict[int, tuple[str, Exit]]] = {
    E.UNKNOWN_TOPIC_OR_PARTITION: ("there is no such topic or partition", Exit.MISSING),
    E.UNKNOWN_TOPIC_ID: ("the topic was deleted or created again meanwhile", Exit.MISSING),
    E.GROUP_ID_NOT_FOUND: ("there is no such group", Exit.MISSING),
    E.UNKNOWN_MEMBER_ID: ("the group has no such member", Exit.MISSING),
    E.LEADER_NOT_AVAILABLE: ("no leader at the moment; try again", Exit.AGAIN),
    E.NOT_LEADER_OR_FOLLOWER: ("its leader has moved; try again", Exit.AGAIN),
    E.NETWORK_EXCEPTION: ("the broker that leads it cannot be reached; try again", Exit.AGAIN),
    E.REQUEST_TIMED_OUT: ("the cluster did not finish in time; check whether it was done, or wait longer with --timeout", Exit.AGAIN),
    E.COORDINATOR_LOAD_IN_PROGRESS: ("its coordinator is still loading; try again, or wait longer with --timeout", Exit.AGAIN),
    E.COORDINATOR_NOT_AVAILABLE: ("no coordinator is available; try again, or wait longer with --timeout", Exit.AGAIN),
    E.NOT_COORDINATOR: ("its coordinator has moved, or cannot read its log (tenure health says which); try again", Exit.AGAIN),
    E.NOT_CONTROLLER: ("the controller has moved; try again", Exit.AGAIN),
    E.REBALANCE_IN_PROGRESS: ("the group is rebalancing; try again", Exit.AGAIN),
    E.NOT_ENOUGH_REPLICAS: ("too few replicas are in sync", Exit.AGAIN),
    E.KAFKA_STORAGE_ERROR: ("the broker cannot read or write its log; its own log says why", Exit.AGAIN),
    E.NON_EMPTY_GROUP: ("has members; stop them first, or remove them (tenure group remove-member)", Exit.REFUSED),
    E.GROUP_SUBSCRIBED_TO_TOPIC: ("the group still consumes this topic; stop its members first", Exit.REFUSED),
    E.FENCED_INSTANCE_ID: ("another member has taken over this instance id", Exit.REFUSED),
    E.UNRELEASED_INSTANCE_ID: ("another member still holds this instance id", Exit.REFUSED),
    E.GROUP_MAX_SIZE_REACHED: ("the group accepts no more members (group.max.size, group.consumer.max.size), or no more metadata (group.member.metadata.max.bytes, groups.metadata.max.bytes)", Exit.REFUSED),
    E.INCONSISTENT_GROUP_PROTOCOL: ("the group uses another kind of protocol or no assignor in common", Exit.REFUSED),
    E.INVALID_GROUP_ID: ("no group can have that id", Exit.REFUSED),
    E.TOPIC_ALREADY_EXISTS: ("the topic exists already", Exit.REFUSED),
    E.INVALID_TOPIC_EXCEPTION: ("a topic's name has 1 to 249 letters, digits, '.', '_' and '-', and is not the cluster's own", Exit.REFUSED),
    E.INVALID_REPLICATION_FACTOR: ("the cluster has too few brokers for that many replicas", Exit.REFUSED),
    E.TOPIC_DELETION_DISABLED: ("the cluster does not delete topics (delete.topic.enable)", Exit.REFUSED),
    E.MESSAGE_TOO_LARGE: ("larger than the topic accepts (max.message.bytes)", Exit.REFUSED),
    E.OFFSET_OUT_OF_RANGE: ("the partition holds no such offset", Exit.REFUSED),
    E.THROTTLING_QUOTA_EXCEEDED: ("more than the cluster's quota allows; try again later", Exit.AGAIN),
    E.TOPIC_AUTHORIZATION_FAILED: ("this user may not use the topic", Exit.FORBIDDEN),
    E.GROUP_AUTHORIZATION_FAILED: ("this user may not use the group", Exit.FORBIDDEN),
    E.CLUSTER_AUTHORIZATION_FAILED: ("this user has no permission for this in the cluster", Exit.FORBIDDEN),
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ("this user may not use the transactional id", Exit.FORBIDDEN),
    E.ILLEGAL_SASL_STATE: ("the listener wants a login: name a file with sasl.jaas.config by --config (docs/secured.md)", Exit.UNREACHABLE),
    E.UNSUPPORTED_VERSION: ("the cluster does not serve this request in this form", Exit.UNSUPPORTED),
    E.UNKNOWN_SERVER_ERROR: ("the broker failed unexpectedly; its log has the details", Exit.REFUSED),
}
JSON_CODES: Final[dict[int, str]] = {
    E.GROUP_ID_NOT_FOUND: UNKNOWN_GROUP,
    E.UNKNOWN_TOPIC_OR_PARTITION: UNKNOWN_TOPIC,
    E.UNKNOWN_TOPIC_ID: UNKNOWN_TOPIC,
    E.UNKNOWN_MEMBER_ID: UNKNOWN_MEMBER,
}
HINT: Final = re.compile(r"(?:; |: )((?:try|check|look|stop|name) .*)")  # the part of a line that names the remedy
# Codes whose error message from the broker names the limit or rule.
MESSAGE_MATTERS: Final = {
    E.INVALID_TOPIC_EXCEPTION,
    E.INVALID_REPLICATION_FACTOR,
    E.INVALID_PARTITIONS,
    E.INVALID_REPLICA_ASSIGNMENT,
    E.INVALID_CONFIG,
    E.INVALID_REQUEST,
    E.POLICY_VIOLATION,
    E.UNKNOWN_SERVER_ERROR,
    E.UNSUPPORTED_VERSION,
    E.INVALID_RECORD,
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
}


def check(error_code: int, about: str, message: str | None = None) -> None:
    """Raise Failure unless the code is 0. `about`: "group orders", "topic t"; `message`: the error message of the reply."""
    if error_code:
        raise failure(error_code, about, message)


def failure(error_code: int, about: str, message: str | None = None) -> Failure:
    words, code = WORDS.get(error_code, ("", Exit.REFUSED))
    broker_message = plain(message or "").strip().rstrip(".")
    if not words or (error_code == E.INVALID_TOPIC_EXCEPTION and names_another_rule(broker_message)):
        words = broker_message or unlisted_error(error_code)
    elif error_code in MESSAGE_MATTERS and broker_message and broker_message.lower() not in ("none", "null"):
        words = f"{words} ({broker_message})"
    hint = HINT.search(words)
    return Failure(code, f"{about}: {words}", kind=json_code_of(error_code), hint=hint and hint[1])


def meaning(error_code: int) -> str:
    """What the error says, without the remedy."""
    words, _ = WORDS.get(error_code, ("", Exit.REFUSED))
    return HINT.split(words)[0] or ErrorCode(error_code).message.rstrip(".")


def names_another_rule(broker_message: str) -> bool:
    """Whether the message of INVALID_TOPIC_EXCEPTION names another reason than an invalid name: a collision with a topic, or an internal topic."""
    return bool(broker_message) and not broker_message.startswith(("Topic name is invalid", E.INVALID_TOPIC_EXCEPTION.message.rstrip(".")))


def json_code_of(error_code: int) -> str:
    """The `code` of an error in --json: Kafka's name for it in lower case with hyphens, unless JSON_CODES has another."""
    return JSON_CODES.get(error_code) or name_of(error_code).lower().replace("_", "-")


def unlisted_error(error_code: int) -> str:
    try:
        known = ErrorCode(error_code)
    except ValueError:
        return f"error {error_code}, which this command does not know"
    text = known.message.rstrip(".")
    return f"{text[:1].lower()}{text[1:]} ({known.name})"


def name_of(error_code: int) -> str:
    """Kafka's name for a code, for --json."""
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"ERROR_{error_code}"
