"""An operator that sets, changes, deletes and reads the policies of groups, and requests rebalances."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final

from coordinator.policies.declaration import NONE_TEXT, Names
from coordinator.policies.door import POLICIES
from protocol.errors import ErrorCode
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from simulator.client import Client, ClientConnection, Process
from simulator.consumer import Consumer
from simulator.plan import GroupPlan
from simulator.policy_plan import GroupPolicyPlan, PolicyPlan, value_of
from simulator.policy_settings import APPEND, DELETE, SET, SUBTRACT, Change
from simulator.scene import Scene
from simulator.world import MS, SECOND

GROUP_RESOURCE: Final = 32  # the resource type of DescribeConfigs
GROUP_POLICY_SOURCE: Final = 8  # the config source in DescribeConfigs for a value set for the group itself
ALTER_VERSION: Final = 1
DESCRIBE_VERSION: Final = 4
LEAVE_VERSION: Final = 5
REQUEST_NS: Final = 20 * SECOND
REFUSING: Final = (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)  # after one of these errors a request had no effect; after others it may have had one


class PolicyOperator(Client):
    def __init__(self, scene: Scene, consumers: Sequence[Consumer], plan: PolicyPlan) -> None:
        super().__init__(scene.world, "operator")
        self._scene = scene
        self._consumers = consumers
        self._plan = plan
        self._requests = 0

    def work(self) -> Process:
        scene, world = self._scene, self.world
        plans = [(group, self._plan.of(group.name)) for group in scene.plan.groups]
        if not plans:  # a seed that is explained without its classic groups
            return
        for group, plan in plans:
            while plan.first and not scene.course.faults_over:
                answered = yield from self._change(group.name, [Change(name, SET, value) for name, value in plan.first])
                if answered:
                    break
                yield world.between(100 * MS, SECOND)
        while not scene.course.faults_over:
            yield int(world.random.expovariate(1 / self._plan.change_seconds) * SECOND)
            if scene.course.faults_over:
                return
            group, plan = world.random.choice(plans)
            yield from self._act(group, plan)

    def _act(self, group: GroupPlan, plan: GroupPolicyPlan) -> Process:
        random = self.world.random
        if random.random() < 0.3:
            self._deploy(group)
        elif random.random() < 0.2 and group.static:
            yield from self._remove(group)
        elif not plan.names or random.random() < 0.25:
            yield from self._read(group.name)
        elif random.random() < 0.25:
            self._requests += 1
            yield from self._change(group.name, [Change(name, SET, f"request {self._requests}") for name, policy in POLICIES.items() if policy.once])
        else:
            names = random.sample(plan.names, min(len(plan.names), random.choice((1, 1, 1, 2))))
            yield from self._change(group.name, [self._change_of(name, group.static) for name in names])

    def _deploy(self, group: GroupPlan) -> None:
        """Stop some processes of a group, some seconds apart, and start them again."""
        world = self.world
        consumers = [consumer for consumer in self._consumers if consumer.group == group.name]
        if not consumers:
            return
        world.trace(f"operator: deploys {group.name}", group.name)
        session = group.settings.session_ns
        for consumer in world.random.sample(consumers, world.random.randrange(1, len(consumers) + 1)):
            stops = world.between(0, session)
            world.after(stops, self._stop, consumer)
            world.after(stops + world.between(0, 5 * session), consumer.restart)

    def _remove(self, group: GroupPlan) -> Process:
        """Remove a static member whose process may still run."""
        wire = yield from self._coordinator(group.name)
        if wire is None:
            return
        instance = f"i{self.world.random.randrange(group.static)}"
        self.world.trace(f"operator: removes {instance} of {group.name}", group.name)
        yield wire.send(LeaveGroupRequest(group.name, [MemberIdentity("", instance, "removed")]), LEAVE_VERSION, REQUEST_NS)
        wire.close()

    def _stop(self, consumer: Consumer) -> None:
        if not self._scene.course.faults_over:
            consumer.kill()

    def _change_of(self, name: str, static: int) -> Change:
        random = self.world.random
        policy = POLICIES[name]
        if isinstance(policy, Names) and random.random() < 0.5:
            return Change(name, random.choice((APPEND, SUBTRACT)), f"i{random.randrange(static + 1)}")
        if random.random() < 0.2:
            return Change(name, DELETE, None)
        if random.random() < 0.1 and policy.has_default:
            return Change(name, SET, NONE_TEXT)
        return Change(name, SET, value_of(random, name, static))

    def _change(self, group: str, changes: list[Change]) -> Generator[Any, Any, bool]:
        """Send one IncrementalAlterConfigs. Returns whether it got a reply."""
        scene = self._scene
        wire = yield from self._coordinator(group)
        if wire is None:
            return False
        changed = ", ".join(f"{change.name} {change.operation} {change.value}" for change in changes)
        self.world.trace(f"operator: changes policies of {group}: {changed}", group)
        pending = scene.policies.settings.send(group, changes)
        scene.policies.requests.send(group, changes)
        resource = AlterConfigsResource(GROUP_RESOURCE, group, [AlterableConfig(*change) for change in changes])
        request = wire.send(IncrementalAlterConfigsRequest([resource], False), ALTER_VERSION, REQUEST_NS)

        def settled(reply: Any) -> None:
            code = None if reply is None or scene.course.is_void(request) else reply.responses[0].error_code
            if code == ErrorCode.NONE:
                scene.policies.settings.acknowledged(pending)
                scene.policies.request_acknowledged(group, changes, request.sent)
            elif code in REFUSING:
                scene.policies.settings.refused(pending)
            else:
                scene.policies.settings.unknown(pending)
            self.world.count(f"policies changed: {code}")

        request.when_settled(settled)
        yield request
        answered = not request.lost
        wire.close()
        return answered

    def _coordinator(self, group: str) -> Generator[Any, Any, ClientConnection | None]:
        wire = self._scene.lookups.connect(self.name, "10.9.9.8")
        if wire is not None:
            wire = yield from self._scene.lookups.find_coordinator(wire, group)
        return wire

    def _read(self, group: str) -> Process:
        scene = self._scene
        wire = yield from self._coordinator(group)
        if wire is None:
            return
        request = wire.send(DescribeConfigsRequest([DescribeConfigsResource(GROUP_RESOURCE, group, None)], False, False), DESCRIBE_VERSION, REQUEST_NS)
        yield request
        if not request.lost and not scene.course.is_void(request):
            result = request.reply.results[0]
            if not result.error_code:
                scene.policies.settings.read(group, {config.name: config.value or "" for config in result.configs if config.config_source == GROUP_POLICY_SOURCE})
                self.world.count("policies read")
        wire.close()
