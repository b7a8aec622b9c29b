"""Draws the plan of a run from its seed."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from broker.settings.config import POLICY_PREFIX
from simulator.expiry import Expiry
from simulator.faults import DELETE_TOPIC, FAULTS
from simulator.plan import GroupPlan, Plan
from simulator.policy_plan import draw_defaults, draw_policies
from simulator.records import Records
from simulator.styles import STYLES, Settings
from simulator.world import MS, SECOND

SHORT_RETENTION_MINUTES: Final = 2
CHECKPOINTS: Final = ("log.flush.offset.checkpoint.interval.ms", "log.flush.start.offset.checkpoint.interval.ms")


def draw(seed: int) -> Plan:
    """The plan of a seed. With `offsets.flush=interval` and no producers the operating system writes unsynced data late."""
    plan = _draw_kind(seed)
    return replace(plan, write_back_seconds=60) if plan.flush == "interval" and not plan.producers else plan


def with_deletions(plan: Plan) -> Plan:
    """In some runs with producers, clients delete records, and retention also deletes by size. Drawn from a random stream of its own."""
    random = Random(f"deleted records of {plan.seed}")
    if not plan.producers or random.random() < 0.5:
        return plan
    topic_settings = dict(plan.topic_settings)
    if random.random() < 0.5:
        topic_settings |= {"retention.bytes": random.choice(("1000", "20000")), "segment.ms": "3000"}
    return replace(plan, deletes_records=True, topic_settings=tuple(topic_settings.items()), broker={**plan.broker, "log.retention.check.interval.ms": 5_000})


def _draw_kind(seed: int) -> Plan:
    """Every third run is about the disk: many logs in one turn, and frequent crashes.

    In every fourth run groups also have policies (settings `group.policy.*`). Another fourth of all runs is only about policies: many
    absences and arrivals of members, few other faults.
    """
    random = Random(f"plan {seed}")
    plan = replace(_draw(seed, random), late_revocations=Random(f"revocations {seed}").choice((0.05, 0.3)))
    if seed % 3 == 1:
        plan = _about_the_disk(plan, random)
    if seed % 4 == 2:
        plan = _with_policies(plan, random)
    elif seed % 4 == 0 and seed:
        return _about_policies(plan, random)
    plan = _with_rare_faults(plan, random)
    return _with_few_partitions(plan) if seed % 3 == 1 else _with_rare_settings(_with_rare_clients(plan))


def _with_rare_faults(plan: Plan, random: Random) -> Plan:
    """In some runs topics are deleted and recreated; in some a bit of a closed segment rots."""
    faults = plan.faults
    if DELETE_TOPIC.possible(plan) and random.random() < 0.7:
        faults = (*(fault for fault in faults if fault not in DELETE_TOPIC.excludes), DELETE_TOPIC.name)
    if random.random() < 0.1:
        faults = (*faults, "rot")
    return replace(plan, faults=faults)


def _with_rare_settings(plan: Plan) -> Plan:
    """Settings that only some runs have. They are drawn from a random stream of their own, which leaves all other draws as they are."""
    random = Random(f"settings of few {plan.seed}")
    resets, varied, slow, checkpoints, ages = (random.random() < share for share in (0.6, 0.5, 0.6, 0.6, 0.5))
    if resets and plan.retention_minutes > SHORT_RETENTION_MINUTES and not {"delete_topic", "wall"} & set(plan.faults):
        plan = replace(plan, offset_resets=0.5)
    if varied and plan.policies is None:
        plan = replace(plan, varied_sessions=True)
    if slow and plan.retention_minutes == SHORT_RETENTION_MINUTES:
        plan = _about_expiry(plan)
    if checkpoints and plan.producers:
        plan = replace(plan, broker={**plan.broker, **dict.fromkeys(CHECKPOINTS, 3_000)})
    if ages and plan.producers:
        plan = _about_retention(plan)
    return plan


def _with_few_partitions(plan: Plan) -> Plan:
    """Some runs about the disk have two partitions of __consumer_offsets, and groups that consume one partition.

    Then an append waits for the append before it, and a reply waits for a single record. With small batches several appends wait.
    """
    random = Random(f"two partitions of {plan.seed}")
    if random.random() < 0.5:
        return plan
    groups = tuple(replace(group, settings=group.settings._replace(topics=(("t0", 1),))) for group in plan.groups)
    sizes = (400, 400, 1_048_588) if plan.policies is None else (8_000, 1_048_588)
    broker = {**plan.broker, "message.max.bytes": random.choice(sizes), "offsets.commit.timeout.ms": 500}
    topic_settings = (*plan.topic_settings, ("max.message.bytes", "1048588"))
    return replace(plan, partitions=2, groups=groups, broker=broker, topic_settings=topic_settings, same_assignments=True)


def _with_rare_clients(plan: Plan) -> Plan:
    """Behaviour of clients that only some runs have. Drawn from a random stream of its own, as `_with_rare_settings` does."""
    random = Random(f"clients of few {plan.seed}")
    waiting, same, small = (random.random() < share for share in (0.6, 0.7, 0.3))
    if waiting:
        plan = replace(plan, faults=(*plan.faults, "waiting"))
    if Random(f"late appends of {plan.seed}").random() < 0.85:
        plan = replace(plan, broker={**plan.broker, "offsets.commit.timeout.ms": 500})
    if small:
        plan = replace(plan, broker={**plan.broker, "message.max.bytes": 8_000})
    late_leader_syncs, early_commits = random.choice((0.0, 0.1, 0.3)), random.choice((0.0, 0.2))
    new_user_data, leave = random.choice((0.0, 0.0, 0.3)), random.choice((0.0, 0.5))
    return replace(
        plan,
        late_leader_syncs=late_leader_syncs,
        early_commits=early_commits,
        same_assignments=same,
        new_user_data=new_user_data,
        abandoned_ids_leave=leave,
    )


def _about_expiry(plan: Plan) -> Plan:
    """A plan in which offsets often expire: the broker checks every second, and nothing else deletes offsets.

    Members commit less often than offsets are retained. Many groups have one member, which stays away for long.
    """
    groups = []
    for number, group in enumerate(plan.groups):
        alone = group if number % 2 else replace(group, static=min(group.static, 1), dynamic=0 if group.static else 1)
        groups.append(replace(alone, settings=group.settings._replace(commit_ns=150 * SECOND)))
    faults = tuple(fault for fault in plan.faults if fault not in ("admin", *Expiry.promise.unless))
    broker = {**plan.broker, "offsets.retention.check.interval.ms": 1_000}
    return replace(plan, groups=tuple(groups), faults=faults, fault_rate=0.25, safety_seconds=600, broker=broker)


def _about_retention(plan: Plan) -> Plan:
    """A plan in which retention deletes records all the time. The clock is never set, so the age of records is known to the millisecond."""
    topic_settings = {**dict(plan.topic_settings), "segment.ms": "3000", "retention.ms": "20000"}
    faults = tuple(fault for fault in plan.faults if fault not in Records.ages_unknown)
    broker = {**plan.broker, "log.retention.check.interval.ms": 5_000}
    return replace(plan, topic_settings=tuple(topic_settings.items()), faults=faults, broker=broker)


def _with_policies(plan: Plan, random: Random) -> Plan:
    """Add policies of every kind: of single groups, and as defaults of all groups."""
    return replace(
        plan,
        broker={**plan.broker, **{POLICY_PREFIX + name: value for name, value in draw_defaults(random).items()}},
        policies=draw_policies(random, [(group.name, group.static) for group in plan.groups]),
    )


def _about_policies(plan: Plan, random: Random) -> Plan:
    """A few groups of mostly static members with short sessions, which often restart."""
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
        fault_rate=random.choice((0.5, 1.0, 2.0)),
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
        fault_rate=5.0,
        latency_ns=MS // 2,
        connection_resets=0.0,
        stalled=0.0,
        torn=0.0,
        pass_ns=random.choice((60 * MS, 100 * MS)),  # in so long a pass the broker appends to several logs at once
        retention_minutes=10_080,
        broker={**plan.broker, "group.initial.rebalance.delay.ms": 0},
    )


def _draw(seed: int, random: Random) -> Plan:
    faults = tuple(fault.name for fault in FAULTS if not fault.rare and random.random() < 0.7)
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
        if dynamic:  # a member must learn of a rebalance (by a heartbeat) before its end, or the group may never become stable
            settings = settings._replace(rebalance_ns=max(settings.rebalance_ns, 2 * settings.heartbeat_ns))
        styles = tuple(random.randrange(len(STYLES)) for _ in range(random.choice((1, 2, 3))))
        groups.append(GroupPlan(f"g{number}", static, dynamic, settings, styles))
    return Plan(
        seed=seed,
        flush=random.choice(("always", "always", "interval", "never")),
        partitions=random.choice((1, 2, 5, 20)),
        groups=tuple(groups),
        producers=random.choice((0, 0, 1, 2)),
        faults=faults,
        fault_rate=random.choice((0.5, 1.0, 1.0, 3.0)),
        leader_dies=random.choice((0.0, 0.02, 0.1)) if "leader_dies" in faults else 0.0,
        late_syncs=random.choice((0.0, 0.05)),
        abandoned_ids=random.choice((0.0, 0.1)),
        reads_offsets=random.choice((0.05, 0.3)),
        latency_ns=random.choice((MS // 2, 2 * MS, 20 * MS)),
        connection_resets=random.choice((0.0005, 0.005)) if "reset" in faults else 0.0,
        stalled=random.choice((0.0005, 0.005)) if "stall" in faults else 0.0,
        torn=random.choice((0.0, 0.02)),
        pass_ns=random.choice((3_000, 3_000, 2 * MS, 80 * MS)),
        segment_bytes=random.choice((4_000, 20_000, 1 << 20)),
        retention_minutes=random.choice((10_080, 10_080, 10_080, SHORT_RETENTION_MINUTES)),
        safety_seconds=random.choice((60, 120, 120, 300)),
        topic_settings=(("segment.ms", "10000"), ("file.delete.delay.ms", "1000"), *random.choice(((), (("retention.ms", "60000"),)))),
        broker={
            "group.initial.rebalance.delay.ms": random.choice((0, 0, 500, 3_000)),
            "offsets.flush.interval.ms": random.choice((20, 100, 1_000)),
            "group.max.size": random.choice((2_147_483_647, 2_147_483_647, 4)),
        },
    )
