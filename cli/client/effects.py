"""What each request of this command does when it is sent again, or is not answered: two facts that do not follow from each other.

OffsetCommit may be sent again and changes something; JoinGroup may not, and leaves nothing that a user would have to check.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cli.client.connection import api_name
from cli.failure import Failure
from protocol.message import Message

CHECK_FIRST: Final = "check whether it was done before trying again"


class Effect(NamedTuple):
    """`repeatable`: after a lost reply it may be sent again without harm. `changes`: without a reply, it may have changed what a user relies on."""

    repeatable: bool
    changes: bool


READS: Final = Effect(repeatable=True, changes=False)
SETS: Final = Effect(repeatable=True, changes=True)  # twice is the same as once
CHANGES: Final = Effect(repeatable=False, changes=True)  # a second one fails, or changes more
JOINS: Final = Effect(repeatable=False, changes=False)  # a member's own steps, which the member itself repeats in their order

EFFECTS: Final[dict[str, Effect]] = {
    "AlterConfigs": CHANGES,
    "ApiVersions": READS,
    "ConsumerGroupDescribe": READS,
    "CreatePartitions": CHANGES,
    "CreateTopics": CHANGES,
    "DeleteGroups": CHANGES,
    "DeleteRecords": SETS,
    "DeleteTopics": CHANGES,
    "DescribeCluster": READS,
    "DescribeConfigs": READS,
    "DescribeGroups": READS,
    "DescribeLogDirs": READS,
    "DescribeQuorum": READS,
    "DescribeTopicPartitions": READS,
    "Fetch": READS,
    "FindCoordinator": READS,
    "Heartbeat": READS,
    "IncrementalAlterConfigs": CHANGES,
    "InitProducerId": READS,  # the ids of a lost reply are never used
    "JoinGroup": JOINS,
    "LeaveGroup": CHANGES,
    "ListConfigResources": READS,
    "ListGroups": READS,
    "ListOffsets": READS,
    "Metadata": READS,
    "OffsetCommit": SETS,
    "OffsetDelete": SETS,
    "OffsetFetch": READS,
    "OffsetForLeaderEpoch": READS,
    "Produce": CHANGES,
    "SaslAuthenticate": READS,
    "SaslHandshake": READS,
    "SyncGroup": JOINS,
}


def effect_of(request: Message) -> Effect:
    """The row of the request; one that only asks whether it would be accepted changes nothing."""
    effect = EFFECTS[api_name(request)]
    return READS if effect.changes and getattr(request, "validate_only", False) else effect


class Unanswered(Failure):
    """A request that may have taken effect was sent and not answered. `problem`: the same failure without the advice to check."""

    def __init__(self, problem: Failure) -> None:
        super().__init__(problem.exit_code, f"{problem.line}; it may have taken effect: check before trying again", kind=problem.kind, hint=CHECK_FIRST)
        self.problem = problem

    def of(self, subject: str) -> Unanswered:
        """The same, about one of several things that were changed: "group orders"."""
        return Unanswered(self.problem.with_line(f"{subject}: {self.problem.line}"))
