"""The administrator: creates topics, and deletes topics, groups, offsets and members while clients use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from coordinator.states import PREPARING
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from simulator.client import RETRIED, Client, Process, Request, Wire
from simulator.commit import Commit
from simulator.plan import GroupPlan
from simulator.world import MS, SECOND, Broken

if TYPE_CHECKING:
    from simulator.run import Run

ADDRESS: Final = "10.9.9.9"
PAUSE_NS: Final = 100 * MS
REQUEST_NS: Final = 30 * SECOND
FORGOTTEN_NS: Final = 60 * SECOND
TRIES: Final = 40
LATEST: Final = -1
DELETIONS: Final = (1, 2, 4)  # of acts
RESET: Final = 5
RESET_VERSION: Final = 7

Removals = list[tuple[tuple[str, str, int], Any]]  # places, and what the promise about offsets knows of their removal


class Administrator(Client):
    def __init__(self, run: Run) -> None:
        super().__init__(run.world, "administrator")
        self._run_ = run
        self.deleted: set[str] = set()  # topics that were deleted at some time

    def _wire(self) -> Wire | None:
        return self._run_.wire(self.name, ADDRESS)

    # Topics.

    def create_topics(self) -> Process:
        """Create all topics of the plan."""
        run = self._run_
        yield from self._create({**run.topics, **{producer.topic: producer.partitions for producer in run.producers}})

    def _create(self, topics: dict[str, int]) -> Process:
        run = self._run_
        pending = dict(topics)
        while pending:
            wire = self._wire()
            if wire is None:
                yield PAUSE_NS
                continue
            settings = [CreatableTopicConfig(*setting) for setting in run.plan.topic_settings]
            wanted = [
                CreatableTopic(name, partitions, 1, None, settings if name.startswith("data") else None) for name, partitions in pending.items()
            ]
            asked = wire.ask(CreateTopicsRequest(wanted, 10_000, False), 5, REQUEST_NS)
            yield asked
            if not asked.lost:
                for result in asked.reply.topics:
                    if result.error_code == ErrorCode.INVALID_CONFIG:
                        raise Broken("administration", str(result.error_message))
                    if result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        pending.pop(result.name, None)
                        run.records.created(result.name)
                        run.created.add(result.name)
            wire.close()
            yield PAUSE_NS

    def delete_topic(self) -> Process:
        """Delete a topic that clients use, see that it is gone, and create it again under the same name."""
        run = self._run_
        if not run.created:
            return
        name = self.world.random.choice(sorted(run.created))
        partitions = {**run.topics, **{producer.topic: producer.partitions for producer in run.producers}}[name]
        self.world.say(f"administrator: deletes topic {name}", "node")
        self.world.count("topic deleted", 1)
        run.created.discard(name)
        self.deleted.add(name)
        run.records.deleted(name)
        removals = self._removals([(group.name, topic, number) for group, topic, number in self._places() if topic == name])
        gone = False
        while not gone:
            wire = self._wire()
            if wire is not None:
                asked = wire.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5, REQUEST_NS)
                yield asked
                gone = not asked.lost and asked.reply.responses[0].error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                wire.close()
            yield PAUSE_NS
        if asked.reply.responses[0].error_code == ErrorCode.NONE:
            self._removed(removals, ErrorCode.NONE)
        else:  # an attempt without a reply did it, and its groups may not have forgotten the offsets yet
            self.world.after(FORGOTTEN_NS, self._removed, removals, None)
        yield from self._see_it_gone(name)
        yield self.world.random.choice((PAUSE_NS, SECOND, 10 * SECOND))
        yield from self._create({name: partitions})
        self.world.say(f"administrator: topic {name} is there again", "node")

    def _places(self) -> list[tuple[GroupPlan, str, int]]:
        groups = self._run_.plan.groups
        return [(group, topic, number) for group in groups for topic, partitions in group.settings.topics for number in range(partitions)]

    def _see_it_gone(self, name: str) -> Process:
        wire = self._wire()
        if wire is None:
            return
        asked = wire.ask(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, LATEST)])]), 5, REQUEST_NS)
        yield asked
        if not asked.lost and asked.reply.topics[0].partitions[0].error_code == ErrorCode.NONE:
            raise Broken("topics", f"{name} is there, and its deletion was acknowledged", name)
        wire.close()

    # Groups.

    def act(self) -> Process:
        """One act on one group."""
        run, random = self._run_, self.world.random
        asks = self._wire()
        if asks is None:
            return
        group = random.choice(run.plan.groups)
        act = random.randrange(5)
        if run.plan.resets and act in DELETIONS:
            act = RESET
        if act == 4:
            yield from self._retire(group)
        wire = yield from run.at_coordinator(asks, group.name)
        if wire is None:
            return
        if act == 0:
            asked = wire.ask(DescribeGroupsRequest([group.name], False), 5, REQUEST_NS)
            yield asked
        elif act == 1:
            yield from self._delete_group(wire, group)
        elif act == 2:
            yield from self._delete_offsets(wire, group)
        elif act == RESET:
            yield from self._reset_offsets(wire, group)
        elif act == 3 and group.static:
            instance = f"i{random.randrange(group.static)}"
            self.world.say(f"administrator: removes {instance} of {group.name}", group.name)
            asked = wire.ask(LeaveGroupRequest(group.name, [MemberIdentity("", instance, "removed")]), 5, REQUEST_NS)
            yield asked
        elif act == 4:
            for _ in range(TRIES):
                asked = yield from self._delete_group(wire, group)
                if asked.lost or asked.reply.results[0].error_code != ErrorCode.NON_EMPTY_GROUP:
                    break
                yield 3 * PAUSE_NS
        wire.close()

    def _retire(self, group: GroupPlan) -> Process:
        """Every member leaves, and comes back later."""
        run = self._run_
        self.world.say(f"administrator: ends every member of {group.name}", group.name)
        for consumer in run.consumers:
            if consumer.group == group.name:
                consumer.close(True)
                self.world.after(self.world.between(SECOND, 20 * SECOND), run.start, consumer)
        yield 3 * PAUSE_NS

    def _delete_group(self, wire: Wire, group: GroupPlan) -> Any:
        run = self._run_
        removals = self._removals([(group.name, topic, number) for each, topic, number in self._places() if each is group])
        run.generations.may_begin_again(group.name)
        found = run.in_memory(group.name)
        asked = wire.ask(DeleteGroupsRequest([group.name]), 2, REQUEST_NS)
        self._when_settled(asked, removals, lambda reply: self._removed(removals, reply.results[0].error_code))
        yield asked
        deleted = not asked.lost and asked.reply.results[0].error_code == ErrorCode.NONE
        if deleted and found is not None and found.members and run.served_since(group.name, asked.sent):
            raise Broken("deletions", f"{group.name} was deleted, and had members", group.name)
        return asked

    def _members_of(self, group: GroupPlan) -> object:
        """Another object whenever the members have changed; None: there are none."""
        found = self._run_.in_memory(group.name)
        return found.version if found is not None and found.members else None

    def _consumers_of(self, group: GroupPlan) -> object:
        """The same, and None also before the end of a join phase: what its members subscribe to counts from then on."""
        found = self._run_.in_memory(group.name)
        return self._members_of(group) if found is not None and found.state is not PREPARING else None

    def _reset_offsets(self, wire: Wire, group: GroupPlan) -> Process:
        """Commit without a generation, as tools do: only an empty group takes it."""
        run = self._run_
        if not run.offsets.surely_has(group.name, run.retention_ns):
            run.generations.may_begin_again(group.name)
        owned = [(topic, number) for each, topic, number in self._places() if each is group]
        commit = Commit(group.name, -1, "", None, owned, RESET_VERSION)
        values = run.offsets.send(commit.places)
        members = self._members_of(group)
        asked = wire.ask(commit.message, commit.version, REQUEST_NS, None, commit.encode(values))

        def settled(reply: Any) -> None:
            codes = commit.codes(reply) or [ErrorCode.NONE] * len(values) if reply is not None and not run.lapsed(asked) else [None] * len(values)
            for place, value, code in zip(commit.places, values, codes, strict=True):
                self._removed([(place, value)], code)
            if ErrorCode.NONE in codes and members is not None and self._members_of(group) is members:
                raise Broken("offsets", f"{group.name} takes a commit without a generation, and has members", group.name)

        if asked.lost:
            settled(None)
        else:
            asked.settled = settled
        yield asked

    def _delete_offsets(self, wire: Wire, group: GroupPlan) -> Process:
        run = self._run_
        removals = self._removals([(group.name, topic, number) for each, topic, number in self._places() if each is group])
        by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for (_, topic, number), _ in removals:
            by_topic.setdefault(topic, []).append(OffsetDeleteRequestPartition(number))
        consumed = self._consumers_of(group) if run.plan.policies is None else None
        asked = wire.ask(OffsetDeleteRequest(group.name, [OffsetDeleteRequestTopic(topic, parts) for topic, parts in by_topic.items()]), 0, REQUEST_NS)

        def settled(reply: Any) -> None:
            if reply.error_code:
                self._removed(removals, reply.error_code)
                return
            codes = {(topic.name, each.partition_index): each.error_code for topic in reply.topics for each in topic.partitions}
            if consumed is not None and self._consumers_of(group) is consumed and ErrorCode.NONE in codes.values():
                raise Broken("deletions", f"offsets of {group.name} are deleted, and its members consume the topic", group.name)
            for place, removal in removals:
                self._removed([(place, removal)], codes.get((place[1], place[2])))

        self._when_settled(asked, removals, settled)
        yield asked

    def _when_settled(self, asked: Request, removals: Removals, answered: Any) -> None:
        def settled(reply: Any) -> None:
            if reply is None or self._run_.lapsed(asked):
                self._removed(removals, None)
            else:
                answered(reply)

        if asked.lost:
            settled(None)
        else:
            asked.settled = settled

    def _removals(self, places: list[tuple[str, str, int]]) -> Removals:
        return [(place, self._run_.offsets.send_removal(place)) for place in places]

    def _removed(self, removals: Removals, code: int | None) -> None:
        offsets = self._run_.offsets
        for place, removal in removals:
            if code == ErrorCode.NONE or code == ErrorCode.GROUP_ID_NOT_FOUND:
                offsets.acknowledged(place, removal)
            elif code is None or code in RETRIED:
                offsets.unknown(place, removal)
            else:
                offsets.refused(place, removal)
        if code == ErrorCode.NONE:
            self.world.count("offsets deleted", 1)
