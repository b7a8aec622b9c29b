"""Send the replies of groups once the facts of all shards that contributed to them are durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.groups.group_journal import GroupJournal
from broker.groups.journal import Journal
from broker.net.dispatch import Call, Response
from coordinator import ReplyParts


def answer_when_durable(journal: GroupJournal, call: Call, reply: Response) -> Response | None:
    """Return the reply if it may leave at once; otherwise return None, and send it when all facts of the shard are durable."""
    if journal.answers_at_once:
        return reply
    call.reply = reply
    journal.hold_reply(call)
    return None


class CombinedReply:
    """A reply with parts of several shards, sent when all parts are released; `refuse` replaces the parts of failed appends."""

    __slots__ = ("_call", "_refuse", "_reply", "connection")

    def __init__(self, call: Call, reply: Response, refuse: Callable[[int, int], None]) -> None:
        self._call = call
        self.connection = call.connection
        self._reply = reply
        self._refuse = refuse

    def refuse_part(self, part: int, error: int) -> None:
        self._refuse(part, error)

    def complete(self) -> None:
        self._call.answer(self._reply)


def answer_when_all_durable(call: Call, reply: Response, journals: Sequence[Journal], refuse: Callable[[int, int], None]) -> None:
    """Send the reply when all journals release it; `refuse` gets the index of a journal that failed, and the error."""
    parts = ReplyParts(CombinedReply(call, reply, refuse), len(journals))
    for number, journal in enumerate(journals):
        journal.hold_reply(parts.part(number))
