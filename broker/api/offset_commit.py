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
from broker.groups.offset_replies import CommitReply
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
        refused: dict[str, OffsetCommitResponseTopic] = {}
        valid: list[CommitTopic] = []
        for topic in request.topics:
            name, partitions = topic.name, topic.partitions
            yield LOOKUP_COST + len(partitions) // PARTITIONS_PER_STEP
            count = readable_partition_count(self._topics, self._authorizer, call, name)
            if count > 0:
                for partition in partitions:
                    if not 0 <= partition.partition_index < count:
                        break
                else:
                    if partitions:
                        valid.append((name, partitions))
                    continue
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED if count < 0 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            _put_codes(refused, name, [partition for partition in partitions if not 0 <= partition.partition_index < count], error)
            present = [partition for partition in partitions if 0 <= partition.partition_index < count]
            if present:
                valid.append((name, present))
        if not valid:  # every partition is refused: the group is not looked up, and the member's ids are not checked
            return OffsetCommitResponse(0, list(refused.values()))
        journal = self._shards.journal_of(request.group_id)
        refusal = journal.refusal or self._deletions.prepare_commit(journal, valid)
        if refusal:
            return commit_response(refused, valid, refusal) if refused else CommitReply(valid, refusal)
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
            reply = commit_response(refused, valid, code, metadata_max)
            journals = [journal, self._registry] if topics_in_flight else [journal]
            answer_when_all_durable(call, reply, journals, partial(_refuse_part, reply, refused, valid))
            return None
        if metadata_max is not None:
            call.reply = commit_response(refused, valid, code, metadata_max)
        else:
            call.reply = CommitReply(valid, code)
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
    refused: dict[str, OffsetCommitResponseTopic], valid: list[CommitTopic], error: int, metadata_max: int | None = None
) -> OffsetCommitResponse:
    """Partitions that were refused before the shard was called come first. `metadata_max`: the limit, if some metadata exceeds it."""
    topics = {name: OffsetCommitResponseTopic(name, list(topic.partitions)) for name, topic in refused.items()}
    without_refused: list[OffsetCommitResponseTopic] | None = None if topics else []
    for name, partitions in valid:
        codes = [
            OffsetCommitResponsePartition(partition.partition_index, error or _metadata_error(partition, metadata_max))
            for partition in partitions
        ]
        if without_refused is not None:
            without_refused.append(OffsetCommitResponseTopic(name, codes))
        elif name in topics:
            topics[name].partitions += codes
        else:
            topics[name] = OffsetCommitResponseTopic(name, codes)
    return OffsetCommitResponse(0, list(topics.values()) if without_refused is None else without_refused)


def _refuse_part(
    reply: OffsetCommitResponse, refused: dict[str, OffsetCommitResponseTopic], valid: list[CommitTopic], part: int, error: int
) -> None:
    """The append of the offsets (part 0) or of the topics' records (part 1) has failed. Partitions refused before that keep their codes."""
    reply.topics = commit_response(refused, valid, error if part == 0 else ErrorCode.COORDINATOR_NOT_AVAILABLE).topics


def _metadata_error(partition: OffsetCommitRequestPartition, metadata_max: int | None) -> int:
    metadata = partition.committed_metadata
    if metadata_max is not None and metadata and metadata_too_long(metadata, metadata_max):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _put_codes(
    refused: dict[str, OffsetCommitResponseTopic], name: str, partitions: list[OffsetCommitRequestPartition], error: int
) -> None:
    topic = refused.get(name)
    if topic is None:
        topic = refused[name] = OffsetCommitResponseTopic(name)
    topic.partitions += [OffsetCommitResponsePartition(partition.partition_index, error) for partition in partitions]


def error_response(request: OffsetCommitRequest, version: int, error: int) -> Response:
    return CommitReply([(topic.name, topic.partitions) for topic in request.topics], error)
