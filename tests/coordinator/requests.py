"""Requests of actors to the shard, with defaults for the fields that a scenario does not name."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from struct import pack
from typing import Any

from coordinator import Commit, Description, JoinRequest, Leaver, ListedGroup, StoredOffset, SyncRequest
from coordinator.facts import read_offset
from coordinator.repeats import FALLBACK, RepeatedCommit
from protocol.batch_writing import CUT_BYTES as OFFSET_BYTES
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import OffsetCommitRequestPartition
from tests.coordinator.sent_requests import (
    Bytes,
    SentCommit,
    SentJoin,
    SentLeave,
    SentOffsetDelete,
    SentOffsetFetch,
    SentRequest,
    SentSync,
    as_bytes,
)
from tests.coordinator.stage import T0, UNCHANGED, Stage

Offered = Sequence[str | tuple[str, bytes]]


class DroppedReply:
    """Drops a reply that no test reads."""

    def release(self) -> None: ...

    def fail(self, error: int) -> None: ...


def _but_offsets(commit: Commit) -> Hashable:
    committed = [(topic, partition.partition_index, partition.committed_leader_epoch, partition.committed_metadata) for topic, all in commit.topics for partition in all]
    return commit.group_id, commit.generation, commit.member_id, commit.instance_id, commit.retention_ms, tuple(committed)


class Requests(Stage):
    def join(
        self,
        actor: str,
        *,
        instance: str | None = UNCHANGED,
        id: str | None = None,
        protocols: Offered | None = None,
        metadata: bytes | None = None,
        session: int | None = None,
        rebalance: int | None = None,
        type: str | None = None,
        version: int = 9,
        client: str = "c",
        reason: str | None = None,
        group: str = "g",
    ) -> SentJoin:
        """`metadata`: for each protocol given without its own. Below version 4 a newcomer becomes a member at once, without error 79."""
        fields = self._join_fields(actor)
        if instance is not UNCHANGED:
            fields.instance = instance
        if metadata is not None and protocols is None:
            protocols = [name for name, _ in fields.protocols]
        if protocols is not None:
            subscribed = T0 if metadata is None else metadata
            fields.protocols = tuple((protocol, subscribed) if isinstance(protocol, str) else protocol for protocol in protocols)
        fields.session_ms = fields.session_ms if session is None else session
        fields.rebalance_ms = fields.rebalance_ms if rebalance is None else rebalance
        fields.type = fields.type if type is None else type
        member_id = self.ids.get(actor, "") if id is None else self.id_of(id)
        if not member_id:
            assert id == "" or actor not in self.ids
            self._newcomer = actor
        sent = SentJoin(self, f"join {actor} ({fields.instance or '-'}, v{version})")
        rebalance_ms = fields.session_ms if version == 0 else fields.rebalance_ms
        words: tuple[Any, ...] = (group, member_id, fields.instance, fields.type, fields.protocols, fields.session_ms, rebalance_ms, client)
        words += ("/127.0.0.1", version >= 4, version >= 9, reason, self.connection)
        # A connection that remembers a JoinGroup hands over the same object each time.
        request = self.joins.get(words) or JoinRequest(*words)
        shard = self._serving
        shard.join(request, sent, self.now, self.wall)
        if shard.remember_repeatable_join(request):
            self.joins[words] = request
        if not member_id and not self._newcomer:
            self.ids[actor] = f"{client if fields.instance is None else fields.instance}-{actor}"
        self._newcomer = ""
        self._end_step("join", actor, sent)
        return sent

    def sync(
        self,
        actor: str,
        assignments: dict[str, Bytes] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = UNCHANGED,
        type: str | None = None,
        protocol: str | None = None,
        group: str = "g",
    ) -> SentSync:
        """Assignments by actor; the generation defaults to the group's."""
        by_member = {self.id_of(actor): as_bytes(value) for actor, value in (assignments or {}).items()}
        generation = self._generation(group) if generation is None else generation
        sent = SentSync(self, f"sync {actor} g{generation}")
        words = (group, self.id_of(actor), self._instance(actor, instance), tuple(by_member.items()), type, protocol)
        request = self.syncs.get(words)
        if request is None:
            request = self.syncs[words] = SyncRequest(group, generation, *words[1:3], by_member, type, protocol)
        request.generation = generation  # the only field in which this SyncGroup differs from the previous one
        self._serving.sync(request, sent, self.now, self.wall)
        self._end_step("sync", actor, sent)
        return sent

    def _generation(self, group: str) -> int:
        state = self._of(group)
        return 0 if state is None else state.generation

    def heartbeat(self, actor: str, generation: int | None = None, *, instance: str | None = UNCHANGED, group: str = "g") -> SentRequest:
        generation = self._generation(group) if generation is None else generation
        sent = SentRequest(self, f"heartbeat {actor} g{generation}")
        sent.reply = self._code_of_heartbeat(group, generation, self.id_of(actor), self._instance(actor, instance))
        return self._replied("heartbeat", actor, sent)

    def leave(self, *leavers: str | tuple[str, str | None], group: str = "g", reason: str | None = None) -> SentLeave:
        """`"b"` leaves by its id and, if it has one, its instance id; `("", "ib")`: by instance id alone (an administrator); `("b", None)`: by member id."""
        named = [Leaver(self.id_of(leaver), self._instance(leaver, UNCHANGED), reason) if isinstance(leaver, str) else Leaver(self.id_of(leaver[0]), leaver[1], reason)
                 for leaver in leavers]  # fmt: skip
        sent = SentLeave(self, f"leave {leavers}")
        sent.reply = self._serving.leave(group, named, self.now, self.wall)
        return self._replied("leave", leavers[-1] if isinstance(leavers[-1], str) else leavers[-1][0], sent)

    def commit(
        self,
        actor: str | None,
        offsets: dict[tuple[str, int], int] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = UNCHANGED,
        metadata: str | dict[tuple[str, int], str | None] | None = "",
        epoch: int = -1,
        retention: int = -1,
        version: int = 9,
        group: str = "g",
    ) -> SentCommit:
        """OffsetCommit, by default offset 1 for t0-0. Actor None: generation -1, no member, no instance."""
        generation = -1 if actor is None else self._generation(group) if generation is None else generation
        member, instance_id = ("", None) if actor is None else (self.id_of(actor), self._instance(actor, instance))
        if actor is None and instance is not UNCHANGED:
            instance_id = instance
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in ({("t0", 0): 1} if offsets is None else offsets).items():
            text = metadata.get((topic, partition), "") if isinstance(metadata, dict) else metadata
            topics.setdefault(topic, []).append(OffsetCommitRequestPartition(partition, offset, epoch, text))
        commit = Commit(group, generation, member, instance_id, list(topics.items()), retention, 69 if version >= 9 else 22)
        return self.commit_as_is(commit, actor)

    def commit_as_is(self, commit: Commit, actor: str | None = None) -> SentCommit:
        sent = SentCommit(self, f"commit {actor or '-'} g{commit.generation}")
        sent.reply = ErrorCode.NONE if self._committed_again(commit) else self._serving.commit(commit, self.now, self.wall)
        sent.too_large = commit.too_large or set()
        if not sent.reply and commit.topics and not sent.too_large and commit.retention_ms == -1 and self.repeats is not None:
            words = _but_offsets(commit)
            if words not in self.repeats:  # the same object serves every repeat until the end of the test
                count = sum(len(partitions) for _, partitions in commit.topics)
                self.repeats[words] = RepeatedCommit(commit, range(0, count * OFFSET_BYTES, OFFSET_BYTES), count * OFFSET_BYTES)
        return self._replied("commit", actor or "", sent)

    def _committed_again(self, commit: Commit) -> bool:
        """Try the fast path for a repeated commit, as a connection of the broker does; whether it accepted the commit."""
        repeat = self.repeats.get(_but_offsets(commit)) if self.repeats is not None else None
        if repeat is None:
            return False
        shard = self._serving
        frame = b"".join([pack(">q", partition.committed_offset) for _, partitions in commit.topics for partition in partitions])
        before = shard.hold.emitted
        if repeat.try_accept(shard, frame, DroppedReply(), self.now, self.wall) != FALLBACK:
            self.repeated += 1
            return True
        assert shard.hold.emitted == before
        return False

    def fetch(self, topic: str = "t0", partition: int = 0, *, group: str = "g") -> SentOffsetFetch:
        sent = SentOffsetFetch(self, f"fetch {topic}-{partition}")
        state = self._of(group)
        stored = state.offsets.get(topic) if state is not None else None
        value = stored.values.get(partition) if stored is not None else None
        sent.reply = StoredOffset(-1, -1, "", -1) if value is None else read_offset(value)
        return self._replied("fetch", "", sent)

    def fetch_all(self, *, group: str = "g") -> dict[tuple[str, int], int]:
        state = self._of(group)
        return {} if state is None else {(topic, partition): read_offset(value).offset for topic, partition, value in state.all_offsets()}

    def describe(self, group: str = "g") -> Description:
        return self._serving.describe(group)

    def listed(self) -> list[ListedGroup]:
        return [listed for id in self._serving.groups if (listed := self._serving.listed_group(id)) is not None]

    def delete(self, group: str = "g") -> SentRequest:
        sent = SentRequest(self, f"delete {group}")
        sent.reply = self._serving.delete(group, self.now, self.wall)
        return self._replied("delete", "", sent)

    def offset_delete(self, *partitions: tuple[str, int], group: str = "g") -> SentOffsetDelete:
        sent = SentOffsetDelete(self, f"delete offsets {partitions}")
        sent.reply = self._serving.delete_offsets(group, list(partitions), self.now, self.wall)
        return self._replied("delete offsets", "", sent)

    def forget_topics(self, *topics: str) -> None:
        self._serving.forget_topics(topics, self.now, self.wall)
        self._end_step("topics deleted")

    def note_deletions(self, number: int) -> None:
        self._serving.note_deletions(number, self.now, self.wall)
        self._end_step("deletions noted")

    def expect(self, actor: str, *error: int, **content: Any) -> None:
        """Check the reply to the actor's last request."""
        self._last[actor].expect(*error, **content)
