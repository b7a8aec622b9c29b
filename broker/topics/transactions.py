"""Transactions are not supported; log a warning once per transactional id."""

from __future__ import annotations

from typing import Final

from broker.logging.logs import log

IDS_LOGGED_MAX: Final = 1_000
ID_CHARACTERS_MAX: Final = 200


class TransactionRefusals:
    """Logs refused transactional ids."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def refused(self, transactional_id: str) -> None:
        transactional_id = transactional_id[:ID_CHARACTERS_MAX]
        if transactional_id not in self._logged and len(self._logged) < IDS_LOGGED_MAX:
            self._logged.add(transactional_id)
            log.warning("transactions are not served by this broker", transactional_id=transactional_id)
