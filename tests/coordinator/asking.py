"""The requests of actors to the shard, with defaults for what the catalogue leaves open."""

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
from tests.coordinator.asked import Asked, AskedCommit, AskedJoin, AskedLeave, AskedOffset, AskedOffsets, AskedSync, Bytes, as_bytes
from tests.coordinator.stage import T0, UNCHANGED, Stage

Offered = Sequence[str | tuple[str, bytes]]


class DroppedReply:
    """Takes a reply that no test reads."""

    def release(self) -> None: ...

    def fail(self, error: int) -> None: ...


def _but_offsets(commit: Commit) -> Hashable:
    wanted = [(topic, one.partition_index, one.committed_leader_epoch, one.committed_metadata) for topic, all in commit.topics for one in all]
    return commit.group_id, commit.generation, commit.member_id, commit.instance_id, commit.retention_ms, tuple(wanted)


class Asking(Stage):
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
    ) -> AskedJoin:
        """`metadata` is for every protocol that has none of its own. Below v4 a newcomer is added at once."""
        offer = self._offer(actor)
        if instance is not UNCHANGED:
            offer.instance = instance
        if metadata is not None and protocols is None:
            protocols = [name for name, _ in offer.protocols]
        if protocols is not None:
            offer.protocols = tuple((one, T0 if metadata is None else metadata) if isinstance(one, str) else one for one in protocols)
        offer.session_ms = offer.session_ms if session is None else session
        offer.rebalance_ms = offer.rebalance_ms if rebalance is None else rebalance
        offer.type = offer.type if type is None else type
        sent = self.ids.get(actor, "") if id is None else self.id_of(id)
        if not sent:
            assert id == "" or actor not in self.ids
            self._newcomer = actor
        asked = AskedJoin(self, f"join {actor} ({offer.instance or '-'}, v{version})")
        rebalance_ms = offer.session_ms if version == 0 else offer.rebalance_ms
        words: tuple[Any, ...] = (group, sent, offer.instance, offer.type, offer.protocols, offer.session_ms, rebalance_ms, client, "/127.0.0.1")
        words += (version >= 4, version >= 9, reason)
        # A connection that remembers a JoinGroup hands over the same object each time.
        request = self.joins.get(words) or JoinRequest(*words)
        shard = self._serving
        shard.join(request, asked, self.now, self.wall)
        if shard.will_repeat(request):
            self.joins[words] = request
        if not sent and not self._newcomer:
            self.ids[actor] = f"{client if offer.instance is None else offer.instance}-{actor}"
        self._newcomer = ""
        self._end_step("join", actor, asked)
        return asked

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
    ) -> AskedSync:
        """Assignments by actor; the generation is the group's unless told otherwise."""
        given = {self.id_of(one): as_bytes(value) for one, value in (assignments or {}).items()}
        generation = self._generation(group) if generation is None else generation
        asked = AskedSync(self, f"sync {actor} g{generation}")
        words = (group, self.id_of(actor), self._instance(actor, instance), tuple(given.items()), type, protocol)
        request = self.syncs.get(words)
        if request is None:
            request = self.syncs[words] = SyncRequest(group, generation, *words[1:3], given, type, protocol)
        request.generation = generation  # the one thing in which a SyncGroup differs from the one before
        self._serving.sync(request, asked, self.now, self.wall)
        self._end_step("sync", actor, asked)
        return asked

    def _generation(self, group: str) -> int:
        found = self._of(group)
        return 0 if found is None else found.generation

    def heartbeat(self, actor: str, generation: int | None = None, *, instance: str | None = UNCHANGED, group: str = "g") -> Asked:
        generation = self._generation(group) if generation is None else generation
        asked = Asked(self, f"heartbeat {actor} g{generation}")
        asked.reply = self._code_of_heartbeat(group, generation, self.id_of(actor), self._instance(actor, instance))
        return self._replied("heartbeat", actor, asked)

    def leave(self, *leavers: str | tuple[str, str | None], group: str = "g", reason: str | None = None) -> AskedLeave:
        """`"b"` leaves by its id and, if it has one, its instance id; `("", "ib")` is an administrator's; `("b", None)`."""
        named = [Leaver(self.id_of(one), self._instance(one, UNCHANGED), reason) if isinstance(one, str) else Leaver(self.id_of(one[0]), one[1], reason)
                 for one in leavers]  # fmt: skip
        asked = AskedLeave(self, f"leave {leavers}")
        asked.reply = self._serving.leave(group, named, self.now, self.wall)
        return self._replied("leave", leavers[-1] if isinstance(leavers[-1], str) else leavers[-1][0], asked)

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
    ) -> AskedCommit:
        """OffsetCommit, of t0-0 at 1 unless told otherwise. Actor None: generation -1, no member, no instance."""
        generation = -1 if actor is None else self._generation(group) if generation is None else generation
        member, who = ("", None) if actor is None else (self.id_of(actor), self._instance(actor, instance))
        if actor is None and instance is not UNCHANGED:
            who = instance
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in ({("t0", 0): 1} if offsets is None else offsets).items():
            text = metadata.get((topic, partition), "") if isinstance(metadata, dict) else metadata
            topics.setdefault(topic, []).append(OffsetCommitRequestPartition(partition, offset, epoch, text))
        commit = Commit(group, generation, member, who, list(topics.items()), retention, 69 if version >= 9 else 22)
        return self.commit_as_is(commit, actor)

    def commit_as_is(self, commit: Commit, actor: str | None = None) -> AskedCommit:
        asked = AskedCommit(self, f"commit {actor or '-'} g{commit.generation}")
        asked.reply = ErrorCode.NONE if self._committed_again(commit) else self._serving.commit(commit, self.now, self.wall)
        asked.too_large = commit.too_large or set()
        if not asked.reply and commit.topics and not asked.too_large and commit.retention_ms == -1 and self.repeats is not None:
            words = _but_offsets(commit)
            if words not in self.repeats:  # the same object is used to the end, whatever happens in between
                count = sum(len(partitions) for _, partitions in commit.topics)
                self.repeats[words] = RepeatedCommit(commit, range(0, count * OFFSET_BYTES, OFFSET_BYTES), count * OFFSET_BYTES)
        return self._replied("commit", actor or "", asked)

    def _committed_again(self, commit: Commit) -> bool:
        """Take the fast path for a repeated commit where the broker would; the reply is the same."""
        repeat = self.repeats.get(_but_offsets(commit)) if self.repeats is not None else None
        if repeat is None:
            return False
        shard = self._serving
        frame = b"".join([pack(">q", one.committed_offset) for _, partitions in commit.topics for one in partitions])
        before = shard.hold.emitted
        if repeat.try_accept(shard, frame, DroppedReply(), self.now, self.wall) != FALLBACK:
            self.repeated += 1
            return True
        assert shard.hold.emitted == before
        return False

    def fetch(self, topic: str = "t0", partition: int = 0, *, group: str = "g") -> AskedOffset:
        asked = AskedOffset(self, f"fetch {topic}-{partition}")
        found = self._of(group)
        stored = found.offsets.get(topic) if found is not None else None
        value = stored.values.get(partition) if stored is not None else None
        asked.reply = StoredOffset(-1, -1, "", -1) if value is None else read_offset(value)
        return self._replied("fetch", "", asked)

    def fetch_all(self, *, group: str = "g") -> dict[tuple[str, int], int]:
        found = self._of(group)
        return {} if found is None else {(topic, one): read_offset(value).offset for topic, one, value in found.all_offsets()}

    def describe(self, group: str = "g") -> Description:
        return self._serving.describe(group)

    def listed(self) -> list[ListedGroup]:
        return self._serving.listed()

    def delete(self, group: str = "g") -> Asked:
        asked = Asked(self, f"delete {group}")
        asked.reply = self._serving.delete(group, self.now, self.wall)
        return self._replied("delete", "", asked)

    def offset_delete(self, *wanted: tuple[str, int], group: str = "g") -> AskedOffsets:
        asked = AskedOffsets(self, f"delete offsets {wanted}")
        asked.reply = self._serving.delete_offsets(group, list(wanted), self.now, self.wall)
        return self._replied("delete offsets", "", asked)

    def forget_topics(self, *topics: str, moment: int | None = None) -> None:
        self._serving.forget_topics(dict.fromkeys(topics, self.now if moment is None else moment), self.now, self.wall)
        self._end_step("topics deleted")

    def expect(self, actor: str, *error: int, **content: Any) -> None:
        """What the actor asked last was answered so."""
        self._last[actor].expect(*error, **content)
