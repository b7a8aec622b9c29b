"""OffsetCommit: topics and partitions are checked against the registry here, member and generation by the shard."""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.api.partition_counts import readable_partition_count
from broker.api.parts import BrokerParts
from broker.fastpath.commit import COMMIT_BYTES_MAX, CommitFastPath, commit_layout
from broker.fastpath.learning import learn, may_learn_repeated
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer_when_all_durable
from broker.groups.offset_replies import COMMIT_TOPIC_IDS_FROM, CommitReply, TopicKey
from broker.net.dispatch import Call, Response, Route
from broker.net.long_requests import LOOKUP_COST
from broker.security.authorizer import Operation, group_allowed
from coordinator import Commit
from coordinator.offsets import metadata_too_long
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.wire import Steps

GROUP_ID_NOT_FOUND_FROM: Final = 9
PARTITIONS_PER_STEP: Final = 16

CommitTopic = tuple[str, list[OffsetCommitRequestPartition]]
AnsweredTopic = tuple[TopicKey, list[OffsetCommitRequestPartition]]  # as the request names it


def route(parts: BrokerParts) -> Route:
    return Route(OffsetCommitRequest, parts.long_requests.handler(OffsetCommit(parts).handle), error_response)


class OffsetCommit:
    def __init__(self, parts: BrokerParts) -> None:
        self._shards = parts.shards
        self._topics = parts.topics
        self._registry = parts.registry_journal
        self._metadata_max = parts.groups.offset_metadata_max_bytes
        self._clock = parts.clock
        self._authorizer = parts.authorizer
        self._deletions = parts.deletions

    def handle(self, call: Call, request: OffsetCommitRequest) -> Steps[Response | None]:
        if not group_allowed(self._authorizer, call, Operation.READ, request.group_id):
            return error_response(request, call.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        refused: dict[TopicKey, OffsetCommitResponseTopic] = {}
        valid: list[CommitTopic] = []
        answered: list[AnsweredTopic] = []  # the topics of `valid`
        by_id = call.version >= COMMIT_TOPIC_IDS_FROM
        for topic in request.topics:
            partitions = topic.partitions
            yield LOOKUP_COST + len(partitions) // PARTITIONS_PER_STEP
            key: TopicKey = topic.topic_id if by_id else topic.name
            name = self._topics.name_of(topic.topic_id) if by_id else topic.name
            if name is None:
                _put_codes(refused, key, partitions, ErrorCode.UNKNOWN_TOPIC_ID)
                continue
            count = readable_partition_count(self._topics, self._authorizer, call, name)
            if count > 0:
                for partition in partitions:
                    if not 0 <= partition.partition_index < count:
                        break
                else:
                    if partitions:
                        valid.append((name, partitions))
                        answered.append((key, partitions))
                    continue
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED if count < 0 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            _put_codes(refused, key, [partition for partition in partitions if not 0 <= partition.partition_index < count], error)
            present = [partition for partition in partitions if 0 <= partition.partition_index < count]
            if present:
                valid.append((name, present))
                answered.append((key, present))
        if not valid:  # every partition is refused: the group is not looked up, and the member's ids are not checked
            return OffsetCommitResponse(0, list(refused.values()))
        journal = self._shards.journal_of(request.group_id)
        refusal = journal.refusal or self._deletions.prepare_commit(journal, valid)
        if refusal:
            return commit_response(refused, answered, refusal) if refused else CommitReply(answered, refusal)
        commit = Commit(
            request.group_id,
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            valid,
            request.retention_time_ms,
            ErrorCode.GROUP_ID_NOT_FOUND if call.version >= GROUP_ID_NOT_FOUND_FROM else ErrorCode.ILLEGAL_GENERATION,
        )
        code = journal.call(journal.shard.commit, commit, self._clock.now, self._clock.wall)
        if code == ErrorCode.FENCED_INSTANCE_ID:
            journal.fenced_lines.add(journal, "OffsetCommit", request.group_id, request.member_id, request.group_instance_id, call.connection.peer)
        metadata_max = self._metadata_max if commit.too_large is not None else None
        topics = self._topics.hold
        # A topic may have been created just now: the reply also waits for its record, without which the offsets would be lost.
        topics_in_flight = topics.durable != topics.emitted
        if refused or topics_in_flight:
            reply = commit_response(refused, answered, code, metadata_max)
            journals = [journal, self._registry] if topics_in_flight else [journal]
            answer_when_all_durable(call, reply, journals, partial(_refuse_part, reply, refused, answered))
            return None
        if metadata_max is not None:
            call.reply = commit_response(refused, answered, code, metadata_max)
        else:
            call.reply = CommitReply(answered, code)
            if not code:
                self._learn_fast_path(call, request, commit, journal)
        journal.hold_reply(call)
        return None

    def _learn_fast_path(self, call: Call, request: OffsetCommitRequest, commit: Commit, journal: GroupJournal) -> None:
        """Build a fast path: the next commit is likely of the same partitions."""
        now = self._clock.now
        small = call.size <= COMMIT_BYTES_MAX and commit.retention_ms == -1
        if not small or not self._authorizer.allows_all or not may_learn_repeated(call, now):
            return
        layout = commit_layout(call.request_frame, request, call.version)
        if layout is not None and call.reply is not None:
            reply = call.encode_frame(call.reply)
            learn(call, CommitFastPath(call, layout, commit, reply, journal, self._topics, self._authorizer, self._clock), now)


def commit_response(
    refused: dict[TopicKey, OffsetCommitResponseTopic], answered: list[AnsweredTopic], error: int, metadata_max: int | None = None
) -> OffsetCommitResponse:
    """Partitions that were refused before the shard was called come first. `metadata_max`: the limit, if some metadata exceeds it."""
    topics = {key: _response_topic(key, list(topic.partitions)) for key, topic in refused.items()}
    without_refused: list[OffsetCommitResponseTopic] | None = None if topics else []
    for key, partitions in answered:
        codes = [
            OffsetCommitResponsePartition(partition.partition_index, error or _metadata_error(partition, metadata_max))
            for partition in partitions
        ]
        if without_refused is not None:
            without_refused.append(_response_topic(key, codes))
        elif key in topics:
            topics[key].partitions += codes
        else:
            topics[key] = _response_topic(key, codes)
    return OffsetCommitResponse(0, list(topics.values()) if without_refused is None else without_refused)


def _response_topic(key: TopicKey, partitions: list[OffsetCommitResponsePartition]) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic("", partitions, key) if isinstance(key, bytes) else OffsetCommitResponseTopic(key, partitions)


def _refuse_part(
    reply: OffsetCommitResponse, refused: dict[TopicKey, OffsetCommitResponseTopic], answered: list[AnsweredTopic], part: int, error: int
) -> None:
    """The append of the offsets (part 0) or of the topics' records (part 1) has failed. Partitions refused before that keep their codes."""
    reply.topics = commit_response(refused, answered, error if part == 0 else ErrorCode.COORDINATOR_NOT_AVAILABLE).topics


def _metadata_error(partition: OffsetCommitRequestPartition, metadata_max: int | None) -> int:
    metadata = partition.committed_metadata
    if metadata_max is not None and metadata and metadata_too_long(metadata, metadata_max):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _put_codes(
    refused: dict[TopicKey, OffsetCommitResponseTopic], key: TopicKey, partitions: list[OffsetCommitRequestPartition], error: int
) -> None:
    topic = refused.get(key)
    if topic is None:
        topic = refused[key] = _response_topic(key, [])
    topic.partitions += [OffsetCommitResponsePartition(partition.partition_index, error) for partition in partitions]


def error_response(request: OffsetCommitRequest, version: int, error: int) -> Response:
    by_id = version >= COMMIT_TOPIC_IDS_FROM
    return CommitReply([(topic.topic_id if by_id else topic.name, topic.partitions) for topic in request.topics], error)
