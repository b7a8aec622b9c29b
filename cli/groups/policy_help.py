"""The policies in the help of `tenure group policy set`, from their declarations."""

from __future__ import annotations

import textwrap

from coordinator.policies.declaration import NONE_TEXT, Policy
from coordinator.policies.door import POLICIES, SETTABLE

WIDTH = 78


def notes() -> str:
    """Policies that do something once have a command of their own."""
    policies = "\n".join(_entry(POLICIES[name]) for name in SETTABLE)
    consumers = ", ".join(name for name, policy in POLICIES.items() if policy.consumers.applies)
    return f"policies and their values:\n{policies}\nGroups of the consumer protocol (KIP-848) have only {consumers}.\n`{NONE_TEXT}` as a value: the broker's default (group.policy.*) does not apply to this group."


def _entry(policy: Policy) -> str:
    sentence = textwrap.fill(policy.sentence, WIDTH, initial_indent="    ", subsequent_indent="    ")
    return f"  {policy.name}: {policy.accepted}\n{sentence}"
