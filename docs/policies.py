"""Writes the table of policies in docs/policies.md from their declarations: python -m docs.policies [--check]"""

from __future__ import annotations

import sys
from pathlib import Path

from coordinator.policies.declaration import Policy
from coordinator.policies.door import POLICIES
from docs.page import with_parts, write_or_check

PAGE = Path(__file__).with_suffix(".md")


def policies() -> str:
    return "\n".join(["| policy | values | what it says | in groups of the consumer protocol |", "|---|---|---|---|", *map(row, POLICIES.values())]) + "\n"


def row(policy: Policy) -> str:
    inside = policy.consumers
    return f"| `{policy.name}` | {policy.accepted} | {policy.sentence} | {'' if inside.applies else 'refused: '}{inside.words} |"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, with_parts(PAGE.read_text(), {"policies": policies}), "coordinator/policies/ says"))
