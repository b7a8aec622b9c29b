"""What handlers of groups need of the shards that groups live in, and how their replies leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from broker.dispatch import Call, Response
from coordinator import Held, Parts, Shard


class Journal(Protocol):
    """A shard and its log. `refusal` is 0 while it serves, else the code for whoever asks: 14 loading, 15 suspended, 16 not ours."""

    @property
    def shard(self) -> Shard: ...

    @property
    def refusal(self) -> int: ...

    def reply(self, held: Held) -> None:
        """Let the reply leave as soon as everything emitted before it is durable."""
        ...

    def stepped(self) -> None:
        """The shard was called: it may have facts for the log, or an earlier deadline."""
        ...

    def broken(self) -> None:
        """The shard raised an exception: it is opened anew from its log."""
        ...


class Shards(Protocol):
    """All shards of this node."""

    @property
    def journals(self) -> Sequence[Journal]: ...

    def of(self, group_id: str) -> Journal: ...


def answer(journal: Journal, call: Call, reply: Response) -> Response | None:
    """Answer when what the shard has emitted so far is durable: at once, where nothing is on its way to the log."""
    hold = journal.shard.hold
    if hold.durable == hold.emitted and not hold.waiting:
        return reply
    call.reply = reply
    journal.reply(call)
    return None


class Gathered:
    """A reply made of several shards' parts: it leaves when each may, and `refuse` replaces those that may never."""

    __slots__ = ("_call", "_refuse", "_reply")

    def __init__(self, call: Call, reply: Response, refuse: Callable[[int, int], None]) -> None:
        self._call = call
        self._reply = reply
        self._refuse = refuse

    def refuse_part(self, part: int, error: int) -> None:
        self._refuse(part, error)

    def complete(self) -> None:
        self._call.answer(self._reply)


def answer_together(call: Call, reply: Response, journals: Sequence[Journal], refuse: Callable[[int, int], None]) -> None:
    """Answer when all of these may; `refuse` gets the number of a journal that may not, and why."""
    parts = Parts(Gathered(call, reply, refuse), len(journals))
    for number, journal in enumerate(journals):
        journal.reply(parts.part(number))
