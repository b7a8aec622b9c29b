"""Groups of every kind in one coordinator, with members that reconnect when another server takes over its data."""

from __future__ import annotations

from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from tests.running import Client
from tests.support.restartable import Actor, assignment_of, create_topic, settle

DAY_MS = 86_400_000
TOPICS = ("orders", "payments")


class SampleGroups:
    """`settle` makes groups with these names: statics, dynamics, mixed (a member replaced, then a rebalance), simple, expiring, emptied, deleted."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.statics = [self._actor("statics", f"seat-{number}") for number in range(3)]
        self.dynamics = [self._actor("dynamics") for _ in range(2)]
        self.mixed = [self._actor("mixed", "keeper"), self._actor("mixed")]

    def _actor(self, group: str, instance: str | None = None) -> Actor:
        return Actor(self.port, group, instance, offers="range roundrobin", client_id="people")

    @property
    def members(self) -> list[Actor]:
        return [*self.statics, *self.dynamics, *self.mixed]

    def move(self, port: int) -> None:
        """Reconnect all members to another port. They keep their member ids and generations."""
        self.port = port
        for actor in self.members:
            actor.port = port
            actor.close()

    def close(self) -> None:
        self.move(self.port)

    def create_topics(self) -> None:
        for topic in TOPICS:
            create_topic(self.port, topic)

    def settle(self) -> None:
        self.create_topics()
        settle(*self.statics)
        settle(*self.dynamics)
        settle(*self.mixed)
        for number, actor in enumerate(self.members):
            assert actor.commit("orders", number % 3, 100 + number, f"by {number}") == 0
        assert self.statics[0].commit("payments", 1, 8) == 0
        # A static member rejoins without its member id: the group record is written again.
        rejoined = self.statics[2].join("")
        assert (rejoined.error_code, self.statics[2].sync().assignment) == (0, assignment_of(self.statics[2]))
        assert self.commit_alone("simple", [(0, 1, "one"), (1, 2**40, ""), (2, 0, "ünï")]) == [0, 0, 0]
        self.delete_offset("simple", "orders", 0)
        assert self.commit_alone("expiring", [(0, 55, "soon")], 2, 3 * DAY_MS) == [0]
        assert self.commit_alone("deleted", [(0, 1, "")]) == [0]
        self.delete("deleted")
        leaver = self._actor("emptied")
        settle(leaver)
        assert leaver.commit("orders", 1, 77, "left") == 0
        assert leaver.leave() == 0
        leaver.close()

    def check_seats_kept(self) -> None:
        """Check that each member continues without an error, with the same assignment and a new commit; also after a static restart."""
        for actor in self.members:
            assert actor.heartbeat() == 0
            assert actor.sync().assignment == assignment_of(actor)
        for number, actor in enumerate(self.members):
            assert actor.commit("orders", number % 3, 200 + number, f"again by {number}") == 0
        keeper = self.mixed[0]
        generation, old = keeper.generation, keeper.member_id
        rejoined = keeper.join("")
        assert (rejoined.error_code, rejoined.generation_id) == (0, generation)
        assert keeper.member_id != old
        assert keeper.heartbeat(member_id=old) == 82
        assert keeper.sync().assignment == assignment_of(keeper)
        assert [actor.heartbeat() for actor in self.members] == [0] * len(self.members)

    def commit_alone(self, group: str, offsets: list[tuple[int, int, str]], version: int = 8, retention_ms: int = -1) -> list[int]:
        parts = [OffsetCommitRequestPartition(partition, offset, 3 if version > 5 else -1, text) for partition, offset, text in offsets]
        request = OffsetCommitRequest(group, retention_time_ms=retention_ms, topics=[OffsetCommitRequestTopic("orders", parts)])
        with Client(self.port) as client:
            reply = client.ask(request, version)
        return [partition.error_code for partition in reply.topics[0].partitions]

    def delete(self, group: str) -> None:
        with Client(self.port) as client:
            assert client.ask(DeleteGroupsRequest([group]), 2).results[0].error_code == 0

    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        request = OffsetDeleteRequest(group, [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(partition)])])
        with Client(self.port) as client:
            reply = client.ask(request, 0)
        assert (reply.error_code, reply.topics[0].partitions[0].error_code) == (0, 0), reply
