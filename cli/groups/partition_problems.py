"""Partitions that a command could not serve, while it served others: one line for each reason, and the exit code of the worst."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cli.client import Failure, TopicPartition, by_topic, failure
from cli.client.effects import Unanswered
from cli.failure import in_part
from cli.groups.offset_formats import Scope
from cli.shown import Screen


def scopes_text(partitions: Iterable[TopicPartition]) -> str:
    """The partitions as --topic takes them: `orders:0-2,5, payments:1`."""
    return ", ".join(str(Scope(topic, tuple(numbers))) for topic, numbers in by_topic(sorted(partitions)).items())


def by_error(errors: Mapping[TopicPartition, int]) -> dict[int, list[TopicPartition]]:
    partitions: dict[int, list[TopicPartition]] = {}
    for tp, error in sorted(errors.items()):
        partitions.setdefault(error, []).append(tp)
    return partitions


def failures_of(errors: Mapping[TopicPartition, int]) -> dict[TopicPartition, Failure]:
    """The Failure of each error code. Its line continues one that begins with the partitions."""
    return {tp: failure(error, "").with_line(reason(error)) for tp, error in errors.items()}


def reason(error: int) -> str:
    return failure(error, "").line.removeprefix(": ")


def report(screen: Screen, problems: Mapping[TopicPartition, Failure], action: str, unanswered: str | None = None) -> int:
    """Report each reason with its partitions. `action`: what was not done to {}; `unanswered`: the same of those of which it is not known.

    Returns the highest exit code.
    """
    kinds: dict[tuple[int, str], list[TopicPartition]] = {}
    for tp, problem in sorted(problems.items(), key=lambda entry: entry[0]):
        kinds.setdefault((problem.exit_code, problem.line), []).append(tp)
    code = 0
    for partitions in kinds.values():
        problem = problems[partitions[0]]
        what = unanswered if unanswered and isinstance(problem, Unanswered) else action
        code = max(code, screen.fail(in_part(problem), f"{what.format(scopes_text(partitions))}: {problem.line}"))
    return code
