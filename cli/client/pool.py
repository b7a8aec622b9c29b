"""Open connections by address, and a search for any broker that answers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from cli.arguments import Address
from cli.client.connection import METADATA, Connection, NoReply
from secured.security import OPEN, Security

# The limit for one address while there are others. It leaves time for a lost SYN, which the system resends after one second.
ATTEMPT_SECONDS = 2.5


class Pool:
    def __init__(self, bootstrap: Sequence[Address], security: Security = OPEN) -> None:
        self.bootstrap = list(bootstrap)
        self.security = security
        self.has_connected = False  # whether a broker has ever answered: it may come back
        self._open: dict[Address, Connection] = {}
        self._unreachable: dict[Address, NoReply] = {}  # the last attempt to connect to each address, where it failed
        self._silent: set[Address] = set()  # addresses whose last request was not answered

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def connect(self, address: Address, deadline: float) -> Connection:
        known = self._open.pop(address, None)
        if known is not None:
            if not known.stale:
                self._open[address] = known
                return known
            known.close()
        try:
            connection = Connection(*address, deadline, self.security)
        except NoReply as no_reply:
            self.mark_unreachable(address, no_reply)
            raise
        if METADATA not in connection.versions:
            connection.close()
            raise NoReply(f"{connection.endpoint} is no broker (a KRaft controller, perhaps): name a listener for clients", final=True)
        self._open[address] = connection
        self._unreachable.pop(address, None)
        self.has_connected = True
        return connection

    # From now on other addresses than those that failed are tried first.

    def mark_unreachable(self, address: Address, no_reply: NoReply) -> None:
        self._unreachable[address] = no_reply.repeated()

    def mark_silent(self, connection: Connection) -> None:
        self._silent.add((connection.host, connection.port))

    def mark_answered(self, connection: Connection) -> None:
        self._silent.discard((connection.host, connection.port))

    def has_failed(self, address: Address) -> bool:
        return address in self._unreachable or address in self._silent

    def is_good(self, address: Address) -> bool:
        """Whether there is a connection to the address, and its last request was answered."""
        return address in self._open and address not in self._silent

    def check_answering(self, connection: Connection) -> None:
        """Raise NoReply if the last request to the address was not answered."""
        if (connection.host, connection.port) in self._silent:
            raise NoReply(f"{connection.endpoint} has not answered the request before this one")

    def check_reachable(self, address: Address) -> None:
        """Raise the NoReply of the last attempt to connect to the address, if that failed."""
        if address in self._unreachable:
            raise self._unreachable[address].repeated()

    def candidates(self, more: Iterable[Address]) -> list[Address]:
        """The addresses in the order to try them: those with a connection, then the others; failed ones last."""
        known = dict.fromkeys([*(address for address, open in self._open.items() if not open.stale), *self.bootstrap, *more])
        return sorted(known, key=self.has_failed)

    def promising(self, more: Iterable[Address]) -> int:
        """The number of candidates whose last attempt did not fail, and at least one."""
        return max(1, sum(not self.has_failed(address) for address in self.candidates(more)))

    def any_connection(self, more: Iterable[Address], deadline: float) -> Connection:
        """The first broker that answers. Each attempt gets a share of the time."""
        untried = self.candidates(more)
        problems: dict[Address, NoReply] = {}
        for seconds_max in (ATTEMPT_SECONDS, None):
            for number, address in enumerate(untried):
                if address in problems and problems[address].final:
                    continue
                now = time.monotonic()
                share = (deadline - now) / (len(untried) - number)
                if seconds_max is not None and len(untried) > 1:
                    share = min(share, seconds_max)
                try:
                    return self.connect(address, now + share)
                except NoReply as no_reply:
                    if no_reply.everywhere:
                        raise
                    problems[address] = no_reply
            if len(untried) == 1 or time.monotonic() >= deadline or not any(problem.late for problem in problems.values()):
                break
        failures = list(problems.values())
        if len(failures) == 1:
            raise failures[0]
        lines = "; ".join(problem.full_text for problem in failures)
        refusal = failures[0].refusal if all(problem.refusal for problem in failures) else None
        raise NoReply(f"no broker answers: {lines}", final=all(problem.final for problem in failures), refusal=refusal)
