"""What the records of a group tell about a rebalance that no note explains."""

from __future__ import annotations

from typing import NamedTuple

from history.compared import Difference, MemberIdentity
from history.confidence import STRONG, WEAK


class Inferred(NamedTuple):
    difference: Difference
    start_lo_ms: int
    start_hi_ms: int  # the end of the join phase
    bounded: bool  # `start_lo_ms` is from the members' timeouts, not only from the previous record
    rounds: int
    cause: str
    strong: bool
    trigger_member: MemberIdentity | None
    evidence: str
    expired: list[MemberIdentity]  # removed members whose session seems to have expired

    @property
    def confidence(self) -> str:
        return STRONG if self.strong else WEAK
