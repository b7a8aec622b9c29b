"""Model members of groups of the consumer protocol (KIP-848), which behave as the Java client does.

The first heartbeat has epoch 0 and all fields; later ones say only what has changed, and everything again after a lost reply. On a new
assignment a member first gives up what it lacks: it commits the offsets, stops, and only then sends its list without it.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from functools import partial
from typing import Any, Final

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatRequestTopicPartitions
from simulator.client import RETRIED, Client, ClientConnection, Process, Request
from simulator.commit import Commit, offset_fetch_with_epoch
from simulator.commit_results import settle_commit
from simulator.epoch_plan import EXPRESSIONS, EpochGroupPlan
from simulator.epoch_promises import (
    ERRORS_OF_EPOCHS,
    Fences,
    Seat,
    Standing,
    TopicPartition,
    check_fence,
    may_be_removed,
)
from simulator.epoch_watch import EpochWatch
from simulator.lookups import BACKOFF_NS
from simulator.plan import plural
from simulator.scene import Scene
from simulator.world import MS, SECOND, Broken

VERSION: Final = 1  # of ConsumerGroupHeartbeat
OFFSETS_VERSION: Final = 9  # of OffsetCommit and OffsetFetch: the first with member epochs
REQUEST_NS: Final = 30 * SECOND
NEVER: Final = 1 << 62
LEAVE: Final = -1
AWAY: Final = -2
QUICK_NS: Final = 500 * MS  # how long it takes to give partitions up, unless it hangs
CALLBACK_MAX: Final = 2  # rebalance timeouts, if it hangs
LEAVES_FOR_GOOD: Final = 0.15  # share of the closing static members
DROPS_EVERYTHING: Final = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
STALE: Final = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)

Subscription = tuple[tuple[str, ...], str, str | None]  # names, expression, assignor


class EpochMember(Client):
    def __init__(self, scene: Scene, watch: EpochWatch, plan: EpochGroupPlan, name: str, instance: str | None) -> None:
        super().__init__(scene.world, name)
        self._scene = scene
        self._watch = watch
        self.plan = plan
        self.group = plan.name
        self.instance = instance
        self.retired = False  # it never starts again
        self.address = f"10.2.{scene.world.random.randrange(250)}.{scene.world.random.randrange(250)}"
        self.wire: ClientConnection | None = None
        self._begin()

    def _begin(self) -> None:
        self.member_id = urlsafe_b64encode(self.world.random.randbytes(16)).rstrip(b"=").decode()
        self.retries_unreleased = self.world.chance(0.5)  # as librdkafka; the Java client ends
        self.subscription = self._choose_subscription()
        self._must_find_coordinator = False
        self._last_commit: Commit | None = None
        self._idle: tuple[int, bytes] = (0, b"")  # an epoch, and the heartbeat with it that says nothing else
        self._unsettled: set[Request] = set()  # heartbeats that the broker may still handle
        self._drop()
        self.confirmed = -1
        self._misses = 0  # how many such heartbeats; 2 also if one was sent before
        self._missed_since = NEVER  # when the first heartbeat after that was sent that was lost, or refused in a way that it may have had an effect

    def _drop(self) -> None:
        """Give up everything: the member will join again."""
        self.epoch = 0
        self.owned: frozenset[TopicPartition] = frozenset()  # what it consumes
        self.told: frozenset[TopicPartition] = frozenset()  # what it should
        self._listed: frozenset[TopicPartition] | None = None  # the last list that was answered
        self._said: Subscription | None = None  # the last subscription that was answered
        self._told_to_revoke = -1
        self._revoke_at = NEVER
        self._added: tuple[int, list[TopicPartition]] = (0, [])  # the epoch before, and what came with the newest one

    def _choose_subscription(self) -> Subscription:
        plan, world = self.plan, self.world
        assignor = world.random.choice(plan.assignors)
        if world.chance(plan.expressions):
            return (), world.random.choice(EXPRESSIONS), assignor
        names = [topic for topic, _ in self._watch.plan.topics]
        if world.chance(plan.other_topics):
            names = world.random.sample(names, world.random.randrange(1, len(names) + 1))
        return tuple(sorted(names)), "", assignor

    def resubscribe(self) -> None:
        """The next heartbeat says so."""
        self.subscription = self._choose_subscription()
        self.world.trace(f"{self.name}: subscribes to {self.subscription[1] or ', '.join(self.subscription[0])}", self.group)

    # Processes.

    def start(self) -> None:
        self._begin()
        self.world.trace(f"{self.name}: starts as {self.member_id}", self.group)
        self.run(self._work())

    def restart(self) -> None:
        """Start a new process, unless one runs already."""
        if not self.retired and not self.running:
            self.start()

    def restart_later(self) -> None:
        self.world.after(self.world.between(SECOND, 2 * self._watch.plan.session_ns), self.restart)

    def kill(self) -> None:
        if self.running:
            self.world.trace(f"{self.name}: kill -9", self.group)
        self._end()

    def _end(self) -> None:
        self.end()
        if self.wire is not None:
            self.wire.close()

    def close(self, for_good: bool = False) -> None:
        """Close the consumer in order: a static member will be back, unless it leaves `for_good`."""
        wire = self.wire
        if not self.running or wire is None or not wire.open or not self.epoch:
            self.kill()
            return
        self.end()
        away = self.instance is not None and not for_good
        self.world.trace(f"{self.name}: {'goes away' if away else 'leaves'}", self.group)
        seat = None
        if away and self.instance is not None and not self._unsettled and self._missed_since == NEVER:
            ends_at = self.confirmed + self._watch.plan.session_ns
            if not self._may_be_removed():
                seat = Seat(self.member_id, self.epoch, self.told, self.subscription, ends_at, self.world.now)
        message = ConsumerGroupHeartbeatRequest(self.group, self.member_id, AWAY if away else LEAVE, self.instance)
        request = wire.send(message, VERSION, REQUEST_NS)
        self._watch.holders.owns_only(self.group, self.member_id, seat.assignment if seat is not None else ())  # an away member keeps its place
        if seat is not None and self.instance is not None:
            self._watch.seats.goes(self.group, self.instance, seat)
        request.when_settled(partial(self._closed, request, wire, seat))
        self._watch.sessions.removed(self.group, self.member_id)

    def _closed(self, request: Request, wire: ClientConnection, seat: Seat | None, reply: Any) -> None:
        if reply is not None and not reply.error_code and seat is not None and self.instance is not None and not self._scene.course.is_void(request):
            self._watch.seats.is_away(self.group, self.instance, seat.sent)
        wire.close()

    def twin(self) -> EpochMember:
        """A second process with the same instance id."""
        return EpochMember(self._scene, self._watch, self.plan, f"{self.name}'", self.instance)

    @property
    def joined(self) -> bool:
        return self.running and self.epoch > 0

    @property
    def settled(self) -> bool:
        """Whether it owns what it was told, and has said so."""
        return self.joined and self.owned == self.told == self._listed

    # The process.

    def _work(self) -> Process:
        world = self.world
        yield world.between(0, 50 * MS)
        while self.running:
            wire = self.wire
            if wire is None or not wire.open or self._must_find_coordinator:
                self._must_find_coordinator = False
                wire = yield from self._scene.lookups.reach_coordinator(wire, self.name, self.address, self.group)
                if wire is None:
                    continue
                self.wire = wire
                self._said = self._listed = None
            yield from self._steady(wire)

    def _steady(self, wire: ClientConnection) -> Process:
        world = self.world
        beat_at = world.now
        commit_at = world.now + world.between(0, self.plan.commit_ns)
        while wire.open and not self._must_find_coordinator:
            due = min(beat_at, commit_at, self._revoke_at)
            if due > world.now:
                yield due - world.now
                continue
            if self._revoke_at <= world.now:
                yield from self._give_up(wire)
                beat_at = world.now
            elif beat_at <= world.now:
                pause = yield from self._beat(wire)
                if not self.running:
                    return
                beat_at = world.now + pause
            else:
                commit_at = world.now + self.plan.commit_ns
                yield from self._commit_regularly(wire)

    # Heartbeats.

    def _beat(self, wire: ClientConnection) -> Any:
        """Send a heartbeat and act on its reply; return how long to wait until the next."""
        world = self.world
        if self.epoch and not self._scene.course.faults_over and world.chance(self._watch.plan.changes):
            self.resubscribe()
        request = self._send_heartbeat(wire)
        if self.epoch and self.owned and world.chance(self._watch.plan.races):
            self._commit(wire, self.owned, self.epoch, races=True)
        yield request
        if request.lost:
            wire.close()
            return 0
        code = request.reply.error_code
        if code:
            return self._refused(code, request)
        if self.told == self.owned:
            return 0 if self._listed != self.owned else self._watch.plan.heartbeat_ns
        if self.owned - self.told:
            if self._revoke_at == NEVER:
                hangs = not self._scene.course.faults_over and world.chance(self._watch.plan.hangs)
                self._revoke_at = world.now + world.between(0, CALLBACK_MAX * self.plan.rebalance_ns if hangs else QUICK_NS)
            return self._watch.plan.heartbeat_ns
        yield from self._take(wire)
        return 0

    def _send_heartbeat(self, wire: ClientConnection) -> Request:
        names, expression, assignor = self.subscription
        said = self._said
        joins = self.epoch == 0
        full = joins or said is None
        owned = self.owned if full or self.owned != self._listed else None
        message = ConsumerGroupHeartbeatRequest(
            self.group,
            self.member_id,
            self.epoch,
            self.instance,
            None,
            self.plan.rebalance_ns // MS if full else -1,
            list(names) if said is None or said[0] != names else None,
            self._said_now(expression, joins),
            assignor if said is None or said[2] != assignor else None,
            None if owned is None else by_topic(owned),
        )
        if joins:
            self.confirmed = -1
        body = None
        if owned is None and said == self.subscription:
            if self._idle[0] != self.epoch:
                self._idle = self.epoch, message.encode(VERSION)
            body = self._idle[1]
        request = wire.send(message, VERSION, REQUEST_NS, body)
        self._unsettled.add(request)
        if owned is not None:
            self._watch.holders.owns_only(self.group, self.member_id, owned)
        if joins and self.instance is not None:
            self._watch.seats.claimed(self.group, self.instance)
        request.when_settled(partial(self._answered, request, self.subscription, owned))
        return request

    def _said_now(self, expression: str, joins: bool) -> str | None:
        """The expression that a heartbeat names. A static member that returns without one says so, as librdkafka does: else it inherits that of before."""
        if self._said is not None:
            return expression if self._said[1] != expression else None
        return expression if expression or not joins or self.instance is not None else None

    def _answered(self, request: Request, subscription: Subscription, owned: frozenset[TopicPartition] | None, reply: Any) -> None:
        """The reply has arrived; None: the broker can no longer handle the request. The process may be frozen, or have ended."""
        watch, scene = self._watch, self._scene
        self._unsettled.discard(request)
        if request.message.member_id != self.member_id:
            return
        code = reply.error_code if reply is not None else ErrorCode.NONE
        if reply is None or code in RETRIED:
            self._missed_since = min(self._missed_since, request.sent)
            self._misses += 1
        if reply is None:
            return
        joins = request.message.member_epoch == 0
        is_void = scene.course.is_void(request)
        seat = watch.seats.certain(self.group, self.instance, subscription, code) if joins and self.instance is not None and not is_void else None
        if code:
            if seat is not None:
                watch.seats.refused(self.group, self.member_id, seat, code)
            return
        if not self.running:
            return
        assigned = frozenset((topic.topic_id, number) for topic in reply.assignment.topic_partitions for number in topic.partitions) if reply.assignment is not None else None
        if not is_void:
            self._compare(request, reply, assigned, seat)
        self.confirmed = request.sent
        self._misses = 2 if self._unsettled else 0
        missed_since, self._missed_since = self._missed_since, min([missed.sent for missed in self._unsettled], default=NEVER)
        before = self.epoch
        self.epoch = reply.member_epoch
        self._said = subscription
        if owned is not None:
            self._listed = owned
        if assigned is not None:
            added = [] if joins else sorted(assigned - self.told)
            if added and self.epoch > before and missed_since == NEVER:
                self._added = before, added
            self.told = assigned
        if not self.owned - self.told:
            self._told_to_revoke = -1
            if self._revoke_at != NEVER:
                self._revoke_at = NEVER  # it may keep what it was to give up
        elif self._told_to_revoke < 0:
            self._told_to_revoke = min(request.sent, missed_since, self._missed_since)

    def _compare(self, request: Request, reply: Any, assigned: frozenset[TopicPartition] | None, seat: Seat | None) -> None:
        """Pass the reply to the promises."""
        watch, group, member_id = self._watch, self.group, self.member_id
        joins = request.message.member_epoch == 0
        if joins:
            watch.epochs.joined(group, member_id, reply.member_epoch, request.sent)
            if self.instance is not None:
                watch.owners.joined(group, self.instance, member_id, request.sent)
            if seat is not None:
                watch.seats.returned(group, member_id, seat, reply.member_epoch, assigned or (), watch.gone_topics(group), request.sent)
        elif self.instance is not None:
            watch.owners.succeeded(group, self.instance, member_id, request.sent)
        watch.epochs.told(group, member_id, self.epoch, reply.member_epoch, request.sent)
        watch.sessions.renewed(group, member_id, request.sent, watch.plan.session_ns, "heartbeat")
        if assigned is not None:
            watch.holders.told(group, member_id, assigned, reply.member_epoch, not self._unsettled)
        if joins and assigned is None:
            raise Broken(Fences.promise, f"{member_id} joins {group} and is not told its partitions", group)

    # Errors.

    def _refused(self, code: int, request: Request) -> int:
        """Act on an error; return how long to wait until the next heartbeat."""
        world, watch = self.world, self._watch
        world.count(f"ConsumerGroupHeartbeat {code}")
        self._said = self._listed = None
        if code in RETRIED:
            self._must_find_coordinator = self._scene.lookups.coordinator_moved(code)
            return world.between(BACKOFF_NS, 10 * BACKOFF_NS)
        if code == ErrorCode.GROUP_MAX_SIZE_REACHED and watch.plan.size_max < 1_000:
            if self.epoch:  # it was removed, and then the group became full
                self._check_fence(request, code, "a heartbeat")
                self._fenced(code)
            return SECOND
        if code in DROPS_EVERYTHING or code == ErrorCode.FENCED_INSTANCE_ID:
            if request.message.member_epoch == 0:
                raise Broken(ERRORS_OF_EPOCHS, f"{self.name}: a join is answered with {code}", self.group)
            self._check_fence(request, code, "a heartbeat")
            if code == ErrorCode.FENCED_INSTANCE_ID:
                self._fatal(code)
                return 0
            self._fenced(code)
            return 0
        if code == ErrorCode.UNRELEASED_INSTANCE_ID and request.message.member_epoch == 0:
            if not self.retries_unreleased:
                self._fatal(code)
            return world.between(BACKOFF_NS, 10 * BACKOFF_NS)
        raise Broken(ERRORS_OF_EPOCHS, f"{self.name}: a heartbeat with epoch {request.message.member_epoch} is answered with {code}", self.group)

    def _fatal(self, code: int) -> None:
        self.world.trace(f"{self.name}: ends, since a heartbeat was answered with {code}", self.group)
        self._watch.holders.owns_only(self.group, self.member_id, ())
        self._end()
        self.restart_later()

    def _fenced(self, code: int) -> None:
        """Drop everything. Sometimes a commit of the old epoch is still sent."""
        self.world.trace(f"{self.name}: fenced with {code} at epoch {self.epoch}", self.group)
        wire, epoch, owned = self.wire, self.epoch, self.owned
        self._watch.holders.owns_only(self.group, self.member_id, ())
        self._drop()
        if wire is not None and owned and code == ErrorCode.UNKNOWN_MEMBER_ID and self.world.chance(self._watch.plan.stale):
            self._commit(wire, owned, epoch, stale=True)

    def _standing(self, misses_max: int = 0) -> Standing:
        """`misses_max`: with so many lost heartbeats its epoch is still one that the coordinator accepts, if it is repeated with a list."""
        sure = self._misses + len(self._unsettled) <= misses_max
        removed_at = self._watch.removed_at(self.group, self.instance)
        return Standing(self.group, self.member_id, self.confirmed, self._told_to_revoke, sure, removed_at, self._scene.course.lost_until)

    def _may_be_removed(self) -> bool:
        return may_be_removed(self._standing(), self._watch.plan.session_ns, self.plan.rebalance_ns, self.world.now)

    def _check_fence(self, request: Request, code: int, what: str) -> None:
        if not self._scene.course.is_void(request):
            check_fence(self._standing(1 if what == "a heartbeat" else 0), self._watch.plan.session_ns, self.plan.rebalance_ns, self.world.now, code, what)

    # Partitions.

    def _give_up(self, wire: ClientConnection) -> Process:
        """Commit what is to be given up, stop owning it, and take what was added."""
        revoked = self.owned - self.told
        self._revoke_at = NEVER
        if revoked and self.epoch:
            request = self._commit(wire, revoked, self.epoch)
            if request is not None:
                yield request
        if self.epoch:
            yield from self._take(wire)

    def _take(self, wire: ClientConnection) -> Process:
        """Own what the coordinator says, and read the offsets of what is new."""
        new = self.told - self.owned
        self.owned = self.told
        self.world.trace(f"{self.name}: consumes {plural(len(self.owned), 'partition')} at epoch {self.epoch}", self.group)
        before, added = self._added
        if added and before and self.epoch > before and wire.open and not self._unsettled and self.world.chance(self._watch.plan.stale):
            self._added = 0, []
            self._commit(wire, frozenset(added), before, stale=True)
        names = self._named(new)
        if names and wire.open:
            request = wire.send(offset_fetch_with_epoch(self.group, self.member_id, self.epoch, names), OFFSETS_VERSION, REQUEST_NS)
            yield request
            if not request.lost:
                code = request.reply.groups[0].error_code
                if code in STALE:
                    self._check_fence(request, code, "an OffsetFetch")
                self._scene.replies.offsets_read(self.group, request)

    def _named(self, partitions: frozenset[TopicPartition]) -> list[tuple[str, int]]:
        return sorted((name, number) for topic_id, number in partitions if (name := self._watch.name_of(topic_id)) is not None)

    # Commits.

    def _commit_regularly(self, wire: ClientConnection) -> Process:
        if self.epoch and self.owned:
            request = self._commit(wire, self.owned, self.epoch)
            if request is not None:
                yield request

    def _commit(self, wire: ClientConnection, partitions: frozenset[TopicPartition], epoch: int, *, stale: bool = False, races: bool = False) -> Request | None:
        """Commit offsets. `stale`: with an epoch at which the member did not have them; `races`: its epoch may change meanwhile."""
        owned = self._named(partitions)
        if not owned or not wire.open:
            return None
        commit = self._last_commit
        if commit is None or commit.member_state != (epoch, self.member_id, owned):
            commit = self._last_commit = Commit(self.group, epoch, self.member_id, self.instance, owned, OFFSETS_VERSION)
        values = self._scene.offsets.send(commit.partitions)
        request = wire.send(commit.message, commit.version, REQUEST_NS, commit.encode(values))
        judged = "" if races else "stale" if stale else "current"
        request.when_settled(partial(self._committed, request, commit, values, judged, bool(self._unsettled)))
        return request

    def _committed(self, request: Request, commit: Commit, values: list[int], judged: str, unsure: bool, reply: Any) -> None:
        worst = settle_commit(self._scene, request, commit, values, reply)
        if worst is None:
            return
        if worst:
            self.world.count(f"OffsetCommit of epochs {worst}")
        codes = {each.error_code for topic in reply.topics for each in topic.partitions}
        message = request.message
        if judged == "stale" and ErrorCode.NONE in codes and not unsure:
            raise Broken(
                Fences.promise,
                f"a commit of {message.member_id} of {self.group} with the epoch {message.generation_id_or_member_epoch} is accepted, at which it did not have the partitions",
                self.group,
            )
        if judged == "current" and worst in STALE and message.member_id == self.member_id and message.generation_id_or_member_epoch == self.epoch:
            self._check_fence(request, worst, "a commit")


def by_topic(partitions: frozenset[TopicPartition]) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    numbers: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        numbers.setdefault(topic_id, []).append(number)
    return [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id, listed) for topic_id, listed in numbers.items()]
