"""Resolve the regular expressions that heartbeats of the consumer protocol have brought, after the turn of the heartbeat."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.groups.group_journal import GroupJournal
from broker.net.dispatch import Call
from broker.runtime.clock import Clock
from broker.runtime.contain import run_contained
from broker.security.authorizer import Authorizer, Operation, topic_allowed
from coordinator.consumer.calls import Resolution


class Resolutions:
    """At the end of the turn: a step for each group that has asked."""

    def __init__(self, authorizer: Authorizer, clock: Clock) -> None:
        self._authorizer = authorizer
        self._clock = clock
        self._asked: dict[GroupJournal, None] = {}

    def schedule(self, journal: GroupJournal) -> None:
        """Resolve what the last step of the shard has asked for."""
        self._asked[journal] = None
        journal.turn.call_at_turn_end(self)

    def end_turn(self) -> None:
        asked, self._asked = self._asked, {}
        for journal in asked:
            run_contained(self._resolve_all, journal)

    def _resolve_all(self, journal: GroupJournal) -> None:
        if journal.refusal:  # unloaded meanwhile; the next coordinator of these groups resolves
            return
        room = journal.shard.consumers
        for resolution in room.take_resolutions():
            journal.call(room.resolve, resolution, self._clock.now, self._clock.wall, self._may_see(resolution))

    def _may_see(self, resolution: Resolution) -> Callable[[str], bool] | None:
        """The topics that the client may describe on whose behalf the group's expressions are resolved; None: all."""
        if self._authorizer.allows_all:
            return None
        asker = resolution.asker
        assert isinstance(asker, Call)
        return partial(topic_allowed, self._authorizer, asker, Operation.DESCRIBE)
