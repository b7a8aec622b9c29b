"""ListGroups of every broker: which groups there are, and whether some of them may be missing.

A group is listed by its coordinator, the leader of its partition of `__consumer_offsets`. So all groups are there if the leaders of all these
partitions have answered, whatever other brokers do; and the groups of a partition without a leader are missing although every broker has answered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cli.client import Exit, Failure, check, failure
from cli.client.replies import MOVED_COORDINATOR
from protocol.messages.list_groups import ListGroupsRequest

if TYPE_CHECKING:
    from cli.client import Cluster

OFFSETS: Final = "__consumer_offsets"
STATES_VERSION: Final = 4  # of ListGroups
TYPES_VERSION: Final = 5


class Answer(NamedTuple):
    broker: int
    version: int  # of ListGroups
    reply: Any


class Listing(NamedTuple):
    """`problems`: why groups are missing; if there are none, all groups are there."""

    answers: list[Answer]
    problems: list[Failure]

    @property
    def groups(self) -> Iterator[Any]:
        return (group for answer in self.answers for group in answer.reply.groups)


def list_everywhere(cluster: Cluster, states: Sequence[str] = (), types: Sequence[str] = ()) -> Listing:
    """Ask every broker. Waits until the coordinators of all groups have answered, or until the time of the command is up."""
    wait = cluster.wait()
    while True:
        leaders_before = offsets_leaders(cluster)
        answers, silent = ask_all(cluster, states, types)
        leaders = offsets_leaders(cluster)
        problems = missing_groups(silent, [answer.broker for answer in answers], leaders)
        moved = leaders != leaders_before
        if not problems and not moved:
            return Listing(answers, [])
        while wait.again():
            if moved or has_changed(cluster, silent, leaders):
                break
        else:
            if not answers:
                raise next(iter(silent.values()))
            return Listing(answers, problems or [Failure(Exit.AGAIN, "coordinators of groups have moved meanwhile: groups may be missing here; try again")])


def ask_all(cluster: Cluster, states: Sequence[str], types: Sequence[str]) -> tuple[list[Answer], dict[int, Failure]]:
    """The answers, and the failures of brokers that do not answer, or are still loading groups."""
    answers: list[Answer] = []
    silent: dict[int, Failure] = {}
    alone = len(cluster.brokers) == 1
    for broker_id in cluster.answering_first(cluster.brokers):
        try:
            version = cluster.version(ListGroupsRequest.API_KEY, broker_id, retry=alone)
            request = ListGroupsRequest(list(states) if version >= STATES_VERSION else [], list(types) if version >= TYPES_VERSION else [])
            reply = cluster.send_to_broker(broker_id, request, retry=alone)
        except Failure as trouble:
            if trouble.exit_code != Exit.UNREACHABLE or alone:
                raise
            silent[broker_id] = trouble
            continue
        if reply.error_code in MOVED_COORDINATOR:
            silent[broker_id] = failure(reply.error_code, f"broker {broker_id}")
        else:
            check(reply.error_code, f"broker {broker_id}")
            answers.append(Answer(broker_id, version, reply))
    return answers, silent


def offsets_leaders(cluster: Cluster) -> list[int] | None:
    """The leader of each partition of __consumer_offsets, -1 for none; None if there is no such topic yet, or not for this user."""
    topic = cluster.topics([OFFSETS], refresh=True)[OFFSETS]
    return None if topic.error else [partition.leader for partition in topic.partitions.values()]


def missing_groups(silent: dict[int, Failure], answered: Collection[int], leaders: list[int] | None) -> list[Failure]:
    """A failure for each reason why groups may be missing."""
    problems = [
        Failure(Exit.AGAIN, f"{trouble.line}: its groups are missing here", kind=trouble.kind)
        for broker_id, trouble in silent.items()
        if leaders is None or broker_id in leaders
    ]
    without_leader = sum(leader not in answered and leader not in silent for leader in leaders or ())
    if without_leader:
        noun = "partition" if without_leader == 1 else "partitions"
        line = f"{without_leader} {noun} of {OFFSETS} {'has' if without_leader == 1 else 'have'} no leader at the moment: the groups there are missing here"
        problems.append(Failure(Exit.AGAIN, line))
    return problems


def has_changed(cluster: Cluster, silent: dict[int, Failure], leaders: list[int] | None) -> bool:
    """Whether it is worth to ask again: other brokers lead now, or a silent one answers."""
    if offsets_leaders(cluster) != leaders:
        return True
    for broker_id in silent:
        if broker_id not in cluster.brokers:
            return True
        try:
            cluster.version(ListGroupsRequest.API_KEY, broker_id, retry=False)
        except Failure:
            continue
        return True
    return False
