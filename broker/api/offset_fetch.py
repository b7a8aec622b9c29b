"""OffsetFetch: the committed offsets of a group, or of several groups from version 8 on."""

from __future__ import annotations

from typing import Final

from broker.api.parts import BrokerParts
from broker.fastpath.learning import learn, may_learn_repeated
from broker.fastpath.offset_fetch import FETCH_BYTES_MAX, OffsetFetchFastPath, key_and_name, topic_ids
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import GroupParts, answer_when_durable
from broker.groups.offset_replies import (
    FETCH_ERROR_FROM,
    FETCH_GROUPS_FROM,
    PARTITION_BYTES_MIN,
    FetchedGroup,
    FetchedTopic,
    OffsetFetchReply,
    read_topic,
    read_whole_topic,
    without_offsets,
)
from broker.net.dispatch import Call, ReplyTooLarge, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, group_allowed, topic_allowed
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics
from protocol.wire import Steps

# Replaced by NOT_COORDINATOR: Java's consumers before 3.9 fail on these errors in an OffsetFetch, instead of looking up the coordinator.
_FATAL_TO_OLD_CONSUMERS: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)

PARTITIONS_PER_STEP: Final = 32

RequestedTopics = list[OffsetFetchRequestTopic] | list[OffsetFetchRequestTopics] | None  # None: all topics of the group


def route(parts: BrokerParts) -> Route:
    return Route(OffsetFetchRequest, parts.long_requests.handler(OffsetFetch(parts).handle), error_response)


class OffsetFetch:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._topics = parts.topics
        self._clock = parts.clock
        self._authorizer = parts.authorizer
        self._deletions = parts.deletions

    def handle(self, call: Call, request: OffsetFetchRequest) -> Steps[Response | None]:
        if call.version < FETCH_GROUPS_FROM:
            return (yield from self._fetch_one(call, OffsetFetchRequestGroup(request.group_id), request.topics))
        if len(request.groups) == 1:
            return (yield from self._fetch_one(call, request.groups[0], request.groups[0].topics))
        yield from self._fetch_several(call, request.groups)
        return None

    def _fetch_one(self, call: Call, requested: OffsetFetchRequestGroup, topics: RequestedTopics) -> Steps[Response | None]:
        reply = OffsetFetchReply([])
        parts = GroupParts()
        journal = yield from self._fetch(call, requested, topics, reply, parts)
        if journal is None:
            return reply
        now = self._clock.now
        group_id = requested.group_id
        if group_id in journal.shard.groups and call.size <= FETCH_BYTES_MAX and self._authorizer.allows_all and may_learn_repeated(call, now):
            learn(call, OffsetFetchFastPath(call, group_id, topics, journal, self._authorizer, self._topics), now)
        if parts.changed:
            return error_response(call.request, call.version, parts.changed)
        return answer_when_durable(journal, call, reply)

    def _fetch_several(self, call: Call, groups: list[OffsetFetchRequestGroup]) -> Steps[None]:
        reply = OffsetFetchReply([])
        parts = GroupParts()
        for requested in groups:
            yield from self._fetch(call, requested, requested.topics, reply, parts)

        def refuse(number: int, error: int) -> None:
            reply.groups[number] = _refused(groups[number].group_id, None, call.version, error)

        parts.answer(call, reply, refuse)

    def _fetch(
        self, call: Call, requested: OffsetFetchRequestGroup, topics: RequestedTopics, reply: OffsetFetchReply, parts: GroupParts
    ) -> Steps[GroupJournal | None]:
        """Add the offsets of one group to the reply. Return the journal that must store them before; None if the group was refused."""
        yield LOOKUP_COST
        group_id = requested.group_id
        open_to_all = self._authorizer.allows_all
        if not open_to_all and not group_allowed(self._authorizer, call, Operation.DESCRIBE, group_id):
            reply.groups.append(_refused(group_id, topics, call.version, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            return None
        journal = self._shards.journal_of(group_id)
        if journal.queued_deletions:
            self._deletions.settle(journal)
        if journal.refusal:
            reply.groups.append(_refused(group_id, topics, call.version, journal.refusal))
            return None
        parts.add(journal, len(reply.groups))
        error = journal.shard.fetch_refusal(group_id, requested.member_id, requested.member_epoch)
        if error:
            reply.groups.append(_refused(group_id, topics, call.version, error))
            return journal
        group = journal.shard.offsets_of(group_id)
        offsets = group.offsets if group is not None else {}
        fetched: list[FetchedTopic] = []
        hidden: list[FetchedTopic] = []
        reply.groups.append((group_id, fetched, ErrorCode.NONE))
        ids = topic_ids(self._topics, call.version)
        for name in list(offsets) if topics is None else ():
            stored = offsets.get(name)  # None: deleted meanwhile
            key = name if ids is None else ids.id_of(name)  # None: the topic is gone, and its offsets are not removed yet
            if stored is not None and key is not None and (open_to_all or topic_allowed(self._authorizer, call, Operation.DESCRIBE, name)):
                fetched.append(read_whole_topic(key, stored))
                yield self._cost_of_newest(call, reply)
        for topic in topics or ():
            wanted, known_as = key_and_name(topic, ids)
            if known_as is not None and (open_to_all or topic_allowed(self._authorizer, call, Operation.DESCRIBE, known_as)):
                fetched.append(read_topic(wanted, offsets.get(known_as), topic.partition_indexes))
                yield self._cost_of_newest(call, reply)
            else:
                error = ErrorCode.UNKNOWN_TOPIC_ID if known_as is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
                hidden.append(without_offsets(wanted, topic.partition_indexes, error))
                yield LOOKUP_COST
        fetched += hidden
        return journal

    def _cost_of_newest(self, call: Call, reply: OffsetFetchReply) -> int:
        """The cost of the topic that was added last. Raises ReplyTooLarge: groups named many times need memory before the reply is encoded."""
        partitions = len(reply.groups[-1][1][-1][1])
        reply.partitions += partitions
        if reply.partitions * PARTITION_BYTES_MIN > call.connection.context.reply_bytes_max:
            raise ReplyTooLarge(call)
        return LOOKUP_COST + partitions // PARTITIONS_PER_STEP


def _refused(group_id: str, topics: RequestedTopics, version: int, error: int) -> FetchedGroup:
    """Version 1 has no field for the group's error, so each partition gets it: an empty success would mean that there are no offsets."""
    if error in _FATAL_TO_OLD_CONSUMERS:
        error = ErrorCode.NOT_COORDINATOR
    if version >= FETCH_ERROR_FROM:
        return group_id, [], error
    return group_id, [without_offsets(topic.name, topic.partition_indexes, error) for topic in topics or []], ErrorCode.NONE


def error_response(request: OffsetFetchRequest, version: int, error: int) -> Response:
    if version >= FETCH_GROUPS_FROM:
        return OffsetFetchReply([_refused(group.group_id, None, version, error) for group in request.groups])
    return OffsetFetchReply([_refused(request.group_id, request.topics, version, error)])
