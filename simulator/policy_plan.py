"""The part of a plan about policies: which ones an operator sets for each group at the start, and which ones it changes during the run."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

VALUES: Final[dict[str, tuple[str, ...]]] = {
    "registration.timeout.ms": ("5000", "10000", "20000"),
    "expansion.timeout.ms": ("1000", "3000", "5000"),
    "target.group.size": ("1", "2", "3"),
    "roster.timeout.ms": ("2000", "5000"),
    "roster.strict": ("true", "false"),
    "subscription.change": ("rebalance", "keep"),
    "pending.release": ("true", "false"),
    "topics.watch": ("true", "false"),
}
INSTANCE_IDS: Final = "instance.ids"
ROSTER: Final = (INSTANCE_IDS, "roster.timeout.ms", "roster.strict")
# Each entry is a set of policies that a group may have. The operator changes only these.
PURPOSES: Final[tuple[tuple[str, ...], ...]] = (
    ("registration.timeout.ms",),
    ("registration.timeout.ms", "subscription.change", "expansion.timeout.ms"),
    ("expansion.timeout.ms", "pending.release", "topics.watch"),
    ("target.group.size",),
    ("target.group.size", "registration.timeout.ms"),
    ROSTER,
    (*ROSTER, "expansion.timeout.ms"),
    (*VALUES, INSTANCE_IDS),
)


@dataclass(frozen=True)
class GroupPolicyPlan:
    """`first`: policies that the operator sets once the broker serves. `names`: those that it changes later."""

    first: tuple[tuple[str, str], ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class PolicyPlan:
    groups: tuple[tuple[str, GroupPolicyPlan], ...]
    change_seconds: float  # mean time between two actions of the operator
    other_topics: float  # probability that a process starts with other topics
    user_data: bool  # whether each process has user data of its own in its subscription, as with cooperative-sticky
    crashes: float  # probability that the broker dies just after a step caused by a policy
    log_ms: int  # added to the longest write or flush of a log

    def of(self, group: str) -> GroupPolicyPlan:
        return next((plan for name, plan in self.groups if name == group), GroupPolicyPlan())

    def lines(self) -> list[str]:
        """The plan in words, for the header of the trace."""
        lines = [
            f"operator: an action every {self.change_seconds:g} s; {100 * self.other_topics:g} % of processes subscribe to other topics"
            f"{', each with its own user data' if self.user_data else ''}; the broker dies after {100 * self.crashes:g} % of the steps of policies; "
            f"the log is up to {self.log_ms} ms slower"
        ]
        for name, plan in self.groups:
            first = " ".join(f"{policy}={value}" for policy, value in plan.first)
            lines.append(f"policies of {name}: {first or 'none'}; changed later: {', '.join(plan.names) or 'none'}")
        return lines


def draw_policies(random: Random, groups: list[tuple[str, int]]) -> PolicyPlan:
    """Draw the policies of the groups; some groups get none. `groups`: for each group, its name and its number of static members."""
    plans = []
    for name, static in groups:
        purpose = random.choice(PURPOSES) if random.random() < 0.85 else ()
        first = [(policy, value_of(random, policy, static)) for policy in purpose if len(purpose) < 4 or random.random() < 0.6]
        plans.append((name, GroupPolicyPlan(tuple(fitting(first)), purpose)))
    return PolicyPlan(tuple(plans), random.choice((5.0, 15.0, 60.0)), random.choice((0.0, 0.2, 0.3)), random.random() < 0.7, *_draw_crashes(random))


def _draw_crashes(random: Random) -> tuple[float, int]:
    return random.choice(((0.0, 0), (0.05, 0), (0.5, 700)))


def value_of(random: Random, policy: str, static: int) -> str:
    if policy == INSTANCE_IDS:  # the list sometimes lacks an instance, or has one too many
        return f"i[0-{max(0, static - 1 + random.choice((-1, 0, 0, 0, 1)))}]"
    return random.choice(VALUES[policy])


def fitting(values: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leave out the policies that need a list of instance ids, if `values` has no such list."""
    listed = any(name == INSTANCE_IDS for name, _ in values)
    return [(name, value) for name, value in values if listed or name not in ROSTER]
