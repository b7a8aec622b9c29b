"""The state of members before and after their coordinator is killed, by phase of the rebalance.

Each phase runs on its own group: `begin` enters it, then the coordinator is killed and started again, `end` checks. The same phases are
run against Apache Kafka with `is_tenure` false: its next coordinator does not know the new id of a static member that returned
during the rebalance, and fences the live process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tests.support.restartable import Actor, assignment_of, await_members, await_state, create_topic, described, gather, settle, sync_all

NONE, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED, FENCED = 0, 22, 25, 27, 79, 82


class Phase(ABC):
    def __init__(self, port: int, is_tenure: bool = True) -> None:
        self.port = port
        self.is_tenure = is_tenure
        self.group = type(self).__name__
        self._actors: list[Actor] = []

    def actor(self, instance: str | None = None, **more: int) -> Actor:
        actor = Actor(self.port, self.group, instance, **more)  # type: ignore[arg-type]
        self._actors.append(actor)
        return actor

    def reconnect(self) -> None:
        for actor in self._actors:
            actor.close()

    close = reconnect

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def end(self) -> None: ...

    def state(self) -> str:
        return described(self.port, self.group).group_state


class Initial(Phase):
    """The group waits for its first members: the log has the group without members.

    Apache Kafka may lose the group itself, as it replies with a member id before the group is stored.
    """

    def begin(self) -> None:
        self.static, self.dynamic = self.actor("static"), self.actor()
        self.static.send_join()
        self.dynamic.take_id()

    def end(self) -> None:
        assert self.state() in (("Empty",) if self.is_tenure else ("Empty", "Dead"))
        assert self.dynamic.join().error_code == UNKNOWN_MEMBER_ID
        self.dynamic.take_id()
        self.dynamic.send_join()
        self.static.send_join("")
        assert (self.dynamic.receive_join().error_code, self.static.receive_join().error_code) == (NONE, NONE)


class Joining(Phase):
    """Two new members have begun a rebalance of a stable group; no member has rejoined. After the kill the rebalance never happened."""

    def begin(self) -> None:
        self.static, self.dynamic, self.new_static, self.new_dynamic = self.actor("a"), self.actor(), self.actor("c"), self.actor()
        settle(self.static, self.dynamic)
        self.new_static.send_join()
        self.new_dynamic.take_id()
        self.new_dynamic.send_join()
        await_members(self.port, self.group, 4)
        assert self.static.heartbeat() == REBALANCE_IN_PROGRESS

    def end(self) -> None:
        assert (self.static.heartbeat(), self.dynamic.heartbeat()) == (NONE, NONE)
        assert self.new_dynamic.join().error_code == UNKNOWN_MEMBER_ID
        assert self.state() == "Stable"
        self.new_static.send_join("")
        self.new_dynamic.take_id()
        self.new_dynamic.send_join()
        await_members(self.port, self.group, 4)
        assert self.static.heartbeat() == REBALANCE_IN_PROGRESS
        before = self.static.generation
        self.dynamic.send_join()
        self.static.send_join()
        for actor in (self.static, self.dynamic, self.new_static, self.new_dynamic):
            assert (actor.receive_join().error_code, actor.generation) == (NONE, before + 1)
        sync_all(self.static, self.dynamic, self.new_static, self.new_dynamic)


class Completing(Phase):
    """All members have joined, but the leader has not assigned: the kill undoes this generation, and the next one gets its number."""

    def begin(self) -> None:
        self.leader, self.member, self.new_static, self.new_dynamic = self.actor("a"), self.actor(), self.actor("c"), self.actor()
        settle(self.leader, self.member)
        self.before = self.leader.generation
        self.new_dynamic.take_id()
        self.new_static.send_join()
        self.new_dynamic.send_join()
        await_members(self.port, self.group, 4)
        self.member.send_join()
        self.leader.send_join()
        for actor in (self.leader, self.member, self.new_static, self.new_dynamic):
            assert actor.receive_join().generation_id == self.before + 1
        self.member.send_sync()

    def end(self) -> None:
        for old in (self.leader, self.member):
            assert old.sync().error_code == ILLEGAL_GENERATION
            assert old.heartbeat() == ILLEGAL_GENERATION
            assert old.heartbeat(self.before) == NONE
        for new in (self.new_static, self.new_dynamic):
            assert new.sync().error_code == UNKNOWN_MEMBER_ID
            assert new.heartbeat() == UNKNOWN_MEMBER_ID
            assert new.join().error_code == UNKNOWN_MEMBER_ID
        assert self.state() == "Stable"
        self.new_static.send_join("")
        await_members(self.port, self.group, 3)
        self.leader.send_join()
        self.member.send_join()
        for actor in (self.leader, self.member, self.new_static):
            assert actor.receive_join().generation_id == self.before + 1
        sync_all(self.leader, self.member, self.new_static)


class Assigned(Phase):
    """The assignments are stored. The leader got its reply to SyncGroup, the other member did not ask yet."""

    def begin(self) -> None:
        self.leader, self.member = self.actor("a"), self.actor()
        gather(self.leader, self.member)
        assignments = {actor.member_id: assignment_of(actor) for actor in (self.leader, self.member)}
        assert self.leader.sync(assignments).error_code == NONE

    def end(self) -> None:
        reply = self.member.sync()
        assert (reply.error_code, reply.assignment) == (NONE, assignment_of(self.member))
        assert (self.leader.heartbeat(), self.member.heartbeat()) == (NONE, NONE)
        assert self.state() == "Stable"


class Stable(Phase):
    """The coordinator is killed while the group is stable: no member notices it. A returning static member keeps its partitions."""

    def begin(self) -> None:
        self.leader, self.static, self.dynamic = self.actor("a"), self.actor("b"), self.actor()
        settle(self.leader, self.static, self.dynamic)
        create_topic(self.port, "topic")
        assert self.dynamic.commit("topic", 0, 17, "where") == NONE

    def end(self) -> None:
        members = (self.leader, self.static, self.dynamic)
        assert [actor.heartbeat() for actor in members] == [NONE] * 3
        assert self.dynamic.commit("topic", 0, 18, "where") == NONE
        generation, old = self.static.generation, self.static.member_id
        rejoined = self.static.join("")
        assert (rejoined.error_code, rejoined.generation_id, rejoined.members) == (NONE, generation, [])
        assert self.static.sync().assignment == assignment_of(self.static)
        assert self.static.heartbeat(member_id=old) == FENCED
        assert [actor.heartbeat() for actor in members] == [NONE] * 3


class ReplacedStable(Phase):
    """A static member rejoined a stable group, and the reply was lost."""

    def begin(self) -> None:
        self.leader, self.static = self.actor("a"), self.actor("b")
        settle(self.leader, self.static)
        self.old = self.static.member_id
        self.answered_process = self.actor("a")  # the restarted process of the leader; it got its reply
        assert self.answered_process.join("").error_code == NONE
        self.static.send_join("")
        while {member.member_id for member in described(self.port, self.group).members} & {self.old}:
            pass

    def end(self) -> None:
        assert self.answered_process.heartbeat() == NONE
        assert self.leader.heartbeat() == FENCED
        assert self.static.heartbeat(member_id=self.old) == FENCED
        reply = self.static.join("")
        assert (reply.error_code, reply.generation_id) == (NONE, self.answered_process.generation)
        assert self.static.sync().assignment == assignment_of(self.static)
        assert (self.answered_process.heartbeat(), self.static.heartbeat()) == (NONE, NONE)
        assert self.answered_process.sync().assignment == assignment_of(self.leader)


class ReplacedWhileJoining(Phase):
    """A static member rejoined during a join phase and has not received its new id yet."""

    def begin(self) -> None:
        self.leader, self.static, self.newcomer = self.actor("a"), self.actor("b"), self.actor("c")
        settle(self.leader, self.static)
        self.newcomer.send_join()
        await_state(self.port, self.group, "PreparingRebalance")
        old = self.static.member_id
        self.static.send_join("")
        while {member.member_id for member in described(self.port, self.group).members} & {old}:
            pass

    def end(self) -> None:
        assert self.leader.heartbeat() == NONE
        reply = self.static.join("")
        assert (reply.error_code, reply.generation_id) == (NONE, self.leader.generation)
        assert self.static.sync().assignment == assignment_of(self.static)
        assert (self.leader.heartbeat(), self.static.heartbeat()) == (NONE, NONE)


class ReplacedInRebalance(Phase):
    """A static member and the leader rejoined during a rebalance and got their new ids; there is no assignment yet."""

    def begin(self) -> None:
        self.leader, self.static, self.member, self.newcomer = self.actor("a"), self.actor("b"), self.actor(), self.actor("c")
        settle(self.leader, self.static, self.member)
        self.before = self.leader.generation
        self.old_ids = (self.leader.member_id, self.static.member_id)
        self.newcomer.send_join()
        await_state(self.port, self.group, "PreparingRebalance")
        self.leader.send_join("")
        self.static.send_join("")
        self.member.send_join()
        for actor in (self.leader, self.static, self.member, self.newcomer):
            assert actor.receive_join().generation_id == self.before + 1

    def end(self) -> None:
        assert self.member.heartbeat(self.before) == NONE
        for actor, old in zip((self.leader, self.static), self.old_ids, strict=True):
            if self.is_tenure:
                assert actor.heartbeat(member_id=old) == FENCED
                assert actor.heartbeat() == ILLEGAL_GENERATION
                assert actor.sync().error_code == ILLEGAL_GENERATION
                assert actor.heartbeat(self.before) == NONE
            else:
                assert (actor.heartbeat(), actor.sync().error_code, actor.join().error_code) == (FENCED, FENCED, FENCED)
        assert self.newcomer.join().error_code == UNKNOWN_MEMBER_ID
        self.newcomer.send_join("")
        await_state(self.port, self.group, "PreparingRebalance")
        for actor in (self.leader, self.static):
            actor.send_join(None if self.is_tenure else "")
        self.member.send_join()
        members = (self.leader, self.static, self.member, self.newcomer)
        for actor in members:
            assert actor.receive_join().generation_id == self.before + 1
        sync_all(*members)


class Left(Phase):
    """A member left, the other stayed. The departure is not in the log, so after the kill the member is back until its session ends."""

    def begin(self) -> None:
        self.static, self.leaver = self.actor("a"), self.actor(session_ms=700)
        settle(self.static, self.leaver)
        assert self.leaver.leave() == NONE

    def end(self) -> None:
        assert len(described(self.port, self.group).members) == 2
        assert self.static.heartbeat() == NONE
        await_state(self.port, self.group, "PreparingRebalance")
        assert self.static.join().error_code == NONE
        assert [member.group_instance_id for member in described(self.port, self.group).members] == ["a"]


class Emptied(Phase):
    """All members left: the group is empty, with its generation and its offsets."""

    def begin(self) -> None:
        self.member = self.actor()
        settle(self.member)
        create_topic(self.port, "topic")
        assert self.member.commit("topic", 0, 5) == NONE
        assert self.member.leave() == NONE

    def end(self) -> None:
        assert self.state() == "Empty"
        assert self.member.heartbeat() == UNKNOWN_MEMBER_ID
        assert self.member.join().error_code == UNKNOWN_MEMBER_ID
        before = self.member.generation
        self.member.take_id()
        # The departure began the next generation after `before`, without members; this join begins the one after it.
        assert self.member.join().generation_id == before + 2


PHASES: list[type[Phase]] = [
    Initial,
    Joining,
    Completing,
    Assigned,
    Stable,
    ReplacedStable,
    ReplacedWhileJoining,
    ReplacedInRebalance,
    Left,
    Emptied,
]
