"""How replies of groups leave: when the shard that made them may let them, or all shards that made a part of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.groups.group_journal import GroupJournal
from broker.net.dispatch import Call, Response
from coordinator import Parts


def answer(journal: GroupJournal, call: Call, reply: Response) -> Response | None:
    """Answer when what the shard has emitted so far is durable: at once, where nothing is on its way to the log."""
    if journal.direct:
        return reply
    call.reply = reply
    journal.reply(call)
    return None


class Gathered:
    """A reply made of several shards' parts: it leaves when each may, and `refuse` replaces those that may never."""

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


def answer_together(call: Call, reply: Response, journals: Sequence[GroupJournal], refuse: Callable[[int, int], None]) -> None:
    """Answer when all of these may; `refuse` gets the number of a journal that may not, and why."""
    parts = Parts(Gathered(call, reply, refuse), len(journals))
    for number, journal in enumerate(journals):
        journal.reply(parts.part(number))
