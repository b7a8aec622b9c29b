"""Offsets of groups: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from typing import Final

from broker.authorizer import Authorizer, Operation, Resource
from broker.clock import Clock
from broker.dispatch import Call, Response, Route
from broker.group_journal import GroupJournal
from broker.handlers.holding import answer, answer_together
from broker.handlers.offset_replies import FETCH_ERROR, FETCH_GROUPS, AllCommitted, Fetched, FetchedGroup, FetchedTopic
from broker.shards import Shards
from broker.topics import Topics
from coordinator import Commit, GroupConfig, Shard
from coordinator.offsets import too_long
from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics

COMMIT_KNOWS_GROUP_NOT_FOUND: Final = 9

# Java's consumers before 3.9 fail on these in an OffsetFetch, and look for the coordinator again on 16.
_FETCH_SAYS_NOT_COORDINATOR: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)

CommitTopic = tuple[str, list[OffsetCommitRequestPartition]]
FetchTopics = list[OffsetFetchRequestTopic] | list[OffsetFetchRequestTopics] | None


class OffsetHandlers:
    """What is committed is checked against the registry of topics here, and against its group in the core."""

    def __init__(self, shards: Shards, topics: Topics, config: GroupConfig, clock: Clock, authorizer: Authorizer) -> None:
        self._shards = shards
        self._topics = topics
        self._metadata_max = config.offset_metadata_max_bytes
        self._clock = clock
        self._authorizer = authorizer

    def routes(self) -> list[Route]:
        return [
            Route(APIS[OffsetCommitRequest.API_KEY], self.commit, refuse_commit),
            Route(APIS[OffsetFetchRequest.API_KEY], self.fetch, refuse_fetch),
            Route(APIS[OffsetDeleteRequest.API_KEY], self.delete, refuse_delete),
        ]

    def _may(self, call: Call, operation: Operation, resource: Resource, name: str) -> bool:
        return self._authorizer.open or self._authorizer.allows(call, operation, resource, name)

    # OffsetCommit

    def commit(self, call: Call, request: OffsetCommitRequest) -> Response | None:
        if not self._may(call, Operation.READ, Resource.GROUP, request.group_id):
            return refuse_commit(request, call.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        refused: dict[str, OffsetCommitResponseTopic] = {}
        valid: list[CommitTopic] = []
        for topic in request.topics:
            there = self._partitions_of(call, topic.name)
            missing = [one for one in topic.partitions if not 0 <= one.partition_index < there]
            if there <= 0 or missing:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED if there < 0 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                _put_codes(refused, topic.name, missing, error)
                present = [one for one in topic.partitions if 0 <= one.partition_index < there]
            else:
                present = topic.partitions
            if present:
                valid.append((topic.name, present))
        if not valid:  # the group is not even looked at: nobody is fenced
            return OffsetCommitResponse(0, list(refused.values()))
        journal = self._shards.of(request.group_id)
        if journal.refusal:
            return committed(refused, valid, journal.refusal)
        commit = Commit(
            request.group_id,
            request.generation_id_or_member_epoch,
            request.member_id,
            request.group_instance_id,
            valid,
            request.retention_time_ms,
            ErrorCode.GROUP_ID_NOT_FOUND if call.version >= COMMIT_KNOWS_GROUP_NOT_FOUND else ErrorCode.ILLEGAL_GENERATION,
        )
        try:
            code = journal.shard.commit(commit, self._clock.now)
        except Exception:
            journal.broken()
            raise
        journal.stepped()
        if not code and not refused and commit.too_large is None:
            return answer(journal, call, AllCommitted(valid))
        too_large = self._metadata_max if commit.too_large is not None else None
        reply = committed(refused, valid, code, too_large)
        if not refused:
            return answer(journal, call, reply)
        journal.reply(PartlyCommitting(call, reply, refused, valid))
        return None

    def _partitions_of(self, call: Call, name: str) -> int:
        """How many partitions a topic has, 0 when there is none of the name, -1 when the caller may not know."""
        if not self._may(call, Operation.READ, Resource.TOPIC, name):
            return -1
        topic = self._topics.by_name.get(name)
        return topic.partitions if topic is not None else 0

    # OffsetFetch

    def fetch(self, call: Call, request: OffsetFetchRequest) -> Response | None:
        version = call.version
        if version < FETCH_GROUPS:
            journal, group = self._fetch(call, request.group_id, request.topics)
            return answer(journal, call, Fetched([group])) if journal is not None else Fetched([group])
        found = [self._fetch(call, wanted.group_id, wanted.topics) for wanted in request.groups]
        reply = Fetched([group for _, group in found])
        asked = [(number, journal) for number, (journal, _) in enumerate(found) if journal is not None]
        if len(found) == 1 and asked:
            return answer(asked[0][1], call, reply)

        def refuse(part: int, error: int) -> None:
            number = asked[part][0]
            reply.groups[number] = refused_group(request.groups[number].group_id, None, version, error)

        answer_together(call, reply, [journal for _, journal in asked], refuse)
        return None

    def _fetch(self, call: Call, group_id: str, wanted: FetchTopics) -> tuple[GroupJournal | None, FetchedGroup]:
        """The offsets of one group, and which journal must agree that they are told; None when nobody was asked."""
        if not self._may(call, Operation.DESCRIBE, Resource.GROUP, group_id):
            return None, refused_group(group_id, wanted, call.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        journal = self._shards.of(group_id)
        if journal.refusal:
            return None, refused_group(group_id, wanted, call.version, journal.refusal)
        if wanted is None:
            return journal, FetchedGroup(group_id, self._all_offsets(call, journal.shard, group_id))
        group = journal.shard.groups.get(group_id)
        offsets = group.offsets if group is not None else {}
        topics: list[FetchedTopic] = []
        hidden: list[FetchedTopic] = []
        for topic in wanted:
            if not self._may(call, Operation.DESCRIBE, Resource.TOPIC, topic.name):
                hidden.append(_without_offsets(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            stored = offsets.get(topic.name)
            if stored is None:
                topics.append(_without_offsets(topic, ErrorCode.NONE))
            else:
                values = stored.values
                topics.append(FetchedTopic(topic.name, [(partition, values.get(partition)) for partition in topic.partition_indexes]))
        return journal, FetchedGroup(group_id, topics + hidden)

    def _all_offsets(self, call: Call, shard: Shard, group_id: str) -> list[FetchedTopic]:
        group = shard.groups.get(group_id)
        if group is None:
            return []
        return [
            FetchedTopic(name, list(stored.values.items()))
            for name, stored in group.offsets.items()
            if self._may(call, Operation.DESCRIBE, Resource.TOPIC, name)
        ]

    # OffsetDelete

    def delete(self, call: Call, request: OffsetDeleteRequest) -> Response | None:
        if not self._may(call, Operation.DELETE, Resource.GROUP, request.group_id):
            return OffsetDeleteResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        told: dict[str, OffsetDeleteResponseTopic] = {}
        valid: list[tuple[str, list[int]]] = []
        for topic in request.topics:
            there = self._partitions_of(call, topic.name)
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED if there < 0 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            missing = [one.partition_index for one in topic.partitions if not 0 <= one.partition_index < there]
            if there <= 0 or missing:
                _deleted(told, topic.name).partitions += [OffsetDeleteResponsePartition(index, error) for index in missing]
            present = [one.partition_index for one in topic.partitions if 0 <= one.partition_index < there]
            if present:
                valid.append((topic.name, present))
        if not request.group_id:
            return OffsetDeleteResponse(ErrorCode.INVALID_GROUP_ID)
        journal = self._shards.of(request.group_id)
        if journal.refusal:
            return OffsetDeleteResponse(journal.refusal)
        wanted = [(name, partition) for name, partitions in valid for partition in partitions]
        try:
            error_of_all, codes = journal.shard.delete_offsets(request.group_id, wanted, self._clock.now)
        except Exception:
            journal.broken()
            raise
        journal.stepped()
        if error_of_all:
            return answer(journal, call, OffsetDeleteResponse(error_of_all))
        each = iter(codes)
        deleted = [(name, [OffsetDeleteResponsePartition(index, next(each)) for index in partitions]) for name, partitions in valid]
        if not told:  # a topic asked for twice is told twice, as of a commit
            return answer(journal, call, OffsetDeleteResponse(ErrorCode.NONE, 0, [OffsetDeleteResponseTopic(*one) for one in deleted]))
        for name, codes_of_topic in deleted:
            _deleted(told, name).partitions += codes_of_topic
        return answer(journal, call, OffsetDeleteResponse(ErrorCode.NONE, 0, list(told.values())))


class PartlyCommitting:
    """The held reply to a commit of which some partitions never reached the group: these keep their codes."""

    __slots__ = ("_call", "_refused", "_reply", "_valid")

    def __init__(self, call: Call, reply: Response, refused: dict[str, OffsetCommitResponseTopic], valid: list[CommitTopic]) -> None:
        self._call = call
        self._reply = reply
        self._refused = refused
        self._valid = valid

    def release(self) -> None:
        self._call.answer(self._reply)

    def fail(self, error: int) -> None:
        self._call.answer(committed(self._refused, self._valid, error))


def committed(
    refused: dict[str, OffsetCommitResponseTopic], valid: list[CommitTopic], error: int, metadata_max: int | None = None
) -> OffsetCommitResponse:
    """Whatever was refused before the group was asked comes first. `metadata_max` is given where some metadata is too long."""
    topics = {name: OffsetCommitResponseTopic(name, list(topic.partitions)) for name, topic in refused.items()}
    alone: list[OffsetCommitResponseTopic] | None = None if topics else []
    for name, partitions in valid:
        codes = [OffsetCommitResponsePartition(one.partition_index, error or _metadata_error(one, metadata_max)) for one in partitions]
        if alone is not None:
            alone.append(OffsetCommitResponseTopic(name, codes))
        elif name in topics:
            topics[name].partitions += codes
        else:
            topics[name] = OffsetCommitResponseTopic(name, codes)
    return OffsetCommitResponse(0, list(topics.values()) if alone is None else alone)


def _metadata_error(one: OffsetCommitRequestPartition, metadata_max: int | None) -> int:
    metadata = one.committed_metadata
    if metadata_max is not None and metadata and too_long(metadata, metadata_max):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _put_codes(
    refused: dict[str, OffsetCommitResponseTopic], name: str, partitions: list[OffsetCommitRequestPartition], error: int
) -> None:
    topic = refused.get(name)
    if topic is None:
        topic = refused[name] = OffsetCommitResponseTopic(name)
    topic.partitions += [OffsetCommitResponsePartition(one.partition_index, error) for one in partitions]


def refuse_commit(request: OffsetCommitRequest, version: int, error: int) -> Response:
    return committed({}, [(topic.name, topic.partitions) for topic in request.topics], error)


def _without_offsets(topic: OffsetFetchRequestTopic | OffsetFetchRequestTopics, error: int) -> FetchedTopic:
    return FetchedTopic(topic.name, [(partition, None) for partition in topic.partition_indexes], error)


def refused_group(group_id: str, wanted: FetchTopics, version: int, error: int) -> FetchedGroup:
    """Version 1 has no place for the group's error: each partition gets it, since an empty success would mean no offsets."""
    if error in _FETCH_SAYS_NOT_COORDINATOR:
        error = ErrorCode.NOT_COORDINATOR
    if version >= FETCH_ERROR:
        return FetchedGroup(group_id, [], error)
    return FetchedGroup(group_id, [_without_offsets(topic, error) for topic in wanted or []])


def refuse_fetch(request: OffsetFetchRequest, version: int, error: int) -> Response:
    groups: list[OffsetFetchRequestGroup] = request.groups
    if version >= FETCH_GROUPS:
        return Fetched([refused_group(group.group_id, None, version, error) for group in groups])
    return Fetched([refused_group(request.group_id, request.topics, version, error)])


def _deleted(told: dict[str, OffsetDeleteResponseTopic], name: str) -> OffsetDeleteResponseTopic:
    topic = told.get(name)
    if topic is None:
        topic = told[name] = OffsetDeleteResponseTopic(name)
    return topic


def refuse_delete(request: OffsetDeleteRequest, version: int, error: int) -> Response:
    return OffsetDeleteResponse(error)
