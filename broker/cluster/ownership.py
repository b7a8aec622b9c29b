"""Decide which logs this node acquires, and which it hands over. Pure: time is an argument, effects are calls of `Actions`.

The safety of writes does not depend on these decisions: a log itself accepts writes only of its one owner. `placement.py` ranks the live
nodes for each log. The best-placed node tries to acquire a free log at once, each further node one grace period after the node before it.
If another live node owns a log, the best-placed node requests the log's release, and the owner hands it over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import Final, Protocol

from broker.cluster.placement import Placement
from storage import LogId

GRACE_MS: Final = 50  # the shortest grace period per rank
LOGS_PER_MS: Final = 10  # logs that a node can lock per millisecond: with many logs the grace period is longer
SWEEP_MS: Final = 500  # between two sweeps over the owners of logs, in case a message was lost
SWEPT_MAX: Final = 2_000  # logs in one sweep; the next sweep continues
REQUEST_INTERVAL_MS: Final = 1_000
RETRY_MS: Final = 1_000  # after a log could not be acquired
LEAVING_MAX: Final = 32  # logs handed over at the same time
NEVER: Final = 1 << 62


class OwnershipState(Enum):
    FREE = "free"  # no live node owns it, as far as this node knows
    OWNED_BY_OTHER = "owned by other"  # another node owns it
    TRYING = "trying"  # being acquired by this node
    OWNED = "owned"
    LEAVING = "leaving"  # being handed over


class Actions(Protocol):
    """The effects of ownership. `acquire` and `hand_over` are answered by a call of `Ownership`, at once or later."""

    def acquire(self, log: LogId) -> None:
        """Answered by `acquired`, `held_elsewhere` or `failed`."""
        ...

    def may_abort_acquire(self, log: LogId) -> bool:
        """Whether `hand_over` may be called while the log is being acquired."""
        ...

    def hand_over(self, log: LogId, receiver: int) -> None:
        """Hand the log over to the node `receiver`. Answered by `released`."""
        ...

    def request_release(self, owner: int, logs: list[LogId]) -> None:
        """Request the node to hand these logs over."""
        ...


class PlacedLog:
    """One log, as this node sees it."""

    __slots__ = ("order", "rank", "since", "state", "try_at")

    def __init__(self) -> None:
        self.order: list[int] = []  # the nodes that may own it, best first
        self.rank = 0  # this node's index in `order`; after all others while this node is draining
        self.state = OwnershipState.FREE
        self.since = 0  # OWNED: when it was acquired
        self.try_at = NEVER  # FREE: when to acquire it; OWNED_BY_OTHER: when to request its release


class Ownership:
    """All logs of the cluster, and the deadlines at which this node acquires them or requests their release."""

    def __init__(
        self,
        node_id: int,
        owner_of: Callable[[LogId], int | None],
        actions: Actions,
        wake_by: Callable[[int], None] = lambda at: None,
        version: Callable[[], object] = object,
    ) -> None:
        """`version` returns an equal object as long as no log changes its owner."""
        self.node_id = node_id
        self.wake_at = NEVER
        self.live: frozenset[int] = frozenset()
        self.draining: frozenset[int] = frozenset()
        self._owner_of = owner_of  # the live owner of a log, or None
        self._actions = actions
        self._owners_version = version
        self._swept: object = None  # the version of the owners at the last sweep
        self._to_sweep: list[LogId] = []  # the remaining logs of this sweep
        self._wake_by = wake_by  # called when `wake_at` is earlier than before
        self._placement = Placement()
        self._grace_ms = GRACE_MS
        self._logs_by_kind: dict[str, list[LogId]] = {}  # registry, offsets or topics; the logs of each kind are spread evenly over the nodes
        self._placed: dict[LogId, PlacedLog] = {}
        self._leaving: set[LogId] = set()
        self._release_requests: dict[LogId, int] = {}  # the node that requested each log
        self._refused: dict[LogId, int] = {}  # requests of nodes that are not better placed; `_place` checks them again
        self._sweep_at = NEVER
        self._stopped = False

    # Logs and nodes.

    def set_logs(self, kind: str, logs: Iterable[LogId], now: int) -> None:
        """Set all logs of one kind."""
        listed = list(logs)
        if self._logs_by_kind.get(kind) != listed or any(log not in self._placed for log in listed):
            self._logs_by_kind[kind] = listed
            self._place(now)

    def set_nodes(self, live: Collection[int], draining: Collection[int], now: int) -> None:
        """Set the live and the draining nodes. A draining node gets no log while another node is live."""
        before = self.live, self.draining
        self.live = frozenset(live) | {self.node_id}
        self.draining = frozenset(draining)
        if self._sweep_at == NEVER:
            self._sweep_at = now + SWEEP_MS
        if before != (self.live, self.draining) or self._refused:
            self._place(now)

    @property
    def _eligible_nodes(self) -> frozenset[int]:
        return (self.live - self.draining) or self.live

    def planned(self, logs: Collection[LogId]) -> dict[LogId, int]:
        """The best-placed node of each of these logs, as if no other logs of their kind existed."""
        return {log: order[0] for log, order in self._placement.place(logs, self._eligible_nodes).items() if order}

    def _place(self, now: int) -> None:
        nodes = self._eligible_nodes
        before, self._placed = self._placed, {}
        self._grace_ms = max(GRACE_MS, sum(map(len, self._logs_by_kind.values())) // LOGS_PER_MS)
        for logs in self._logs_by_kind.values():
            for log, order in self._placement.place(logs, nodes).items():
                placed = before.get(log)
                if placed is None:
                    placed = PlacedLog()
                if placed.order is not order:
                    placed.order = order
                    placed.rank = order.index(self.node_id) if self.node_id in order else len(order)
                self._placed[log] = placed
                if placed.state in (OwnershipState.FREE, OwnershipState.OWNED_BY_OTHER):
                    self._update_state(log, placed, now)
        refused, self._refused = self._refused, {}
        self._release_requests.update(refused)
        self._hand_over_next(now)
        self._rearm()

    def state(self, log: LogId) -> OwnershipState | None:
        placed = self._placed.get(log)
        return placed.state if placed is not None else None

    def owns(self, log: LogId) -> bool:
        placed = self._placed.get(log)
        return placed is not None and placed.state is OwnershipState.OWNED

    def expected_owner(self, log: LogId) -> int:
        """The node that should own the log; -1 for an unknown log."""
        placed = self._placed.get(log)
        return placed.order[0] if placed is not None and placed.order else -1

    def may_open(self, log: LogId) -> bool:
        """Whether this node owns the log or is acquiring it."""
        placed = self._placed.get(log)
        return placed is not None and placed.state in (OwnershipState.OWNED, OwnershipState.TRYING)

    def owned(self) -> dict[LogId, int]:
        """The logs that this node owns, and since when."""
        return {log: placed.since for log, placed in self._placed.items() if placed.state is OwnershipState.OWNED}

    def logs(self) -> Iterable[LogId]:
        return self._placed.keys()

    def already_acquired(self, log: LogId, now: int) -> None:
        """The log was acquired before it was placed."""
        self._placed[log].state = OwnershipState.OWNED
        self._placed[log].since = now

    @property
    def settled(self) -> bool:
        """Whether this node owns exactly the logs that it should, and every other log has an owner."""
        for log, placed in self._placed.items():
            should_own = bool(placed.order) and placed.order[0] == self.node_id
            if should_own != (placed.state is OwnershipState.OWNED) or (not should_own and self._owner_of(log) is None):
                return False
        return True

    # Events.

    def acquired(self, log: LogId, now: int) -> None:
        placed = self._placed.get(log)
        if placed is None or placed.state is not OwnershipState.TRYING:
            return
        placed.state = OwnershipState.OWNED
        placed.since = now
        if self._release_requests.get(log) is not None:
            self._hand_over_next(now)

    def held_elsewhere(self, log: LogId, now: int) -> None:
        """Another node holds the log."""
        self._not_acquired(log, now, GRACE_MS)

    def failed(self, log: LogId, now: int) -> None:
        """The log could not be acquired; another node may be able to."""
        self._not_acquired(log, now, RETRY_MS)

    def _not_acquired(self, log: LogId, now: int, pause: int) -> None:
        placed = self._placed.get(log)
        if placed is None or placed.state not in (OwnershipState.TRYING, OwnershipState.OWNED):
            return
        self._update_state(log, placed, now)
        placed.try_at = max(placed.try_at, now + pause)
        self._wake(placed.try_at)

    def lost(self, log: LogId, now: int) -> None:
        """This node was fenced from the log."""
        self._not_acquired(log, now, GRACE_MS)

    def released(self, log: LogId, now: int) -> None:
        self._leaving.discard(log)
        placed = self._placed.get(log)
        if placed is not None and placed.state is OwnershipState.LEAVING:
            placed.state = OwnershipState.FREE
            # The receiver has `RETRY_MS` to acquire it.
            placed.try_at = now + RETRY_MS + self._grace_ms * placed.rank
            self._wake(placed.try_at)
        self._hand_over_next(now)

    def deleted(self, logs: Iterable[LogId]) -> None:
        """Forget the logs of a deleted topic: those of a new topic with the same name have the same ids, and their ownership begins anew."""
        for log in logs:
            self._placed.pop(log, None)
            self._release_requests.pop(log, None)
            self._leaving.discard(log)

    def release_requested(self, node: int, logs: Iterable[LogId], now: int) -> None:
        """Another node requests these logs: hand over those for which that node is better placed."""
        for log in logs:
            placed = self._placed.get(log)
            if placed is not None and placed.state in (OwnershipState.OWNED, OwnershipState.TRYING):
                self._release_requests[log] = node
        self._hand_over_next(now)

    def offered(self, logs: Iterable[LogId], now: int) -> None:
        """Another node has released these logs for this node."""
        for log in logs:
            placed = self._placed.get(log)
            if placed is not None and placed.state in (OwnershipState.FREE, OwnershipState.OWNED_BY_OTHER):
                placed.state = OwnershipState.FREE
                placed.try_at = now
        self._wake(now)

    def _hand_over_next(self, now: int) -> None:
        """Hand over the next logs; a log that is still being acquired waits."""
        waiting: dict[LogId, int] = {}
        while self._release_requests and len(self._leaving) < LEAVING_MAX and not self._stopped:
            log = next(iter(self._release_requests))
            node = self._release_requests.pop(log)
            placed = self._placed.get(log)
            if placed is None or placed.state not in (OwnershipState.OWNED, OwnershipState.TRYING):
                continue
            if node not in self.live or not self._is_better_placed(node, placed):
                self._refused[log] = node
                continue
            if placed.state is OwnershipState.TRYING and not self._actions.may_abort_acquire(log):
                waiting[log] = node
            else:
                placed.state = OwnershipState.LEAVING
                self._leaving.add(log)
                self._actions.hand_over(log, node)
        self._release_requests.update(waiting)

    def _is_better_placed(self, node: int, placed: PlacedLog) -> bool:
        order = placed.order
        return node in order and (self.node_id not in order or order.index(node) < order.index(self.node_id))

    def _update_state(self, log: LogId, placed: PlacedLog, now: int) -> None:
        """For a log that this node does not own: update whether it is free, and when to acquire it or to request its release."""
        if not self.live:
            return  # no nodes are known yet; `set_nodes` repeats this update
        before = placed.state
        owner = self._owner_of(log)
        rank = placed.rank
        if owner is None or owner == self.node_id or owner not in self.live:
            at = now + self._grace_ms * rank
            placed.try_at = min(placed.try_at, at) if before is OwnershipState.FREE else at
            placed.state = OwnershipState.FREE
        else:
            placed.state = OwnershipState.OWNED_BY_OTHER
            if rank:
                placed.try_at = NEVER
            elif before is not OwnershipState.OWNED_BY_OTHER or placed.try_at == NEVER:
                placed.try_at = now

    # Deadlines.

    def advance(self, now: int) -> None:
        if self._stopped:
            return
        if self._sweep_at <= now:
            self._sweep_at = now + SWEEP_MS
            self._sweep(now)
            self._hand_over_next(now)
        requests: dict[int, list[LogId]] = {}
        to_acquire = []
        for log, placed in self._placed.items():
            if placed.try_at > now:
                continue
            if placed.state is OwnershipState.FREE or placed.state is OwnershipState.OWNED_BY_OTHER:
                owner = self._owner_of(log)
                if owner is None or owner == self.node_id or owner not in self.live:
                    placed.state = OwnershipState.TRYING
                    placed.try_at = NEVER
                    to_acquire.append(log)
                else:
                    placed.state = OwnershipState.OWNED_BY_OTHER
                    if placed.rank == 0:
                        placed.try_at = now + REQUEST_INTERVAL_MS
                        requests.setdefault(owner, []).append(log)
                    else:
                        placed.try_at = NEVER
        for log in to_acquire:
            self._actions.acquire(log)
        for owner, logs in requests.items():
            self._actions.request_release(owner, logs)
        self._rearm()

    def _sweep(self, now: int) -> None:
        """After a change of owners, check all logs that other nodes owned when the sweep began, SWEPT_MAX in each call."""
        version = self._owners_version()
        if not self._to_sweep and version != self._swept:
            self._swept = version
            self._to_sweep = [log for log, placed in self._placed.items() if placed.state is OwnershipState.OWNED_BY_OTHER]
        for log in self._to_sweep[:SWEPT_MAX]:
            placed = self._placed.get(log)
            if placed is not None and placed.state is OwnershipState.OWNED_BY_OTHER:
                self._update_state(log, placed, now)
        del self._to_sweep[:SWEPT_MAX]

    def _rearm(self) -> None:
        if self._stopped:
            self.wake_at = NEVER
            return
        self.wake_at = min(min((placed.try_at for placed in self._placed.values()), default=NEVER), self._sweep_at)
        self._wake_by(self.wake_at)

    def _wake(self, at: int) -> None:
        if at < self.wake_at and not self._stopped:
            self.wake_at = at
            self._wake_by(at)

    def stop(self) -> None:
        """Stop acquiring, requesting and handing over logs."""
        self._stopped = True
        self._rearm()
