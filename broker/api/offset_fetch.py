"""OffsetFetch: the offsets that one group has committed, or several groups from version 8 on."""

from __future__ import annotations

from typing import Final

from broker.api.parts import Parts
from broker.fastpath.learning import LEARN_ATTEMPTS_MAX, Learned, SeenRequest, attempts_before, learn
from broker.fastpath.offset_fetch import FETCH_BYTES_MAX, OffsetFetchFastPath
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer, answer_together
from broker.groups.offset_replies import FETCH_ERROR, FETCH_GROUPS, Fetched, FetchedGroup, FetchedTopic, Wanted, read_topics
from broker.groups.shards import Shards
from broker.net.dispatch import Call, Response, Route
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer, Operation, group_allowed, topic_allowed
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics

# Java's consumers before 3.9 fail on these in an OffsetFetch, and look for the coordinator again on 16.
_SAID_AS_NOT_COORDINATOR: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)

Topics = list[OffsetFetchRequestTopic] | list[OffsetFetchRequestTopics] | None  # None: all of the group


def route(parts: Parts) -> Route:
    handler = OffsetFetch(parts.shards, parts.clock, parts.authorizer)
    return Route(OffsetFetchRequest, handler.handle, refuse)


class OffsetFetch:
    def __init__(self, shards: Shards, clock: Clock, authorizer: Authorizer) -> None:
        self._shards = shards
        self._clock = clock
        self._authorizer = authorizer

    def handle(self, call: Call, request: OffsetFetchRequest) -> Response | None:
        if call.version < FETCH_GROUPS:
            return self._fetch_one(call, request.group_id, request.topics)
        if len(request.groups) == 1:
            return self._fetch_one(call, request.groups[0].group_id, request.groups[0].topics)
        self._fetch_several(call, request.groups)
        return None

    def _fetch_one(self, call: Call, group_id: str, wanted: Topics) -> Response | None:
        journal, group = self._fetch(call, group_id, wanted)
        if journal is None:
            return Fetched([group])
        if call.size <= FETCH_BYTES_MAX and self._authorizer.open and call.connection.host.trace is None:
            self._remember(call, group_id, wanted, journal)
        return answer(journal, call, Fetched([group]))

    def _remember(self, call: Call, group_id: str, wanted: Topics, journal: GroupJournal) -> None:
        """Build a fast path from the second fetch of a kind on."""
        if not isinstance(call.fast_path(), Learned):
            call.add_fast_path(SeenRequest())
            return
        now = self._clock.now
        attempts = attempts_before(call, now)
        if attempts < LEARN_ATTEMPTS_MAX:
            learn(call, OffsetFetchFastPath(call, group_id, wanted, journal, self._authorizer), attempts, now)

    def _fetch_several(self, call: Call, groups: list[OffsetFetchRequestGroup]) -> None:
        found = [self._fetch(call, wanted.group_id, wanted.topics) for wanted in groups]
        reply = Fetched([group for _, group in found])
        asked = [(number, journal) for number, (journal, _) in enumerate(found) if journal is not None]

        def refuse_part(part: int, error: int) -> None:
            number = asked[part][0]
            reply.groups[number] = _refused(groups[number].group_id, None, call.version, error)

        answer_together(call, reply, [journal for _, journal in asked], refuse_part)

    def _fetch(self, call: Call, group_id: str, wanted: Topics) -> tuple[GroupJournal | None, FetchedGroup]:
        """The offsets of one group, and the journal whose log they must be in first; None where it was not asked."""
        everything = self._authorizer.open
        if not everything and not group_allowed(self._authorizer, call, Operation.DESCRIBE, group_id):
            return None, _refused(group_id, wanted, call.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        journal = self._shards.of(group_id)
        if journal.refusal:
            return None, _refused(group_id, wanted, call.version, journal.refusal)
        group = journal.shard.groups.get(group_id)
        offsets = group.offsets if group is not None else {}
        if everything:
            return journal, (group_id, read_topics(offsets, wanted), ErrorCode.NONE)
        if wanted is None:
            shown = {name: stored for name, stored in offsets.items() if topic_allowed(self._authorizer, call, Operation.DESCRIBE, name)}
            return journal, (group_id, read_topics(shown, None), ErrorCode.NONE)
        allowed: list[Wanted] = []
        hidden: list[FetchedTopic] = []
        for topic in wanted:
            if topic_allowed(self._authorizer, call, Operation.DESCRIBE, topic.name):
                allowed.append(topic)
            else:
                hidden.append(_without_offsets(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return journal, (group_id, read_topics(offsets, allowed) + hidden, ErrorCode.NONE)


def _without_offsets(topic: OffsetFetchRequestTopic | OffsetFetchRequestTopics, error: int) -> FetchedTopic:
    return topic.name, topic.partition_indexes, [None] * len(topic.partition_indexes), error


def _refused(group_id: str, wanted: Topics, version: int, error: int) -> FetchedGroup:
    """Version 1 has no place for the group's error: each partition gets it, since an empty success would mean no offsets."""
    if error in _SAID_AS_NOT_COORDINATOR:
        error = ErrorCode.NOT_COORDINATOR
    if version >= FETCH_ERROR:
        return group_id, [], error
    return group_id, [_without_offsets(topic, error) for topic in wanted or []], ErrorCode.NONE


def refuse(request: OffsetFetchRequest, version: int, error: int) -> Response:
    if version >= FETCH_GROUPS:
        return Fetched([_refused(group.group_id, None, version, error) for group in request.groups])
    return Fetched([_refused(request.group_id, request.topics, version, error)])
