"""Groups of one static member each, whose commits are compared with what their coordinators have after a kill.

A member of a real client repeats its commit after a kill, which would hide the loss of an earlier commit. Here a group
commits a rising number, stops at the first failed request, and continues only after `check` has compared.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from protocol.errors import ErrorCode
from tests.clients.members import TopicPartition
from tests.nodes.cluster import Nodes
from tests.running import wait_until
from tests.support.restartable import Actor, sync_all

GROUPS = 12
PAUSE_SECONDS = 0.02  # between two commits of each group
CHECK_SECONDS = 30.0
MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class Account:
    """One group: its member, and the requested and acknowledged commits."""

    def __init__(self, nodes: Nodes, group: str) -> None:
        self.group = group
        self.sent = self.acknowledged = self.commits = 0
        self.waits = False  # whether it makes no more commits until `check` has compared
        self._nodes = nodes
        self._actor = Actor(0, group, "ledger")

    def join(self) -> None:
        self._connect()
        reply = self._actor.join()
        assert not reply.error_code, reply
        sync_all(self._actor)

    def _connect(self) -> None:
        coordinator = wait_until(lambda: max(self._nodes.coordinator(self.group), 0), CHECK_SECONDS)
        self._actor.connect(self._nodes.port(coordinator))

    def commit(self, partition: TopicPartition) -> str:
        """Commit the next number. Return errors that no member may get."""
        self.sent += 1
        try:
            code = self._actor.commit(*partition, self.sent)
        except OSError:
            self.waits = True
            return ""
        if code:
            self.waits = True
            return "" if code in MOVED else f"a commit of {self.group} was answered {ErrorCode(code).name}"
        self.acknowledged = self.sent
        self.commits += 1
        return ""

    @property
    def stable(self) -> bool:
        """Whether the coordinator describes the group as Stable, with this member."""
        described = self._nodes.described(self.group)
        return described is not None and described.group_state == "Stable" and [member.member_id for member in described.members] == [self._actor.member_id]

    def check(self, partition: TopicPartition) -> str:
        """Compare with the coordinator's offsets. Return the differences."""
        stored = wait_until(lambda: self._nodes.committed(self.group), CHECK_SECONDS).get(partition, 0) if self.acknowledged else 0
        lost = not self.acknowledged <= stored <= self.sent
        if self.waits:
            self._connect()
            self.waits = False
        return f"{self.group} is committed to {stored}; {self.acknowledged} was acknowledged and {self.sent} was sent" if lost else ""

    def close(self) -> None:
        self._actor.close()


class Ledger:
    """All groups, and the thread that commits."""

    def __init__(self, nodes: Nodes, partition: TopicPartition, wrong: Callable[[str], None]) -> None:
        self.accounts = [Account(nodes, f"ledger-{number}") for number in range(GROUPS)]
        self._partition = partition
        self._wrong = wrong
        self._turn = threading.Lock()  # held by the thread or by `check` while it uses the connections
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        for account in self.accounts:
            account.join()
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_SECONDS):
            with self._turn:
                for account in self.accounts:
                    if not account.waits:
                        self._note(account.commit(self._partition))

    def _note(self, problem: str) -> None:
        if problem:
            self._wrong(problem)

    def stable(self) -> bool:
        return all(account.stable for account in self.accounts)

    def check(self) -> None:
        with self._turn:
            for account in self.accounts:
                self._note(account.check(self._partition))

    @property
    def commits(self) -> int:
        return sum(account.commits for account in self.accounts)

    def end(self) -> None:
        self._stopping.set()
        self._thread.join()
        self.check()

    def close(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        for account in self.accounts:
            account.close()
