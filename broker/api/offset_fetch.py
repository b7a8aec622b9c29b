"""OffsetFetch: the committed offsets of a group, or of several groups from version 8 on."""

from __future__ import annotations

from typing import Final

from broker.api.parts import BrokerParts
from broker.fastpath.learning import learn, may_learn_repeated
from broker.fastpath.offset_fetch import FETCH_BYTES_MAX, OffsetFetchFastPath
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer_when_all_durable, answer_when_durable
from broker.groups.offset_replies import (
    FETCH_ERROR_FROM,
    FETCH_GROUPS_FROM,
    FetchedGroup,
    FetchedTopic,
    OffsetFetchReply,
    RequestedTopic,
    read_topics,
)
from broker.net.dispatch import Call, Response, Route
from broker.security.authorizer import Operation, group_allowed, topic_allowed
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics

# Replaced by NOT_COORDINATOR: Java's consumers before 3.9 fail on these errors in an OffsetFetch, instead of looking up the coordinator.
_FATAL_TO_OLD_CONSUMERS: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)

RequestedTopics = list[OffsetFetchRequestTopic] | list[OffsetFetchRequestTopics] | None  # None: all topics of the group


def route(parts: BrokerParts) -> Route:
    return Route(OffsetFetchRequest, OffsetFetch(parts).handle, error_response)


class OffsetFetch:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._clock = parts.clock
        self._authorizer = parts.authorizer
        self._deletions = parts.deletions

    def handle(self, call: Call, request: OffsetFetchRequest) -> Response | None:
        if call.version < FETCH_GROUPS_FROM:
            return self._fetch_one(call, request.group_id, request.topics)
        if len(request.groups) == 1:
            return self._fetch_one(call, request.groups[0].group_id, request.groups[0].topics)
        self._fetch_several(call, request.groups)
        return None

    def _fetch_one(self, call: Call, group_id: str, topics: RequestedTopics) -> Response | None:
        journal, group = self._fetch(call, group_id, topics)
        if journal is None:
            return OffsetFetchReply([group])
        now = self._clock.now
        if call.size <= FETCH_BYTES_MAX and self._authorizer.allows_all and may_learn_repeated(call, now):
            learn(call, OffsetFetchFastPath(call, group_id, topics, journal, self._authorizer), now)
        return answer_when_durable(journal, call, OffsetFetchReply([group]))

    def _fetch_several(self, call: Call, groups: list[OffsetFetchRequestGroup]) -> None:
        results = [self._fetch(call, requested.group_id, requested.topics) for requested in groups]
        reply = OffsetFetchReply([group for _, group in results])
        served = [(number, journal) for number, (journal, _) in enumerate(results) if journal is not None]

        def refuse_part(part: int, error: int) -> None:
            number = served[part][0]
            reply.groups[number] = _refused(groups[number].group_id, None, call.version, error)

        answer_when_all_durable(call, reply, [journal for _, journal in served], refuse_part)

    def _fetch(self, call: Call, group_id: str, topics: RequestedTopics) -> tuple[GroupJournal | None, FetchedGroup]:
        """The offsets of one group, and the journal that must store them before the reply; no journal if the group was refused."""
        open_to_all = self._authorizer.allows_all
        if not open_to_all and not group_allowed(self._authorizer, call, Operation.DESCRIBE, group_id):
            return None, _refused(group_id, topics, call.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        journal = self._shards.journal_of(group_id)
        if journal.queued_deletions:
            self._deletions.settle(journal)
        if journal.refusal:
            return None, _refused(group_id, topics, call.version, journal.refusal)
        group = journal.shard.groups.get(group_id)
        offsets = group.offsets if group is not None else {}
        if open_to_all:
            return journal, (group_id, read_topics(offsets, topics), ErrorCode.NONE)
        if topics is None:
            allowed_offsets = {name: stored for name, stored in offsets.items() if topic_allowed(self._authorizer, call, Operation.DESCRIBE, name)}
            return journal, (group_id, read_topics(allowed_offsets, None), ErrorCode.NONE)
        allowed: list[RequestedTopic] = []
        hidden: list[FetchedTopic] = []
        for topic in topics:
            if topic_allowed(self._authorizer, call, Operation.DESCRIBE, topic.name):
                allowed.append(topic)
            else:
                hidden.append(_without_offsets(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return journal, (group_id, read_topics(offsets, allowed) + hidden, ErrorCode.NONE)


def _without_offsets(topic: OffsetFetchRequestTopic | OffsetFetchRequestTopics, error: int) -> FetchedTopic:
    return topic.name, topic.partition_indexes, [None] * len(topic.partition_indexes), error


def _refused(group_id: str, topics: RequestedTopics, version: int, error: int) -> FetchedGroup:
    """Version 1 has no field for the group's error, so each partition gets it: an empty success would mean that there are no offsets."""
    if error in _FATAL_TO_OLD_CONSUMERS:
        error = ErrorCode.NOT_COORDINATOR
    if version >= FETCH_ERROR_FROM:
        return group_id, [], error
    return group_id, [_without_offsets(topic, error) for topic in topics or []], ErrorCode.NONE


def error_response(request: OffsetFetchRequest, version: int, error: int) -> Response:
    if version >= FETCH_GROUPS_FROM:
        return OffsetFetchReply([_refused(group.group_id, None, version, error) for group in request.groups])
    return OffsetFetchReply([_refused(request.group_id, request.topics, version, error)])
