"""Transactions are not served here; the log says so, once for each id that asks for them."""

from __future__ import annotations

from typing import Final

from broker.logging.logs import log

IDS_TOLD_MAX: Final = 1_000  # of those beyond them nothing is said
ID_CHARACTERS_MAX: Final = 200  # as much of a longer one is told apart


class Transactions:
    """Who asked for them."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def refused(self, transactional_id: str) -> None:
        transactional_id = transactional_id[:ID_CHARACTERS_MAX]
        if transactional_id not in self._told and len(self._told) < IDS_TOLD_MAX:
            self._told.add(transactional_id)
            log.warning("transactions are not served by this broker", transactional_id=transactional_id)
