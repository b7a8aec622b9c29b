"""The groups of the consumer protocol in a run: their members, what disturbs them, and when they are stable."""

from __future__ import annotations

import re
from typing import Any, Final

from simulator.administrator import Administrator
from simulator.epoch_administrator import EpochAdministrator
from simulator.epoch_member import EpochMember
from simulator.epoch_plan import EpochGroupPlan, EpochPlan
from simulator.epoch_promises import TopicPartition
from simulator.epoch_watch import EpochWatch
from simulator.memory import Memory
from simulator.scene import Scene
from simulator.world import SECOND

CONVERGES_NS: Final = 30 * SECOND  # resolutions of expressions are ten seconds apart
LAST_DISTURBANCES: Final = 2
CLOSE_ALL: Final = 0.1  # share of the administrator's actions


class EpochGroups:
    def __init__(self, scene: Scene, plan: EpochPlan, watch: EpochWatch, administrator: Administrator) -> None:
        self._scene = scene
        self._world = scene.world
        self.plan = plan
        self._watch = watch
        self._administrator = administrator
        self.administrator = EpochAdministrator(scene, watch, administrator)
        self._disturbances = 0  # after the faults
        self.members: list[EpochMember] = []
        for group in plan.groups:
            for number in range(group.static):
                self.members.append(EpochMember(scene, watch, group, f"{group.name}/s{number}", f"i{number}"))
            for number in range(group.dynamic):
                self.members.append(EpochMember(scene, watch, group, f"{group.name}/d{number}", None))

    def start(self) -> None:
        for member in self.members:
            self._world.after(self._world.between(0, 5 * SECOND), member.restart)

    # Faults.

    def kill_member(self) -> None:
        """End a process, in order or at once, and restart it later."""
        world = self._world
        member = world.random.choice(self.members)
        world.count("member ended", 1)
        if not member.running:
            member.restart()
            return
        choice = world.random.random()
        if choice < 0.4:
            member.kill()
        else:
            member.close(choice > 0.9)
        session = self.plan.session_ns
        world.after(world.between(0, session // 2 if world.chance(0.6) else 3 * session), member.restart)

    def freeze_member(self) -> None:
        member = self._world.random.choice(self.members)
        duration = self._world.between(0, 2 * self.plan.session_ns)
        self._world.trace(f"{member.name}: frozen for {duration // 1_000_000} ms", member.group)
        self._world.count("member frozen", 1)
        member.freeze(duration)

    def start_twin(self) -> None:
        """Run a second process with the instance id of a static member for a while."""
        static = [member for member in self.members if member.instance is not None]
        if static:
            self._world.count("twin of a member", 1)
            twin = self._world.random.choice(static).twin()
            self.members.append(twin)
            twin.start()
            self._world.after(self._world.between(SECOND, 20 * SECOND), self._end_twin, twin)

    def _end_twin(self, twin: EpochMember) -> None:
        twin.retired = True
        twin.kill()
        self.members.remove(twin)

    def administer(self) -> None:
        if self.administrator.running:
            return
        group = self._world.random.choice(self.plan.groups)
        if self._world.chance(CLOSE_ALL):
            self._world.trace(f"{self.administrator.name}: closes every member of {group.name}", group.name)
            for member in self.members:
                if member.group == group.name:
                    member.close(for_good=True)
                    self._world.after(self._world.between(SECOND, 10 * SECOND), member.restart)
            self._world.after(SECOND // 2, self._delete, group)
        else:
            self.administrator.run(self.administrator.act(group))

    def _delete(self, group: EpochGroupPlan) -> None:
        if not self.administrator.running:
            self.administrator.run(self.administrator.delete(group))

    def grow_topic(self) -> None:
        if not self._administrator.running:
            self._administrator.run(self.administrator.grow())

    def create_topic(self) -> None:
        if not self._administrator.running:
            self._administrator.run(self.administrator.create())

    # The end.

    def disturb_again(self) -> bool:
        """All groups are stable: disturb each in one way, after which it must be stable again. False: it was done often enough."""
        if self._disturbances == LAST_DISTURBANCES:
            return False
        self._disturbances += 1
        world = self._world
        for group in self.plan.groups:
            members = [member for member in self.members if member.group == group.name and member.running]
            if members:
                member = world.random.choice(members)
                world.random.choice((member.resubscribe, member.close, member.kill, self.grow_topic, self.create_topic))()
                if not member.running:
                    world.after(world.between(SECOND, 5 * SECOND), member.restart)
        return True

    @property
    def busy(self) -> bool:
        """Whether a topic grows or is created."""
        return self._administrator.running

    def end_faults(self) -> None:
        for member in self.members:
            if not member.running:
                self._world.after(self._world.between(0, 5 * SECOND), member.restart)

    @property
    def bound_ns(self) -> int:
        """How long the groups may need to become stable each time, without the network and the log."""
        return (1 + LAST_DISTURBANCES) * (2 * self.plan.session_ns + 2 * max(group.rebalance_ns for group in self.plan.groups) + CONVERGES_NS)

    def unstable(self, group: EpochGroupPlan) -> str:
        """Say why the group is not stable; "" if it is: each member owns its target, and together they own each partition of their topics."""
        members = [member for member in self.members if member.group == group.name and member.running]
        memory = next((memory for memory in self._scene.coordinators.memories.values() if memory.serves(group.name)), None)
        found = memory.find_consumers(group.name) if memory is not None else None
        if memory is None or found is None:
            return "" if not members else "no coordinator has it"
        joined = {member.member_id: member for member in members if member.joined}
        if len(joined) < min(len(members), self.plan.size_max):
            return f"{len(members)} processes, and {len(joined)} have joined"
        if found.state != "Stable":
            return f"it is {found.state}, epoch {found.epoch}, target epoch {found.target_epoch}"
        if found.members.keys() != joined.keys():
            return f"its members are {sorted(found.members)}, those that live {sorted(joined)}"
        return self._unowned(memory, found, joined)

    def _unowned(self, memory: Memory, found: Any, joined: dict[str, EpochMember]) -> str:
        topics = memory.node.broker.shards.journal_of(found.id).shard.consumers.topics.by_name
        owned: set[TopicPartition] = set()
        wanted: set[TopicPartition] = set()
        for id, member in joined.items():
            holding = found.members[id].holding
            held = {(topic_id, number) for topic_id, numbers in holding.assigned.items() for number in numbers}
            if not member.settled or member.epoch != holding.epoch or member.owned != held:
                return f"{member.name} owns {len(member.owned)} partitions at epoch {member.epoch}, and holds {len(held)} at epoch {holding.epoch}"
            names, expression, _ = member.subscription
            read = {name for name, topic in topics.items() if name in names or (expression and topic.listed and re.fullmatch(expression, name))}
            mine = {(topics[name].id, number) for name in read for number in range(topics[name].partitions)}
            if member.owned - mine:
                return f"{member.name} owns partitions of topics that it does not read"
            wanted |= mine
            owned |= member.owned
        lacking = wanted - owned
        return f"{len(lacking)} partitions have no owner" if lacking else ""
