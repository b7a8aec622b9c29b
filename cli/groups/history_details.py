"""What the records of a group tell about an entry of its history besides the entry itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from history.consumer import is_cooperative

if TYPE_CHECKING:
    from history import GroupRecord, Move, RebalancesMissing
    from history.conclusion import Inferred


class Details(NamedTuple):
    """What the records of the group tell about an entry besides. `moves`: of partitions in a rebalance; None if they are unknown."""

    moves: list[Move] | None
    total: int
    protocol: str
    before_known: bool = True  # whether the owners before are known; otherwise `moves` has the owners after it
    inferred: Inferred | None = None  # the cause, if notes do not have it
    notes_kept: bool = True  # whether the cluster keeps notes about groups; Apache Kafka does not

    @property
    def cooperative(self) -> bool:
        return is_cooperative(self.protocol)


NOTHING_KNOWN = Details(None, 0, "")


def seats_kept(inferred: Inferred) -> set[str]:
    """The member ids, old and new, of static members that returned: they neither left nor joined."""
    return {member.member_id for pair in inferred.difference.returned for member in pair if member.instance_id is not None}


def members_around(entry: RebalancesMissing, after: GroupRecord) -> tuple[int, int]:
    """The number of members before and after the rebalance."""
    return len(entry.before.member_ids) if entry.before is not None else 0, len(after.member_ids)
