"""The page of hooks: where the protocol asks the policies of a group. Each policy's file has a subclass with the hooks that it needs.

The core calls them through the group's door (`door.py`), which asks each policy in one order. A group without policies has no door.
`rules.py` has the protocol itself; no hook changes one of its cells.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar, NamedTuple

from coordinator.calls import JoinRequest, JoinWaiter
from coordinator.classic.group import Group
from coordinator.classic.member import Member, PendingMember
from coordinator.policies.declaration import NO_POLICIES, GroupPolicies, Policy
from coordinator.policies.status import StatusEntry
from coordinator.step_output import StepOutput


class Wait(NamedTuple):
    """How long a forming group or a newcomer waits for others; `complete`: nobody is missing any more."""

    ms: int
    complete: bool = False


class PolicyRules:
    """The rules and the state of one policy, or of some that belong together, for one group."""

    declares: ClassVar[tuple[Policy, ...]] = ()
    explained: ClassVar[bool] = False  # a change affects the present members: the command says how (`cli/groups/policy_effects.py`)
    values: GroupPolicies = NO_POLICIES  # the group's policies; the door sets it

    # Setting, loading, showing.

    @staticmethod
    def problems(before: GroupPolicies, after: GroupPolicies, group: Group | None) -> list[str]:
        """Why the group's policies may not become `after`, a sentence each."""
        return []

    def changed(self, out: StepOutput, group: Group, named: Mapping[str, str], stored: dict[bytes, bytes]) -> None:
        """`values` are new, and the operator has just set those of `named`.

        `stored`: after a load, the group's records of policies. Take out those in force; the door deletes the rest from the log.
        """

    def settled(self, out: StepOutput, group: Group) -> None:
        """Bring the members in line with the policies: after `changed`, a LeaveGroup, and the end of a sync phase."""

    def status(self, group: Group) -> dict[str, list[StatusEntry]]:
        """What the policy does at this moment, by the name of the entry in DescribeConfigs without "status."."""
        return {}

    # Requests.

    def refusal(self, out: StepOutput, group: Group | None, member: Member | None, request: JoinRequest) -> int:
        """The error code of this JoinGroup, before all checks of the protocol but the first two; 0: it is not refused."""
        return 0

    def answers_join(self, out: StepOutput, group: Group, member: Member | None, request: JoinRequest, waiter: JoinWaiter, id: str) -> bool:
        """Answer the JoinGroup of a newcomer (`member` is None), or of a member in STABLE, without a rebalance. False: not this policy's."""
        return False

    def wait(self, group: Group, request: JoinRequest | None) -> Wait | None:
        """How long this newcomer waits for others before a rebalance admits it; without a request: how long a forming group waits."""
        return None

    def id_handed_out(self, out: StepOutput, group: Group, pending: PendingMember, request: JoinRequest) -> None:
        """A member id was handed out for this JoinGroup; its deadline is set."""

    def heard_from(self, out: StepOutput, group: Group, member: Member, synced: bool) -> bool:
        """A request of the member has arrived, a SyncGroup if `synced`. True: its session was restarted."""
        return False

    def return_rebalances(self, group: Group, old: Member, request: JoinRequest) -> bool:
        """STABLE: whether the return of a static member with this JoinGroup begins a rebalance."""
        return False

    # Members.

    def session_ended(self, out: StepOutput, group: Group, member: Member) -> bool:
        """The member's session has ended. True: it was handled, and the member stays."""
        return False

    def member_goes(self, out: StepOutput, group: Group, member: Member, successor: Member | None) -> None:
        """The member is about to be removed, or has been replaced by its successor of the same instance."""

    def without_seat(self) -> Mapping[str, bytes]:
        """The members that the leader assigns nothing to, with the assignment that they get instead."""
        return {}

    # A rebalance.

    def hand_over(self, out: StepOutput, group: Group) -> bool:
        """Members were removed in this step. True: others have taken their seats, so no rebalance is needed."""
        return False

    def rebalance_begins(self, out: StepOutput, group: Group) -> None:
        """A rebalance begins; the group is not PREPARING yet."""

    def generation_begins(self, out: StepOutput, group: Group) -> None:
        """The join phase has ended with members. Remove those that shall not be in the generation."""

    def stored(self, out: StepOutput, group: Group) -> bool:
        """The last fact of this step is the group's record: add what belongs beside it. False: both do not fit into a batch."""
        return True

    def topics_changed(self, out: StepOutput, group: Group, topics: Collection[str]) -> None:
        """These topics were created or deleted, or have another number of partitions."""

    # Groups of the consumer protocol. They have no door: what these say follows from the values alone.

    @staticmethod
    def kept_ms(values: GroupPolicies) -> int:
        """How long a static member is kept after its session ended."""
        return 0

    @staticmethod
    def epoch_reason(named: Mapping[str, str]) -> str:
        """Why the group gets a new epoch, as an operator has just set these values; "": it gets none."""
        return ""
