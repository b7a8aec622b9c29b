"""Log lines about JoinGroups and SyncGroups that a bound on memory refused: for each setting one at once, and then one a minute."""

from __future__ import annotations

from typing import Final

from broker.logging.logs import log

LINE_MS: Final = 60_000


class LimitLines:
    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}  # by setting: when the next line is due, and the requests since the last line

    def add(self, now: int, setting: str, group_id: str, member_id: str, client_host: str, size: int) -> None:
        """`size`: the bytes that the refused request would have kept."""
        due, requests = self._counts.get(setting, (0, 0))
        requests += 1
        if now < due:
            self._counts[setting] = due, requests
            return
        self._counts[setting] = now + LINE_MS, 0
        log.warning(
            "member refused: its metadata needs too much memory",
            setting=setting,
            group=group_id,
            member=member_id,
            host=client_host.removeprefix("/"),
            bytes=size,
            requests=requests,
        )
