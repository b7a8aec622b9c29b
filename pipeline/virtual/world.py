"""The virtual world: one clock, scheduled actions, and a coordinator for each partition of __consumer_offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

from coordinator import Commit, GroupConfig, JoinRequest, Leaver, SyncRequest, partition_of
from coordinator.classic.group import Group
from coordinator.classic.member import Member
from coordinator.notes import Cause, ShardChange
from pipeline.virtual.client import Client, PendingRequest
from pipeline.virtual.partition import VirtualCoordinator
from pipeline.virtual.recorder import MemoryRecorder, Recorder
from pipeline.virtual.truth import Change, Restart, TrueRebalance

RETRY_MS: Final = 200
UNREACHABLE: Final = -1  # no reply: the coordinator is down


class World:
    """`now`: the time in milliseconds since 1970. Equal seeds and scripts make equal logs."""

    def __init__(
        self,
        start_ms: int,
        partitions: int = 1,
        *,
        config: GroupConfig | None = None,
        recorder: Recorder | None = None,
        seed: int = 0,
    ) -> None:
        self.now = self.start_ms = start_ms
        self.random = Random(seed)
        self.config = config or GroupConfig()
        self.recorder = recorder if recorder is not None else MemoryRecorder()
        self.retry_ms = RETRY_MS
        self.clients: dict[str, list[Client]] = {}
        self.restarts: list[Restart] = []
        self.why = ""  # the current scripted action, recorded with rebalances that begin now
        self.partitions = [VirtualCoordinator(self, number) for number in range(partitions)]
        self._partition_of_group: dict[str, VirtualCoordinator] = {}
        self._agenda: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0

    # The script

    def client(self, group: str, name: str, **settings: Any) -> Client:
        """Add a client; it still has to be started."""
        client = Client(self, group, name, **settings)
        self.clients.setdefault(group, []).append(client)
        return client

    def at(self, moment: int, step: Callable[..., object], *arguments: object) -> None:
        assert moment >= self.now, "time does not go back"
        self._count += 1
        heappush(self._agenda, (moment, self._count, step, arguments))

    def run(self, ms: int) -> None:
        self.run_until(self.now + ms)

    def run_until(self, end: int) -> None:
        agenda = self._agenda
        partitions = self.partitions
        while True:
            due = min([partition.wake_at for partition in partitions])
            moment = min(due, agenda[0][0] if agenda else end, end)
            self.now = max(moment, self.now)
            if due <= self.now:
                for partition in partitions:
                    if partition.wake_at <= self.now:
                        partition.advance()
            elif agenda and agenda[0][0] <= self.now:
                _, _, step, arguments = heappop(agenda)
                step(*arguments)
            else:
                break
        for partition in partitions:
            partition.write_notes()

    def begin_restart(self, client: Client, away_ms: int) -> int:
        number = len(self.restarts)
        self.restarts.append(Restart(number, client.group, client.name, client.instance, self.now, away_ms))
        return number

    # Results

    def coordinator_of(self, group: str) -> VirtualCoordinator:
        assigned = self._partition_of_group.get(group)
        if assigned is None:
            assigned = self._partition_of_group[group] = self.partitions[partition_of(group, len(self.partitions))]
        return assigned

    def episodes(self, group: str) -> list[TrueRebalance]:
        return self.coordinator_of(group).history(group).episodes

    def avoidable(self, group: str) -> list[TrueRebalance]:
        """The rebalances that instance ids and a long enough session timeout would have avoided."""
        return self.coordinator_of(group).history(group).avoidable()

    def saved(self, group: str) -> list[Change]:
        """The returns of static members without a rebalance."""
        changes = self.coordinator_of(group).history(group).changes
        within = {id(change) for episode in self.episodes(group) for change in episode.changes}
        return [change for change in changes if change.what == "replaced" and id(change) not in within]

    def group(self, group: str) -> Group | None:
        """The coordinator's group."""
        shard = self.coordinator_of(group).shard
        return shard.groups.get(group) if shard is not None else None

    def generation(self, group: str) -> int:
        state = self.group(group)
        return state.generation if state is not None else 0

    # Restarts of the coordinator

    def restart_coordinator(self, down_ms: int, partitions: Sequence[int] | None = None) -> None:
        """Stop the coordinator in order, and start it after `down_ms`."""
        self._stop(down_ms, partitions, orderly=True)

    def kill_coordinator(self, down_ms: int, partitions: Sequence[int] | None = None) -> None:
        """Kill the coordinator, which loses the last notes, and start it after `down_ms`."""
        self._stop(down_ms, partitions, orderly=False)

    def stop(self) -> None:
        """Stop all coordinators in order."""
        for partition in self.partitions:
            if partition.shard is not None:
                partition.stop(orderly=True)

    def _stop(self, down_ms: int, partitions: Sequence[int] | None, *, orderly: bool) -> None:
        for partition in self.partitions if partitions is None else [self.partitions[number] for number in partitions]:
            partition.stop(orderly)
            self.at(self.now + down_ms, partition.load, ShardChange.LOADED)
            for group, clients in self.clients.items():
                if self.coordinator_of(group) is partition:
                    for client in clients:
                        client.world.at(self.now + down_ms + 1, client.lost_connection)

    # Requests of clients

    def join(self, client: Client, request: JoinRequest, pending: PendingRequest) -> bool:
        return self.coordinator_of(request.group_id).join(client, request, pending)

    def sync(self, client: Client, request: SyncRequest, pending: PendingRequest) -> bool:
        partition = self.coordinator_of(request.group_id)
        if partition.shard is None:
            return False
        partition.shard.sync(request, pending, self.now, self.now)
        partition.end_step(request.group_id, None, client)
        return True

    def heartbeat(self, group: str, generation: int, member_id: str, instance: str | None) -> int:
        partition = self.coordinator_of(group)
        if partition.shard is None:
            return UNREACHABLE
        code = partition.shard.heartbeat(group, generation, member_id, instance, self.now)
        partition.append()
        return code

    def leave(self, client: Client | None, leavers: list[Leaver], group: str = "") -> list[int]:
        """Send LeaveGroup; `client` None: by an administrator."""
        group = client.group if client is not None else group
        partition = self.coordinator_of(group)
        if partition.shard is None:
            return [UNREACHABLE] * len(leavers)
        codes = partition.shard.leave(group, leavers, self.now, self.now)
        if client is None:
            partition.end_step(group, Cause.ADMIN_REMOVED, client, removal="removed")
        else:
            partition.end_step(group, Cause.MEMBER_LEFT, client, removal="left")
        return codes

    def commit(self, commit: Commit) -> int:
        partition = self.coordinator_of(commit.group_id)
        if partition.shard is None:
            return UNREACHABLE
        code = partition.shard.commit(commit, self.now, self.now)
        places = tuple([(topic, entry.partition_index) for topic, partitions in commit.topics for entry in partitions])
        partition.append((commit.group_id, places))
        return code

    # Requests of administrators

    def remove_instance(self, group: str, instance: str, reason: str | None = None) -> int:
        return self.leave(None, [Leaver("", instance, reason)], group)[0]

    def delete_group(self, group: str) -> int:
        partition = self.coordinator_of(group)
        assert partition.shard is not None
        code = partition.shard.delete(group, self.now, self.now)
        partition.end_step(group, None, None)
        return code

    def delete_offsets(self, group: str, wanted: list[tuple[str, int]]) -> int:
        partition = self.coordinator_of(group)
        assert partition.shard is not None
        error, _ = partition.shard.delete_offsets(group, wanted, self.now, self.now)
        partition.append()
        return error

    # State for clients

    def member(self, client: Client) -> Member | None:
        shard = self.coordinator_of(client.group).shard
        group = shard.groups.get(client.group) if shard is not None else None
        return group.members.get(client.member_id) if group is not None else None

    def set_deadline(self, client: Client, member: Member, deadline: int) -> None:
        shard = self.coordinator_of(client.group).shard
        assert shard is not None
        shard.deadlines.set(member, max(deadline, self.now))

    def partitions_of(self, leader: Client) -> Mapping[str, int]:
        """The topics of the leader's group, each with its number of partitions."""
        counts: dict[str, int] = {}
        for client in self.clients[leader.group]:
            counts.update(client.topics)
        counts.update(leader.topics)
        return counts

    def client_ended(self, client: Client) -> None:
        """Remember the restart in which the process ended: later changes of its member are attributed to that restart."""
        member = self.member(client)
        if client.restart_number is not None and member is not None:
            self.restarts[client.restart_number].last_sign_ms = member.seen_ms
        self.coordinator_of(client.group).remember_owner(client)

    def client_joined(self, client: Client) -> None:
        """The client has joined its group."""
        if client.restart_number is not None:
            restart = self.restarts[client.restart_number]
            if restart.back_ms < 0:
                restart.back_ms = self.now


