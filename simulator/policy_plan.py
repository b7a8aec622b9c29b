"""The part of a plan about policies: which ones an operator sets for each group at the start, and which ones it changes during the run."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from coordinator.policies.declaration import Names
from coordinator.policies.door import ORDER, POLICIES

# The rules whose policies are in force until they are unset. Those that affect the present members are drawn twice as often.
RULES: Final = tuple(rules for rules in ORDER if not all(policy.once for policy in rules.declares))
WEIGHTS: Final = tuple(1 + rules.explained for rules in RULES)


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
        purpose = _draw_purpose(random) if random.random() < 0.85 else ()
        first = [(policy, value_of(random, policy, static)) for policy in purpose if len(purpose) < 6 or random.random() < 0.6]
        plans.append((name, GroupPolicyPlan(tuple(fitting(first)), purpose)))
    return PolicyPlan(tuple(plans), random.choice((5.0, 15.0, 60.0)), random.choice((0.0, 0.2, 0.3)), random.random() < 0.7, *_draw_crashes(random))


def draw_defaults(random: Random) -> dict[str, str]:
    """Policies of all groups, which the broker's configuration sets."""
    return {name: random.choice(policy.samples) for name, policy in POLICIES.items() if policy.has_default and not policy.needs and random.random() < 0.4}


def _draw_purpose(random: Random) -> tuple[str, ...]:
    """The policies that a group may have: those of some rules, or all. The operator changes only these."""
    drawn = random.choices(RULES, WEIGHTS, k=random.choice((1, 2, 3))) if random.random() < 0.85 else RULES
    return tuple(policy.name for rules in dict.fromkeys(drawn) for policy in rules.declares if not policy.once)


def _draw_crashes(random: Random) -> tuple[float, int]:
    return random.choice(((0.0, 0), (0.05, 0), (0.5, 700), (0.5, 700)))


def value_of(random: Random, name: str, static: int) -> str:
    policy = POLICIES[name]
    if isinstance(policy, Names):  # the list sometimes lacks an instance, or has one too many
        return f"i[0-{max(0, static - 1 + random.choice((-1, 0, 0, 0, 1)))}]"
    return random.choice(policy.samples)


def fitting(values: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leave out the policies that need another one that `values` does not have."""
    present = {"", *(name for name, _ in values)}
    return [(name, value) for name, value in values if POLICIES[name].needs in present]
