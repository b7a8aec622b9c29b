"""Open connections by address, and a search for any broker that answers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from cli.arguments import Address
from cli.client.connection import METADATA, Broken, Connection

# While there are other addresses to try: the system repeats a lost connection request after one second.
PATIENCE_SECONDS = 2.5


class Pool:
    def __init__(self, bootstrap: Sequence[Address]) -> None:
        self.bootstrap = list(bootstrap)
        self.met = False  # a broker has answered before: one that does not answer now may come back
        self._open: dict[Address, Connection] = {}
        self._failed: set[Address] = set()  # the last time that they were tried

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
            connection = Connection(*address, deadline)
        except Broken:
            self._failed.add(address)
            raise
        if METADATA not in connection.versions:
            connection.close()
            raise Broken(f"{connection.where} is no broker (a KRaft controller, perhaps): name a listener for clients", final=True)
        self._open[address] = connection
        self._failed.discard(address)
        self.met = True
        return connection

    def failed(self, connection: Connection) -> None:
        """It did not answer: others are tried before it."""
        self._failed.add((connection.host, connection.port))

    def candidates(self, more: Iterable[Address]) -> list[Address]:
        """The brokers in the order to try them: connected ones, then the others, failed ones last."""
        known = dict.fromkeys([*(address for address, open in self._open.items() if not open.stale), *self.bootstrap, *more])
        return sorted(known, key=lambda address: address in self._failed)

    def any_connection(self, more: Iterable[Address], deadline: float) -> Connection:
        """The first broker that answers; no attempt takes so long that no time is left for the next."""
        untried = self.candidates(more)
        problems: dict[Address, Broken] = {}
        for patience in (PATIENCE_SECONDS, None):
            for number, address in enumerate(untried):
                if address in problems and problems[address].final:
                    continue
                now = time.monotonic()
                share = (deadline - now) / (len(untried) - number)
                if patience is not None and len(untried) > 1:
                    share = min(share, patience)
                try:
                    return self.connect(address, now + share)
                except Broken as broken:
                    problems[address] = broken
            if len(untried) == 1 or time.monotonic() >= deadline or not any(problem.late for problem in problems.values()):
                break
        found = list(problems.values())
        if len(found) == 1:
            raise found[0]
        lines = "; ".join(problem.text for problem in found)
        raise Broken(f"no broker answers: {lines}", final=all(problem.final for problem in found))
