"""What one seed draws before a run: sizes, rates, settings, and the faults that may happen."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Final

from simulator.policy_plan import PolicyPlan, draw_policies
from simulator.styles import STYLES, Settings
from simulator.world import MS, SECOND

FAULTS: Final = (
    "kill", "power", "stop", "mid_step", "reset", "stall", "slow_disk", "fail_sync", "fail_write", "full_disk", "unreadable", "freeze",
    "wall", "cleaner", "client_kill", "client_freeze", "two_owners", "leader_dies", "admin",
)  # fmt: skip
RARE_FAULTS: Final = ("delete_topic", "rot")
SHORT_RETENTION_MINUTES: Final = 2
CHECKPOINTS: Final = ("log.flush.offset.checkpoint.interval.ms", "log.flush.start.offset.checkpoint.interval.ms")
TROUBLE_SECONDS: Final = {  # the mean time between two, where all of them may happen
    "kill": 90, "power": 120, "stop": 80, "mid_step": 60, "slow_disk": 60, "fail_sync": 45, "fail_write": 120, "full_disk": 150,
    "unreadable": 200, "freeze": 60, "wall": 300, "client_kill": 5, "client_freeze": 15, "two_owners": 30, "admin": 10,
    "delete_topic": 40, "rot": 100,
    "controller": 60, "two_nodes": 120, "drains": 30, "hop": 12, "away": 60,
}  # fmt: skip


@dataclass(frozen=True)
class GroupPlan:
    name: str
    static: int
    dynamic: int
    settings: Settings
    styles: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    seed: int
    flush: str
    partitions: int  # of __consumer_offsets
    groups: tuple[GroupPlan, ...]
    producers: int
    faults: tuple[str, ...]
    trouble: float  # how much more often than usual
    leader_dies: float
    slow_sync: float
    abandoned_ids: float
    reads_offsets: float
    latency_ns: int
    reset: float
    stalled: float
    torn: float
    pass_ns: int  # what a pass of the broker's loop takes: in a long one many requests are answered together
    segment_bytes: int
    retention_minutes: int
    safety_seconds: int
    topic_settings: tuple[tuple[str, str], ...]  # of the producers' topics
    broker: dict[str, object] = field(default_factory=dict)
    nodes: int = 1
    resets: float = 0.0  # the probability that an administrator resets offsets, instead of deleting them
    varied_sessions: bool = False  # a process may have a longer session timeout than the one before it
    policies: PolicyPlan | None = None  # what an operator sets for groups; the broker's settings have defaults of all groups

    def without(self, fault: str) -> Plan:
        """The same run without one kind of fault."""
        plan = replace(self, faults=tuple(each for each in self.faults if each != fault))
        if fault == "reset":
            plan = replace(plan, reset=0.0)
        elif fault == "stall":
            plan = replace(plan, stalled=0.0)
        elif fault == "leader_dies":
            plan = replace(plan, leader_dies=0.0)
        return plan

    def lasting(self, seconds: int) -> Plan:
        """For a long run: with time between two troubles."""
        return replace(self, safety_seconds=seconds, trouble=self.trouble / 5)

    def lines(self) -> list[str]:
        """What was drawn, for people."""
        lines = []
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "groups":
                for group in value:
                    settings = group.settings
                    styles = ", ".join(sorted({STYLES[style].name for style in group.styles}))
                    topics = ", ".join(f"{topic}({partitions})" for topic, partitions in settings.topics)
                    lines.append(
                        f"group {group.name}: {group.static} static and {group.dynamic} dynamic members ({styles}) of {topics}; session "
                        f"{settings.session_ns // MS} ms, rebalance {settings.rebalance_ns // MS} ms, heartbeat {settings.heartbeat_ns // MS} ms, "
                        f"commit {settings.commit_ns // MS} ms"
                    )
            elif isinstance(value, PolicyPlan):
                lines += value.lines()
            elif each.name not in ("nodes", "policies", "resets", "varied_sessions") or (value or 0) > (each.name == "nodes"):
                lines.append(f"{each.name}: {', '.join(value) if each.name == 'faults' else value}")
        return lines


def draw(seed: int) -> Plan:
    """Every third run is about the disk: many logs in one turn, and crashes all the time.

    In every fourth, groups have policies, and every fourth is about them: many absences and arrivals, few other troubles.
    """
    random = Random(f"plan {seed}")
    plan = _draw(seed, random)
    if seed % 3 == 1:
        plan = _about_the_disk(plan, random)
    if seed % 4 == 2:
        plan = _with_policies(plan, random)
    elif seed % 4 == 0 and seed:
        return _about_policies(plan, random)
    plan = _with_rare_faults(plan, random)
    return plan if seed % 3 == 1 else _with_rare_settings(plan)


def _with_rare_faults(plan: Plan, random: Random) -> Plan:
    """In some runs topics are deleted, and made again; in some a bit of a closed segment rots.

    With another `offsets.flush` than `always` a power failure may undo a deletion, and a clock that is set back makes an offset
    newer than the deletion of its topic.
    """
    faults = plan.faults
    if plan.flush == "always" and random.random() < 0.4:
        faults = (*(fault for fault in faults if fault != "wall"), "delete_topic")
    if random.random() < 0.1:
        faults = (*faults, "rot")
    return replace(plan, faults=faults)


def _with_rare_settings(plan: Plan) -> Plan:
    """Clients and settings that are rare. From a stream of its own: the other runs stay as they are."""
    random = Random(f"settings of few {plan.seed}")
    resets, varied, slow, checkpoints, ages = (random.random() < share for share in (0.6, 0.2, 0.6, 0.6, 0.5))
    if resets and plan.retention_minutes > SHORT_RETENTION_MINUTES and not {"delete_topic", "wall"} & set(plan.faults):
        plan = replace(plan, resets=0.5)
    if varied and plan.policies is None:
        plan = replace(plan, varied_sessions=True)
    if slow and plan.retention_minutes == SHORT_RETENTION_MINUTES:
        plan = _about_expiry(plan)
    if checkpoints and plan.producers:
        plan = replace(plan, broker={**plan.broker, **dict.fromkeys(CHECKPOINTS, 3_000)})
    if ages and plan.producers:
        plan = _about_retention(plan)
    return plan


def _about_expiry(plan: Plan) -> Plan:
    """Members commit less often than offsets are kept, many groups have one member, and only time removes offsets."""
    groups = []
    for number, group in enumerate(plan.groups):
        alone = group if number % 2 else replace(group, static=min(group.static, 1), dynamic=0 if group.static else 1)
        groups.append(replace(alone, settings=group.settings._replace(commit_ns=150 * SECOND)))
    faults = tuple(fault for fault in plan.faults if fault not in ("admin", "wall", "delete_topic"))
    return replace(plan, groups=tuple(groups), faults=faults, safety_seconds=600)


def _about_retention(plan: Plan) -> Plan:
    """Records are deleted all the time, by a clock that nobody sets: their age is known to the millisecond."""
    topic_settings = {**dict(plan.topic_settings), "retention.ms": "20000"}
    faults = tuple(fault for fault in plan.faults if fault != "wall")
    broker = {**plan.broker, "log.retention.check.interval.ms": 5_000}
    return replace(plan, topic_settings=tuple(topic_settings.items()), faults=faults, broker=broker)


def _with_policies(plan: Plan, random: Random) -> Plan:
    """Policies of every kind: those of the groups, and the broker's defaults of all groups."""
    drawn = {
        "registration.timeout.ms": random.choice((5_000, 20_000)),
        "expansion.timeout.ms": random.choice((1_000, 4_000)),
        "subscription.change": "rebalance",
        "pending.release": "true",
        "topics.watch": "true",
    }
    return replace(
        plan,
        broker={**plan.broker, **{f"group.policy.{name}": value for name, value in drawn.items() if random.random() < 0.3}},
        policies=draw_policies(random, [(group.name, group.static) for group in plan.groups]),
    )


def _about_policies(plan: Plan, random: Random) -> Plan:
    """A few groups of mostly static members with short sessions, which come and go."""
    groups = []
    for number in range(random.choice((2, 3))):
        topics = random.choice(((("t0", 3),), (("t0", 7),), (("t0", 3), ("t1", 3))))
        settings = Settings(6 * SECOND, random.choice((6, 10)) * SECOND, random.choice((600 * MS, 2 * SECOND)), 2 * SECOND, topics)
        styles = tuple(random.randrange(len(STYLES)) for _ in range(2))
        groups.append(GroupPlan(f"g{number}", random.randrange(2, 6), random.choice((0, 0, 1, 2)), settings, styles))
    return replace(
        plan,
        flush=random.choice(("always", "always", "interval")),
        partitions=random.choice((1, 2)),
        groups=tuple(groups),
        producers=0,
        faults=tuple(fault for fault in plan.faults if fault != "wall" or random.random() < 0.2),
        trouble=random.choice((0.5, 1.0, 2.0)),
        leader_dies=random.choice((0.0, 0.02)),
        pass_ns=3_000,
        segment_bytes=20_000,
        retention_minutes=10_080,
        safety_seconds=random.choice((120, 300)),
        broker={**plan.broker, "group.initial.rebalance.delay.ms": random.choice((0, 500)), "group.max.size": 2_147_483_647},
        policies=draw_policies(random, [(group.name, group.static) for group in groups]),
    )


def _about_the_disk(plan: Plan, random: Random) -> Plan:
    settings = Settings(10 * SECOND, 10 * SECOND, SECOND, 200 * MS, (("t0", 3),))
    return replace(
        plan,
        flush=random.choice(("always", "always", "interval")),
        partitions=20,
        groups=tuple(GroupPlan(f"g{number}", 1, 0, settings, (number % len(STYLES),)) for number in range(20)),
        faults=("kill", "power", "stop", "mid_step", "fail_sync", "slow_disk"),
        trouble=5.0,
        latency_ns=MS // 2,
        reset=0.0,
        stalled=0.0,
        torn=0.0,
        pass_ns=random.choice((20 * MS, 100 * MS)),
        retention_minutes=10_080,
        broker={**plan.broker, "group.initial.rebalance.delay.ms": 0},
    )


def _draw(seed: int, random: Random) -> Plan:
    faults = tuple(fault for fault in FAULTS if random.random() < 0.7)
    groups = []
    for number in range(random.choice((1, 1, 2, 3, 5, 12))):
        session = random.choice((6, 10, 10, 30)) * SECOND
        static = random.randrange(6)
        dynamic = random.randrange(0 if static else 1, 5)
        settings = Settings(
            session,
            random.choice((6, 10, 20, 60)) * SECOND,
            random.choice((session // 10, session // 3)),
            random.choice((200 * MS, SECOND, 5 * SECOND)),
            tuple((f"t{topic}", random.choice((1, 3, 7))) for topic in range(random.choice((1, 1, 2)))),
        )
        styles = tuple(random.randrange(len(STYLES)) for _ in range(random.choice((1, 2, 3))))
        groups.append(GroupPlan(f"g{number}", static, dynamic, settings, styles))
    return Plan(
        seed=seed,
        flush=random.choice(("always", "always", "interval", "never")),
        partitions=random.choice((1, 2, 5, 20)),
        groups=tuple(groups),
        producers=random.choice((0, 0, 1, 2)),
        faults=faults,
        trouble=random.choice((0.5, 1.0, 1.0, 3.0)),
        leader_dies=random.choice((0.0, 0.02, 0.1)) if "leader_dies" in faults else 0.0,
        slow_sync=random.choice((0.0, 0.05)),
        abandoned_ids=random.choice((0.0, 0.1)),
        reads_offsets=random.choice((0.05, 0.3)),
        latency_ns=random.choice((MS // 2, 2 * MS, 20 * MS)),
        reset=random.choice((0.0005, 0.005)) if "reset" in faults else 0.0,
        stalled=random.choice((0.0005, 0.005)) if "stall" in faults else 0.0,
        torn=random.choice((0.0, 0.02)),
        pass_ns=random.choice((3_000, 3_000, 2 * MS, 80 * MS)),
        segment_bytes=random.choice((4_000, 20_000, 1 << 20)),
        retention_minutes=random.choice((10_080, 10_080, 10_080, SHORT_RETENTION_MINUTES)),
        safety_seconds=random.choice((60, 120, 120, 300)),
        topic_settings=(("segment.ms", "3000"), ("file.delete.delay.ms", "1000"), *random.choice(((), (("retention.ms", "60000"),)))),
        broker={
            "group.initial.rebalance.delay.ms": random.choice((0, 0, 500, 3_000)),
            "offsets.flush.interval.ms": random.choice((20, 100, 1_000)),
            "group.max.size": random.choice((2_147_483_647, 2_147_483_647, 4)),
        },
    )
