"""Log lines about JoinGroups and SyncGroups that a bound on memory refused: for each setting one at once, and then one a minute."""

from __future__ import annotations

from broker.groups.line_counts import LineCounts
from broker.logging.logs import log


class LimitLines(LineCounts):
    __slots__ = ()

    def add(self, now: int, setting: str, group_id: str, member_id: str, client_host: str, size: int) -> None:
        """`size`: the bytes that the refused request would have kept."""
        requests = self.count((setting,), now)
        if not requests:
            return
        log.warning(
            "member refused: its metadata needs too much memory",
            setting=setting,
            group=group_id,
            member=member_id,
            host=client_host.removeprefix("/"),
            bytes=size,
            requests=requests,
        )
