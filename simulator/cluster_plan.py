"""Plans of runs of several nodes. They are drawn from random streams of their own, which leaves the draws of all other runs as they are."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from simulator.plan import Plan
from simulator.world import MS

SHARE_OF_RUNS: Final = 0.15
NODE_FAULTS: Final = ("freeze", "kill", "power", "controller", "two_nodes", "drains", "peers", "away", "hop")
FAULTS: Final = ("stop", "mid_step", "reset", "stall", "slow_disk", "fail_sync", "cleaner", "client_kill", "client_freeze", "two_owners", "leader_dies", "admin")
TOPICS_RECREATED: Final = ("long_freeze", "damage", "controller", "controller_stops")  # they keep deletions open, or change the controller
GROUPS_MAX: Final = 3
MANY_GROUPS: Final = 12
SAFETY_SECONDS: Final = (40, 60, 90)


def nodes_of(seed: int) -> int:
    """The number of nodes of a run, unless the command line sets it."""
    random = Random(f"how many nodes {seed}")
    return random.choice((2, 3, 3, 4)) if random.random() < SHARE_OF_RUNS else 1


def with_nodes(plan: Plan, nodes: int | None = None) -> Plan:
    """Change the plan for `nodes` nodes. 0: two to four, drawn from the seed; None: the seed decides whether there are several."""
    node_count = nodes_of(plan.seed) if nodes is None else nodes
    if node_count == 1:
        return plan
    random = Random(f"troubles of nodes {plan.seed}")
    node_count = node_count or random.choice((2, 3, 3, 4))
    faults = tuple(fault for fault in (*NODE_FAULTS, *FAULTS) if random.random() < (0.7 if fault in NODE_FAULTS else 0.5))
    plan = replace(
        plan,
        nodes=node_count,
        policies=None,
        offset_resets=0.0,
        varied_sessions=False,
        producers=random.choice((1, 1, 2)),
        faults=faults,
        fault_rate=random.choice((2.0, 4.0)),
        leader_dies=plan.leader_dies if "leader_dies" in faults else 0.0,
        connection_resets=random.choice((0.0005, 0.005)) if "reset" in faults else 0.0,
        stalled=random.choice((0.0005, 0.005)) if "stall" in faults else 0.0,
        safety_seconds=random.choice(SAFETY_SECONDS),
    )
    if len(plan.groups) > MANY_GROUPS:  # many logs in one turn, on each node
        return _with_differences(replace(plan, partitions=len(plan.groups), producers=0))
    plan = replace(plan, groups=plan.groups[:GROUPS_MAX], partitions=random.choice((1, 3, 6)), pass_ns=random.choice((3_000, 3_000, 2 * MS)))
    return _with_differences(_with_recreated_topics(plan))


def _with_differences(plan: Plan) -> Plan:
    """In some runs the clocks of the nodes differ, and in some a node listens on another port after each restart."""
    random = Random(f"differences of nodes {plan.seed}")
    clocks, ports = (random.random() < 0.5 for _ in range(2))
    if clocks:  # no offset expires, since its age depends on the clock of its coordinator
        plan = replace(plan, faults=(*plan.faults, "clocks"), retention_minutes=10_080)
    return replace(plan, faults=(*plan.faults, "ports")) if ports else plan


def _with_recreated_topics(plan: Plan) -> Plan:
    """In most runs topics are deleted and created again at once, and their deletions stay open while the controller changes."""
    random = Random(f"recreated topics of {plan.seed}")
    if random.random() < 0.3:
        return plan
    drawn = [fault for fault in TOPICS_RECREATED if random.random() < 0.7 and fault not in plan.faults]
    return replace(
        plan,
        flush="always",  # otherwise a power failure may undo a deletion
        partitions=max(plan.partitions, 3),
        producers=max(plan.producers, 1),
        deletes_records=True,
        retention_minutes=10_080,
        faults=(*plan.faults, *drawn, "delete_topic"),
    )
