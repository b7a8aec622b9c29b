"""The requests and replies of group clients, in order, and the guarantees they must satisfy. No sockets and no clock.

Guarantees: an acknowledged commit is there, or a later one; a generation is used for one assignment; settled members stay settled if
only the broker died; a live process is never fenced; no client waits for ever (the waiting code reports that with `wrong`).
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.errors import ErrorCode

Place = tuple[str, int]  # a group and a partition

# Errors after which a member has to join again.
UNSETTLING = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS)
RETRIABLE = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
# Codes after which a careful client continues; any other would have stopped it.
EXPECTED: dict[str, tuple[int, ...]] = {
    "JoinGroup": (*RETRIABLE, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS),
    "SyncGroup": (*RETRIABLE[1:], *UNSETTLING),  # 14 ends a Java consumer that syncs
    "Heartbeat": (*RETRIABLE[1:], *UNSETTLING),
    "LeaveGroup": (*RETRIABLE, ErrorCode.UNKNOWN_MEMBER_ID),
    "OffsetCommit": (*RETRIABLE, *UNSETTLING),
    "OffsetFetch": (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR),  # 15 ends Java consumers before 3.9
    "DeleteGroups": RETRIABLE,
    "FindCoordinator": (ErrorCode.COORDINATOR_NOT_AVAILABLE,),
}


class Assignment(NamedTuple):
    """An assignment given to a member: the round is the leader's mark, the same for all and never used twice."""

    round: str
    partitions: tuple[int, ...]


class Seat(NamedTuple):
    generation: int
    assignment: Assignment


class Register:
    """The offsets sent for one partition: all different, and growing."""

    __slots__ = ("acknowledged", "deletions", "refused", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged = 0
        self.refused: set[int] = set()
        self.deletions: set[int] = set()


class Ledger:
    def __init__(self) -> None:
        self.life = 0  # how often the broker was restarted
        self.wrong: list[str] = []
        self.counts: dict[str, int] = {}
        self._registers: dict[Place, Register] = {}
        self._rounds: dict[tuple[str, int], str] = {}
        self._seats: dict[tuple[str, int], dict[str, Assignment]] = {}
        self._newest: dict[str, int] = {}  # the newest generation in which a group got an assignment
        self._floors: dict[str, int] = {}  # and that generation at the last restart
        self._settled: dict[str, dict[str, Seat]] = {}

    def broken(self, what: str) -> None:
        self.wrong.append(f"life {self.life}: {what}")

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def restarted(self) -> None:
        self.life += 1
        self._floors = dict(self._newest)

    # Offsets.

    def _register(self, place: Place) -> Register:
        return self._registers.setdefault(place, Register())

    def commit_sent(self, place: Place) -> int:
        """The offset to commit: the next number of this partition."""
        register = self._register(place)
        register.sent += 1
        return register.sent

    def deletion_sent(self, place: Place) -> int:
        number = self.commit_sent(place)
        self._register(place).deletions.add(number)
        return number

    def acknowledged(self, place: Place, number: int) -> None:
        register = self._register(place)
        register.acknowledged = max(register.acknowledged, number)
        self.count("acknowledged")

    def refused(self, place: Place, number: int) -> None:
        """The commit was refused: it was not stored. Retriable codes leave that open."""
        self._register(place).refused.add(number)

    def fetch_begun(self, place: Place) -> int:
        """The offsets that the reply must have at least."""
        return self._register(place).acknowledged

    def fetched(self, place: Place, offset: int, floor: int) -> None:
        """-1: there is no offset."""
        register = self._register(place)
        where = f"{place[0]} partition {place[1]}"
        self.count("fetched")
        if offset == -1:
            if floor and not any(number >= floor for number in register.deletions):
                self.broken(f"lost commit: {where} has no offset, acknowledged was {floor}")
        elif offset < floor or (offset == floor and floor in register.deletions):
            was = "was deleted" if floor in register.deletions else "was acknowledged"
            self.broken(f"lost commit: {where} has {offset}, {floor} {was}")
        elif offset > register.sent or offset in register.deletions:
            self.broken(f"invented commit: {where} has {offset}, which nobody sent")
        elif offset in register.refused:
            self.broken(f"refused commit: {where} has {offset}, whose commit was answered with an error")

    # Generations and assignments.

    def synced(self, group: str, seat: str, generation: int, assignment: Assignment, asked_in_life: int) -> None:
        """A SyncGroup was answered with an assignment; `seat` is the instance, or the id of a dynamic member."""
        self.count("synced")
        where = f"{group} generation {generation}"
        first = self._rounds.setdefault((group, generation), assignment.round)
        if first != assignment.round:
            self.broken(f"two assignments: {where} was handed out for round {first} and for {assignment.round}")
        seats = self._seats.setdefault((group, generation), {})
        before = seats.setdefault(seat, assignment)
        if before != assignment:
            self.broken(f"two assignments: {where} gave {seat} {before.partitions} and then {assignment.partitions}")
        for other, given in seats.items():
            if other != seat and set(given.partitions) & set(assignment.partitions):
                self.broken(f"two owners: {where} gave {other} {given.partitions} and {seat} {assignment.partitions}")
        if asked_in_life == self.life and generation < self._floors.get(group, 0):
            self.broken(f"forgotten generation: {where} is handed out after {self._floors[group]} was")
        self._newest[group] = max(self._newest.get(group, 0), generation)
        place = self._settled.get(group, {}).get(seat)
        if place is not None and (place.generation, place.assignment) != (generation, assignment):
            self.broken(f"lost seat: {seat} of {where} sat in generation {place.generation} with {place.assignment.partitions}")

    def settled(self, group: str, seats: dict[str, Seat]) -> None:
        """All members are settled: from now on only `disturbed` may change that."""
        self._settled[group] = dict(seats)

    def disturbed(self, group: str) -> None:
        self._settled.pop(group, None)

    def is_settled(self, group: str) -> bool:
        return group in self._settled

    def answered(self, group: str, seat: str, api: str, code: int) -> None:
        """An error reply to a live member under its current identity."""
        self.count(f"{api} {code}")
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self.broken(f"fenced: {seat} of {group} lives, and its {api} was answered 82")
        elif code not in EXPECTED[api]:
            self.broken(f"unexpected code: {api} of {seat} of {group} was answered {code}")
        elif code in UNSETTLING and group in self._settled:
            self.broken(f"rebalance without cause: {api} of {seat} of {group} was answered {code}, all had been settled")
