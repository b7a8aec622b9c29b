"""Fast paths change no reply and no byte of a log, over long random sequences on the same connections.

Two brokers get the same requests at the same times; one of them has no fast paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from broker.fastpath.commit import CommitFastPath
from broker.fastpath.consumer_heartbeat import ConsumerHeartbeatFastPath
from broker.fastpath.heartbeat import HeartbeatFastPath
from broker.fastpath.offset_fetch import OffsetFetchFastPath
from broker.fastpath.rejoin import JoinFastPath, SyncFastPath
from broker.groups.group_journal import GroupJournal
from broker.runtime.build import compiled
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatRequestTopicPartitions
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from tests.broker.fastpath.conftest import changeable_authorizer
from tests.broker.fastpath.test_commit import commit
from tests.broker.fastpath.test_offset_fetch import PARTITIONS, fetching
from tests.coordinator.consumer.classic_words import assignment, subscription
from tests.support.group_harness import GroupClient, GroupHarness
from tests.support.group_requests import joining, syncing

STEPS = 600
# Partitions that a member commits: nearly always the same, so that the commit is learned.
USUAL, UNUSUAL = (0, 2), (2, 0, 1)
SETTING = "consumer.heartbeat.interval.ms"
NEWER = "newer"  # the id of the member of the consumer protocol


class Harness(GroupHarness):
    FRESH_ID = "{:032x}"  # the coordinator of the consumer protocol encodes what it gets

    def of_group(self, group_id: str) -> GroupJournal:
        return self.shards.journal_of(group_id)


class FastPathCounts:
    """Counts the replies of each class of fast path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: dict[str, int] = {}
        for kind in (CommitFastPath, OffsetFetchFastPath, HeartbeatFastPath, ConsumerHeartbeatFastPath, JoinFastPath, SyncFastPath):
            self._count(monkeypatch, kind)

    def _count(self, monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
        answer = kind.answer

        def counted(*arguments: Any) -> Any:
            reply = answer(*arguments)
            if reply is not None:
                self.counts[kind.__name__] = self.counts.get(kind.__name__, 0) + 1
            return reply

        monkeypatch.setattr(kind, "answer", counted)


class Client:
    """One member, with a connection to each of the brokers."""

    def __init__(self, nodes: Sequence[GroupHarness], instance: str | None, join_version: int, commit_version: int) -> None:
        self.peers = [GroupClient(node) for node in nodes]
        self.instance = instance
        self.join_version = join_version
        self.commit_version = commit_version
        self.id = ""
        self.generation = -1
        self.offset = 0
        self.to_own: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = None  # what the coordinator has said last and was not told yet
        self.unanswered: list[Any] = []

    def send(self, request: Any, version: int) -> None:
        self.unanswered.append(request)
        for peer in self.peers:
            peer.send(request, version)
        self.receive()

    def receive(self) -> None:
        """Check that both brokers have sent the same replies."""
        while True:
            replies = [peer.reply() for peer in self.peers]
            assert replies[0] == replies[1]
            if replies[0] is None:
                return
            self.unanswered.pop(0)
            match type(replies[0]).__name__:
                case "JoinGroupResponse":
                    self._joined(replies[0])
                case "ConsumerGroupHeartbeatResponse":
                    self.generation = 0 if replies[0].error_code else max(replies[0].member_epoch, 0)
                    if replies[0].assignment is not None:
                        self.to_own = [
                            ConsumerGroupHeartbeatRequestTopicPartitions(topic.topic_id, topic.partitions)
                            for topic in replies[0].assignment.topic_partitions
                        ]

    def _joined(self, reply: Any) -> None:
        if reply.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.id = ""
        elif reply.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.id = reply.member_id
            if not reply.error_code:
                self.generation = reply.generation_id

    def join(self, random: Random) -> None:
        metadata = subscription(("t",) if random.random() < 0.8 else ("t", "u"), {}, 1, None)
        self.send(joining(id=self.id, instance=self.instance, protocols=(("range", metadata),)), self.join_version)

    def sync(self, members: list[Client], random: Random) -> None:
        assignments = {member.id: assignment({"t": [number]}) for number, member in enumerate(members)} if random.random() < 0.7 else None
        self.send(syncing(self.id, self.generation, assignments, self.instance), 5)

    def beat(self) -> None:
        self.send(HeartbeatRequest("g", self.generation, self.id, self.instance), 4)

    def beat_in_the_newer_protocol(self) -> None:
        """Joins, if it is not in the group; the classic members are members of a group of the consumer protocol then."""
        if self.generation:
            owned, self.to_own = self.to_own, None
            self.send(ConsumerGroupHeartbeatRequest("g", NEWER, self.generation, topic_partitions=owned), 1)
        else:
            self.to_own = None
            self.send(ConsumerGroupHeartbeatRequest("g", NEWER, 0, None, None, 30_000, ["t"], topic_partitions=[]), 1)

    def leave_the_newer_protocol(self) -> None:
        self.send(ConsumerGroupHeartbeatRequest("g", NEWER, -1), 1)

    def commit(self, random: Random) -> None:
        self.offset += 1
        partitions = USUAL if random.random() < 0.95 else UNUSUAL
        request = commit(self.id, self.offset, partitions, generation=self.generation)
        self.send(request, self.commit_version)

    def fetch(self, version: int = 9, partitions: list[int] | None = PARTITIONS) -> None:
        self.send(fetching(version, partitions), version)

    def leave(self) -> None:
        self.send(LeaveGroupRequest("g", [MemberIdentity(self.id, self.instance, None)]), 5)


class NodePair:
    def __init__(self, random: Random, mixed: bool) -> None:
        """`mixed`: a member of the consumer protocol comes and goes, so that the group changes its protocol."""
        self.random = random
        self.mixed = mixed
        self.nodes = [Harness(changeable_authorizer((3, 3, "g"))) for _ in range(2)]
        self.nodes[1].context.trace = lambda direction, call, message: None  # a connection that logs its frames learns no fast path
        self.members = [Client(self.nodes, *versions) for versions in ((None, 9, 10), ("ib", 7, 7), (None, 5, 2))]
        self.watcher = Client(self.nodes, None, 9, 9)
        self.newer = Client(self.nodes, None, 9, 9)
        self.newer.generation = 0

    def do(self, act: Any) -> None:
        for node in self.nodes:
            act(node)
        for client in (*self.members, self.watcher, self.newer):
            client.receive()

    def step(self) -> None:
        random = self.random
        member = random.choice(self.members)
        if self.mixed and random.random() < 0.15:
            if not self.newer.generation and random.random() < 0.7:
                return
            if self.newer.generation and random.random() < 0.15:
                self.newer.leave_the_newer_protocol()
            elif random.random() < 0.05:
                interval = {SETTING: str(random.choice((5_000, 6_000)))}
                self.do(lambda node: node.of_group("g").call(node.of_group("g").shard.policies.replace, "g", interval, interval, node.clock.now, 0))
            else:
                self.newer.beat_in_the_newer_protocol()
                if random.random() < 0.5:
                    self.newer.beat_in_the_newer_protocol()
        action = random.random()
        if action < 0.42:
            member.commit(random)
        elif action < 0.56:
            member.beat()
        elif action < 0.66:
            self.watcher.fetch(*random.choice(((9, PARTITIONS), (10, PARTITIONS), (10, None))))
        elif action < 0.69:
            self.rebalance()
        elif action < 0.70:
            member.sync(self.members, random)
        elif action < 0.71:
            member.join(random)
        elif action < 0.715:
            member.leave()
        elif action < 0.73:
            deleted = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(2)])]
            self.watcher.send(OffsetDeleteRequest("g", deleted), 0)
        elif action < 0.735:
            self.recreate()
        elif action < 0.77:
            self.do(lambda node: setattr(node.log_of("g"), "immediate", False))
        elif action < 0.88:
            self.written()
        elif action < 0.89:
            is_open = random.random() < 0.9
            self.do(lambda node: setattr(node.authorizer, "allows_all", is_open))
        else:
            ms = random.choice((0, 0, 1, 100, 1_500, 4_000))
            self.do(lambda node: node.pass_ms(ms))

    def rebalance(self) -> None:
        self.written()
        for member in self.members:
            member.join(self.random)
        self.do(lambda node: node.pass_ms(0))
        for member in self.members[::-1]:
            member.sync(self.members, self.random)

    def recreate(self) -> None:
        """Delete the topic of the commits, and create it again with another id."""

        def act(node: GroupHarness) -> None:
            node.deletions.delete(["t"], lambda error: None)
            node.topics.create("t", 3, {}, 0)
            node.turn.call_first_at_turn_end(node.registry)
            node.loop.run()

        self.do(act)

    def written(self) -> None:
        """Complete all appends, so that the log has every fact."""

        def write(node: GroupHarness) -> None:
            log = node.log_of("g")
            log.immediate = True
            while log.pending:
                log.succeed()
            node.loop.run()

        self.do(write)

    def check(self) -> None:
        assert self.nodes[0].log_of("g").batches == self.nodes[1].log_of("g").batches


@pytest.mark.parametrize("mixed", [False, True], ids=["classic", "mixed"])
@pytest.mark.parametrize("seed", range(6))
def test_fast_paths_change_no_reply_and_no_stored_byte(seed: int, mixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = FastPathCounts(monkeypatch)
    pair = NodePair(Random(seed), mixed)
    for _ in range(STEPS):
        pair.step()
        pair.check()
    pair.do(lambda node: setattr(node.authorizer, "allows_all", True))
    pair.rebalance()
    pair.watcher.fetch()
    pair.check()
    classic = ("CommitFastPath", "OffsetFetchFastPath", "HeartbeatFastPath", "JoinFastPath", "SyncFastPath")
    kinds = ("HeartbeatFastPath", "ConsumerHeartbeatFastPath") if mixed else classic
    assert compiled() or all(answers.counts.get(kind, 0) > 2 for kind in kinds), answers.counts  # calls of compiled code are not counted
    assert pair.watcher.unanswered == []
