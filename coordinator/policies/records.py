"""Records of group policies in __consumer_offsets. Kafka skips records of these kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

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
from protocol.records import in_newest_version, read_record


class StoredSeats(NamedTuple):
    """The standbys of a generation, and the unfinished take-overs of removed members' seats (`standby.py`)."""

    generation: int
    standbys: list[tuple[str, str | None, int]]  # member id, instance id, wall time; the longest-waiting first
    take_overs: list[tuple[str, str | None, str, str | None, int]]  # ids of the standby, ids of the removed member, wall time


def policies_key(group_id: str) -> bytes:
    return in_newest_version(GroupPoliciesKey(group_id))


def policies_value(texts: Mapping[str, str]) -> bytes | None:
    """None, a tombstone, if no policy is set."""
    if not texts:
        return None
    return in_newest_version(GroupPoliciesValue([PolicyText(name, text) for name, text in texts.items()]))


def read_policies(value: bytes) -> dict[str, str]:
    return {policy.name: policy.text for policy in read_record(GroupPoliciesValue, value).policies}


def away_key(group_id: str, instance_id: str) -> bytes:
    return in_newest_version(AwayMemberKey(group_id, instance_id))


def away_value(member_id: str, since_ms: int) -> bytes:
    return in_newest_version(AwayMemberValue(member_id, since_ms))


def read_away(value: bytes) -> tuple[str, int]:
    """The member's id, and the begin of its absence."""
    stored = read_record(AwayMemberValue, value)
    return stored.member_id, stored.since_ms


def seats_key(group_id: str) -> bytes:
    return in_newest_version(SeatsKey(group_id))


def seats_value(seats: StoredSeats) -> bytes:
    standbys = [StandbyMember(*standby) for standby in seats.standbys]
    take_overs = [SeatTakeOver(*take_over) for take_over in seats.take_overs]
    return in_newest_version(SeatsValue(seats.generation, standbys, take_overs))


def read_seats(value: bytes) -> StoredSeats:
    stored = read_record(SeatsValue, value)
    return StoredSeats(
        stored.generation,
        [(standby.member_id, standby.instance_id, standby.since_ms) for standby in stored.standbys],
        [(seat.member_id, seat.instance_id, seat.from_member_id, seat.from_instance_id, seat.since_ms) for seat in stored.take_overs],
    )
