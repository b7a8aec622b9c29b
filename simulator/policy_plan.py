"""What a seed draws about policies: those that an operator sets for each group, and what it changes during the run."""

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
# What groups are made for; the operator changes these policies only.
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
    """`first`: set when the broker serves. `names`: the policies that are changed later."""

    first: tuple[tuple[str, str], ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class PolicyPlan:
    groups: tuple[tuple[str, GroupPolicyPlan], ...]
    change_seconds: float  # the mean time between two acts of the operator
    other_topics: float  # the probability that a process starts with other topics than the one before it
    user_data: bool  # each process has other bytes in its subscription, as with cooperative-sticky
    crashes: float  # the probability that the broker dies just after a step that a policy caused
    log_ms: int  # how long a write or flush of the log takes at most, above what it takes anyway

    def of(self, group: str) -> GroupPolicyPlan:
        return next((plan for name, plan in self.groups if name == group), GroupPolicyPlan())

    def lines(self) -> list[str]:
        """For people."""
        lines = [f"the operator acts every {self.change_seconds} s; other topics: {self.other_topics}; user data: {self.user_data}"]
        lines.append(f"crashes after steps of policies: {self.crashes}; slower log: {self.log_ms} ms")
        for name, plan in self.groups:
            first = " ".join(f"{policy}={value}" for policy, value in plan.first)
            lines.append(f"policies of {name}: {first or 'none'}, later {', '.join(plan.names) or 'none'}")
        return lines


def draw_policies(random: Random, groups: list[tuple[str, int]]) -> PolicyPlan:
    """`groups`: the name and the number of static members of each. Some groups never have a policy."""
    plans = []
    for name, static in groups:
        purpose = random.choice(PURPOSES) if random.random() < 0.85 else ()
        first = [(policy, value_of(random, policy, static)) for policy in purpose if len(purpose) < 4 or random.random() < 0.6]
        plans.append((name, GroupPolicyPlan(tuple(fitting(first)), purpose)))
    return PolicyPlan(tuple(plans), random.choice((5.0, 15.0, 60.0)), random.choice((0.0, 0.2, 0.3)), random.random() < 0.7, *_troubles(random))


def _troubles(random: Random) -> tuple[float, int]:
    return random.choice(((0.0, 0), (0.05, 0), (0.5, 700)))


def value_of(random: Random, policy: str, static: int) -> str:
    if policy == INSTANCE_IDS:  # sometimes too few names, or a name without an instance
        return f"i[0-{max(0, static - 1 + random.choice((-1, 0, 0, 0, 1)))}]"
    return random.choice(VALUES[policy])


def fitting(values: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Without what needs a list, where there is none."""
    listed = any(name == INSTANCE_IDS for name, _ in values)
    return [(name, value) for name, value in values if listed or name not in ROSTER]
