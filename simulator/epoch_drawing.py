"""Draws the groups of the consumer protocol of a run, from a random stream of their own, which leaves the other draws as they are."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Final

from simulator.epoch_plan import EpochGroupPlan, EpochPlan
from simulator.plan import Plan
from simulator.world import MS, SECOND

ABOUT_EVERY: Final = 8  # one of so many seeds is about these groups: few others, and more disturbed members
ABOUT_FROM: Final = 3
FAULTS: Final = ("member_kill", "member_freeze", "member_twin", "group_admin", "grow_topic", "new_topic")


def with_epochs(plan: Plan) -> Plan:
    """The plan with groups of the consumer protocol."""
    random = Random(f"groups of the consumer protocol {plan.seed}")
    about = plan.seed % ABOUT_EVERY == ABOUT_FROM
    session_ns = random.choice((6, 6, 10, 20)) * SECOND
    heartbeat_ns = random.choice((500 * MS, SECOND, session_ns // 4))
    size_max = random.choice((2_147_483_647, 2_147_483_647, 2_147_483_647, 3))
    epochs = EpochPlan(
        groups=tuple(_draw_group(random, number, about) for number in range(random.choice((2, 3)) if about else random.choice((1, 1, 2)))),
        topics=tuple((f"t1{number}", random.choice((1, 2, 3, 6))) for number in range(random.choice((1, 2, 3)))),
        session_ns=session_ns,
        heartbeat_ns=heartbeat_ns,
        size_max=size_max,
        changes=random.choice((0.0, 0.002, 0.02)),
        hangs=random.choice((0.0, 0.05, 0.2)),
        races=random.choice((0.0, 0.1)),
        stale=random.choice((0.1, 0.3)),
    )
    drawn = tuple(fault for fault in FAULTS if random.random() < (0.9 if about else 0.6))
    broker: dict[str, Any] = {
        "group.consumer.min.session.timeout.ms": 100,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.session.timeout.ms": session_ns // MS,
        "group.consumer.heartbeat.interval.ms": heartbeat_ns // MS,
        "group.consumer.assignment.interval.ms": random.choice((0, 0, 200, 1_000)),
        "group.consumer.max.size": size_max,
    }
    plan = replace(plan, epochs=epochs, faults=(*plan.faults, *drawn), broker={**plan.broker, **broker})
    return _about_epochs(plan) if about else plan


def _about_epochs(plan: Plan) -> Plan:
    """Few other groups; at most two minutes, in which members are often disturbed."""
    return replace(plan, groups=plan.groups[:1], producers=min(plan.producers, 1), safety_seconds=min(plan.safety_seconds, 120), fault_rate=max(plan.fault_rate, 1.0))


def _draw_group(random: Random, number: int, about: bool) -> EpochGroupPlan:
    static = random.choice((0, 1, 2, 3))
    assignors: tuple[tuple[str | None, ...], ...] = ((None,), ("uniform",), ("range",), (None, "range", "uniform"))
    return EpochGroupPlan(
        f"e{number}",
        static,
        random.randrange(0 if static > 1 else 1, 4),
        random.choice((0.0, 0.0, 0.5, 1.0)),
        random.choice((0.0, 0.0, 0.3)),
        random.choice(assignors),
        random.choice((2, 4, 10)) * SECOND,
        random.choice((300 * MS, SECOND, 3 * SECOND)) if about else random.choice((SECOND, 3 * SECOND)),
    )
