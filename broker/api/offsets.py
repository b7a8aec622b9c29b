"""Offsets of groups: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from typing import Final

from broker.fastpath.commit import COMMIT_BYTES_MAX, IN_VAIN_MS, MADE_IN_VAIN_MAX, CommitAgain, CommitSeen, written
from broker.fastpath.offset_fetch import FETCH_BYTES_MAX, FetchAgain
from broker.groups.group_journal import GroupJournal
from broker.groups.held_replies import answer, answer_together
from broker.groups.offset_replies import (
    FETCH_ERROR,
    FETCH_GROUPS,
    AllCommitted,
    Fetched,
    FetchedGroup,
    FetchedTopic,
    Wanted,
    read_topics,
)
from broker.groups.shards import Shards
from broker.net.dispatch import Call, Response, Route, Seen
from broker.runtime.clock import Clock
from broker.security.authorizer import Authorizer, Operation, Resource, may
from broker.topics.registry import Topics
from coordinator import Commit, GroupConfig
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

    # OffsetCommit

    def commit(self, call: Call, request: OffsetCommitRequest) -> Response | None:
        if not may(self._authorizer, call, Operation.READ, Resource.GROUP, request.group_id):
            return refuse_commit(request, call.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        refused: dict[str, OffsetCommitResponseTopic] = {}
        valid: list[CommitTopic] = []
        for topic in request.topics:
            name, partitions = topic.name, topic.partitions
            there = self._partitions_of(call, name)
            if there > 0:
                for one in partitions:
                    if not 0 <= one.partition_index < there:
                        break
                else:
                    if partitions:
                        valid.append((name, partitions))
                    continue
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED if there < 0 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            _put_codes(refused, name, [one for one in partitions if not 0 <= one.partition_index < there], error)
            present = [one for one in partitions if 0 <= one.partition_index < there]
            if present:
                valid.append((name, present))
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
            code = journal.shard.commit(commit, self._clock.now, self._clock.wall)
        except Exception:
            journal.broken()
            raise
        journal.stepped()
        if not refused:
            if not code and commit.too_large is None:
                call.reply = AllCommitted(valid)
                self._remember(call, request, commit, journal)
            else:
                call.reply = committed(refused, valid, code, self._too_long(commit))
            journal.reply(call)
        else:
            journal.reply(PartlyCommitting(call, committed(refused, valid, code, self._too_long(commit)), refused, valid))
        return None

    def _remember(self, call: Call, request: OffsetCommitRequest, commit: Commit, journal: GroupJournal) -> None:
        """The second one of its kind: the next is likely of the same partitions."""
        if (
            call.size > COMMIT_BYTES_MAX
            or commit.retention_ms != -1
            or call.connection.host.trace is not None
            or not self._authorizer.open
        ):
            return
        before = call.remembered()
        if not isinstance(before, (CommitSeen, CommitAgain)):
            call.remember(CommitSeen())
            return
        now = self._clock.now
        in_vain = before.made if now - before.made_ms < IN_VAIN_MS else 0
        found = written(call.framed, request, call.version) if in_vain < MADE_IN_VAIN_MAX else None
        if found is not None and call.reply is not None:
            again = CommitAgain(call, found, commit, call.frame(call.reply), journal, self._topics, self._authorizer, self._clock)
            again.made = in_vain + 1
            if not call.remember(again):  # there is no room, and it was made in vain
                before.made = MADE_IN_VAIN_MAX
                before.made_ms = now

    def _too_long(self, commit: Commit) -> int | None:
        return self._metadata_max if commit.too_large is not None else None

    def _partitions_of(self, call: Call, name: str) -> int:
        """How many partitions a topic has, 0 when there is none of the name, -1 when the caller may not know."""
        if not may(self._authorizer, call, Operation.READ, Resource.TOPIC, name):
            return -1
        topic = self._topics.by_name.get(name)
        return topic.partitions if topic is not None else 0

    # OffsetFetch

    def fetch(self, call: Call, request: OffsetFetchRequest) -> Response | None:
        if call.version < FETCH_GROUPS:
            return self._fetch_one(call, request.group_id, request.topics)
        if len(request.groups) == 1:
            return self._fetch_one(call, request.groups[0].group_id, request.groups[0].topics)
        self._fetch_several(call, request.groups)
        return None

    def _fetch_one(self, call: Call, group_id: str, wanted: FetchTopics) -> Response | None:
        journal, group = self._fetch(call, group_id, wanted)
        if journal is None:
            return Fetched([group])
        if call.size <= FETCH_BYTES_MAX and self._authorizer.open and call.connection.host.trace is None:
            seen = isinstance(call.remembered(), (Seen, FetchAgain))
            call.remember(FetchAgain(call, group_id, wanted, journal, self._authorizer) if seen else Seen())
        return answer(journal, call, Fetched([group]))

    def _fetch_several(self, call: Call, groups: list[OffsetFetchRequestGroup]) -> None:
        found = [self._fetch(call, wanted.group_id, wanted.topics) for wanted in groups]
        reply = Fetched([group for _, group in found])
        asked = [(number, journal) for number, (journal, _) in enumerate(found) if journal is not None]

        def refuse(part: int, error: int) -> None:
            number = asked[part][0]
            reply.groups[number] = refused_group(groups[number].group_id, None, call.version, error)

        answer_together(call, reply, [journal for _, journal in asked], refuse)

    def _fetch(self, call: Call, group_id: str, wanted: FetchTopics) -> tuple[GroupJournal | None, FetchedGroup]:
        """The offsets of one group, and which journal must agree that they are told; None when nobody was asked."""
        everything = self._authorizer.open
        if not everything and not may(self._authorizer, call, Operation.DESCRIBE, Resource.GROUP, group_id):
            return None, refused_group(group_id, wanted, call.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        journal = self._shards.of(group_id)
        if journal.refusal:
            return None, refused_group(group_id, wanted, call.version, journal.refusal)
        group = journal.shard.groups.get(group_id)
        offsets = group.offsets if group is not None else {}
        if everything:
            return journal, (group_id, read_topics(offsets, wanted), ErrorCode.NONE)
        if wanted is None:
            shown = {name: stored for name, stored in offsets.items() if may(self._authorizer, call, Operation.DESCRIBE, Resource.TOPIC, name)}
            return journal, (group_id, read_topics(shown, None), ErrorCode.NONE)
        allowed: list[Wanted] = []
        hidden: list[FetchedTopic] = []
        for topic in wanted:
            if may(self._authorizer, call, Operation.DESCRIBE, Resource.TOPIC, topic.name):
                allowed.append(topic)
            else:
                hidden.append(_without_offsets(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return journal, (group_id, read_topics(offsets, allowed) + hidden, ErrorCode.NONE)

    # OffsetDelete

    def delete(self, call: Call, request: OffsetDeleteRequest) -> Response | None:
        if not may(self._authorizer, call, Operation.DELETE, Resource.GROUP, request.group_id):
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
            error_of_all, codes = journal.shard.delete_offsets(request.group_id, wanted, self._clock.now, self._clock.wall)
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
    return topic.name, topic.partition_indexes, [None] * len(topic.partition_indexes), error


def refused_group(group_id: str, wanted: FetchTopics, version: int, error: int) -> FetchedGroup:
    """Version 1 has no place for the group's error: each partition gets it, since an empty success would mean no offsets."""
    if error in _FETCH_SAYS_NOT_COORDINATOR:
        error = ErrorCode.NOT_COORDINATOR
    if version >= FETCH_ERROR:
        return group_id, [], error
    return group_id, [_without_offsets(topic, error) for topic in wanted or []], ErrorCode.NONE


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
