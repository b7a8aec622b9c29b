"""Groups that a command could not show while it showed others: one line for each reason, with their names."""

from __future__ import annotations

from collections.abc import Mapping

from cli.failure import Failure, in_part
from history.words import list_names


def left_out(problems: Mapping[str, Failure]) -> list[Failure]:
    """`problems`: the failure of each group that is not shown, by name."""
    reasons: dict[str, dict[str, Failure]] = {}
    for name, problem in problems.items():
        reasons.setdefault(problem.line.removeprefix(f"group {name}: "), {})[name] = problem
    failures = []
    for reason, groups in reasons.items():
        first = next(iter(groups.values()))
        failures.append(in_part(first).with_line(f"{'group' if len(groups) == 1 else 'groups'} {list_names(groups)}: {reason}"))
    return failures
