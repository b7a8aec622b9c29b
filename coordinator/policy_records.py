"""Records of group policies in __consumer_offsets: kinds of our own, which Kafka skips."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from protocol.messages.consumer_offsets import (
    AwayMemberKey,
    AwayMemberValue,
    GroupPoliciesKey,
    GroupPoliciesValue,
    PolicyText,
    SeatsKey,
    SeatsValue,
    SeatTakeOver,
    StandbyMember,
)
from protocol.records import AWAY_KEY_VERSION, POLICIES_KEY_VERSION, SEATS_KEY_VERSION, read_record, with_version

POLICIES_VALUE_VERSION: Final = 0
AWAY_VALUE_VERSION: Final = 0
SEATS_VALUE_VERSION: Final = 0


class StoredSeats(NamedTuple):
    """The standbys and take-overs of a generation."""

    generation: int
    standbys: list[tuple[str, str | None, int]]  # member id, instance id, since when (wall time); the longest-waiting first
    take_overs: list[tuple[str, str | None, str, str | None, int]]  # member id, instance id, both of the member that is gone, since when


def policies_key(group_id: str) -> bytes:
    return with_version(GroupPoliciesKey(group_id), POLICIES_KEY_VERSION)


def policies_value(texts: Mapping[str, str]) -> bytes | None:
    """None, a tombstone, when no policy is left."""
    if not texts:
        return None
    return with_version(GroupPoliciesValue([PolicyText(name, text) for name, text in texts.items()]), POLICIES_VALUE_VERSION)


def read_policies(value: bytes) -> dict[str, str]:
    return {one.name: one.text for one in read_record(GroupPoliciesValue, value).policies}


def away_key(group_id: str, instance_id: str) -> bytes:
    return with_version(AwayMemberKey(group_id, instance_id), AWAY_KEY_VERSION)


def away_value(member_id: str, since_ms: int) -> bytes:
    return with_version(AwayMemberValue(member_id, since_ms), AWAY_VALUE_VERSION)


def read_away(value: bytes) -> tuple[str, int]:
    """The member's id, and since when it is away."""
    stored = read_record(AwayMemberValue, value)
    return stored.member_id, stored.since_ms


def seats_key(group_id: str) -> bytes:
    return with_version(SeatsKey(group_id), SEATS_KEY_VERSION)


def seats_value(seats: StoredSeats) -> bytes:
    standbys = [StandbyMember(*one) for one in seats.standbys]
    return with_version(SeatsValue(seats.generation, standbys, [SeatTakeOver(*one) for one in seats.take_overs]), SEATS_VALUE_VERSION)


def read_seats(value: bytes) -> StoredSeats:
    stored = read_record(SeatsValue, value)
    return StoredSeats(
        stored.generation,
        [(one.member_id, one.instance_id, one.since_ms) for one in stored.standbys],
        [(one.member_id, one.instance_id, one.from_member_id, one.from_instance_id, one.since_ms) for one in stored.take_overs],
    )
