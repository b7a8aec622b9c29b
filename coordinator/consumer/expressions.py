"""Subscriptions by regular expression. A heartbeat that brings a new one is answered without its topics: they come with the result
of a resolution, which is a step of its own and resolves all expressions of the group together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from coordinator.consumer import regex
from coordinator.consumer.calls import HeartbeatReply
from coordinator.consumer.changes import Change, EpochChange, ExpressionChange, Resolved
from coordinator.consumer.config import RESOLUTION_INTERVAL_MS, ConsumerConfig
from coordinator.consumer.step import HeartbeatStep, read_by
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from coordinator.consumer.group import ConsumerGroup
    from coordinator.consumer.keeper import Keeper

UNRESOLVED: Final = Resolved((), -1, 0)


def refusal(step: HeartbeatStep) -> HeartbeatReply | None:
    """An expression that no member has yet must be valid."""
    expression = step.profile.expression
    if not expression or expression in step.group.expression_counts:
        return None
    try:
        regex.compile(expression)
    except regex.InvalidExpression as problem:
        return HeartbeatReply(ErrorCode.INVALID_REGULAR_EXPRESSION, str(problem))
    return None


def change(keeper: Keeper, step: HeartbeatStep) -> bool:
    """Drop the expression that the member was the last to have, and find out whether a resolution is due. Return whether the epoch is bumped now."""
    group = step.group
    before, after = step.profile_before.expression, step.profile.expression
    used = set(group.expression_counts)
    bumps = False
    if before != after:
        if before and group.expression_counts[before] == 1:
            used.discard(before)
            step.changes.append(ExpressionChange(before, None))
            step.resolved = {expression: resolved for expression, resolved in group.resolved.items() if expression != before}
        if after:
            used.add(after)
        bumps = after in group.resolved if after else True
    step.resolves = bool(used) and resolution_is_due(keeper, group, used, step.resolved, step.config)
    return bumps


def resolution_is_due(keeper: Keeper, group: ConsumerGroup, used: set[str], resolved: dict[str, Resolved], config: ConsumerConfig) -> bool:
    if group.is_resolving:
        return False
    last = max([expression.at_ms for expression in group.resolved.values()], default=0)
    age = keeper.out.wall - last
    if 0 <= age <= RESOLUTION_INTERVAL_MS:
        return False
    return not used <= resolved.keys() or group.resolved_version < keeper.topics.created_version or not 0 <= age <= config.regex_refresh_interval_ms


def resolve(keeper: Keeper, group: ConsumerGroup, may_see: Callable[[str], bool] | None) -> None:
    """Match all expressions of the group with the topics that exist now. `may_see`: those that the asker may describe; None: all."""
    group.is_resolving = False
    visible = [name for name, topic in sorted(keeper.topics.by_name.items()) if topic.listed and (may_see is None or may_see(name))]
    changes: list[Change] = []
    resolved = dict(group.resolved)
    bumps = False
    for expression in group.expression_counts:
        matches = regex.compile(expression)
        topics = tuple([name for name in visible if matches(name)])
        bumps |= topics != group.resolved.get(expression, UNRESOLVED).topics
        resolved[expression] = Resolved(topics, keeper.topics.version, keeper.out.wall)
        changes.append(ExpressionChange(expression, resolved[expression]))
    hash = keeper.hash_of(read_by(group, (), (), resolved))
    if bumps or hash != group.hash:
        changes.append(EpochChange(group.epoch + 1, hash))
    keeper.carry_out(group, changes)
    group.resolved_version = keeper.topics.version
