"""Send the replies of groups once the facts of all shards that contributed to them are durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.groups.group_journal import GroupJournal
from broker.groups.journal import Journal
from broker.net.dispatch import Call, Response
from coordinator import Hold, ReplyParts
from protocol.errors import ErrorCode


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


class GroupParts:
    """The results of a reply by the journal of their groups, for requests that take several turns."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[GroupJournal, tuple[Hold, list[int]]] = {}  # with the shard's hold when its first group was processed

    def add(self, journal: GroupJournal, number: int) -> None:
        """Result `number` depends on the journal, and was computed in this turn."""
        self._numbers.setdefault(journal, (journal.shard.hold, []))[1].append(number)

    def __len__(self) -> int:
        return len(self._numbers)

    def answer_all(self, call: Call, reply: Response, registry: Journal, refuse: Callable[[int], None]) -> None:
        """Send the reply when all its results and the registry are durable; otherwise `refuse` gets the error of the whole reply."""
        if self.changed:
            refuse(self.changed)
            call.answer(reply)
            return
        answer_when_all_durable(call, reply, [registry, *self._numbers], lambda part, error: refuse(error))

    @property
    def changed(self) -> int:
        """The error of a reply whose shard was replayed meanwhile, or 0."""
        for journal, (hold, _) in self._numbers.items():
            if _is_undone(journal, hold):
                return journal.refusal or ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    @property
    def numbers(self) -> set[int]:
        return {number for _, numbers in self._numbers.values() for number in numbers}

    def answer(
        self,
        call: Call,
        reply: Response,
        refuse: Callable[[int, int], None],
        registry: Journal | None = None,
        refuse_others: Callable[[int], None] | None = None,
    ) -> None:
        """Send the reply when all its results are durable; `refuse` gets the number of each result that is not, and the error.

        `registry`: the reply waits for it too; `refuse_others` gets its error.
        """
        sound: list[GroupJournal] = []
        for journal, (hold, numbers) in self._numbers.items():
            if _is_undone(journal, hold):
                for number in numbers:
                    refuse(number, journal.refusal or ErrorCode.COORDINATOR_NOT_AVAILABLE)
            else:
                sound.append(journal)
        journals: list[Journal] = [*sound] if registry is None else [*sound, registry]

        def refuse_part(part: int, error: int) -> None:
            if part < len(sound):
                for number in self._numbers[sound[part]][1]:
                    refuse(number, error)
            elif refuse_others is not None:
                refuse_others(error)

        answer_when_all_durable(call, reply, journals, refuse_part)


def _is_undone(journal: GroupJournal, hold: Hold) -> bool:
    """Whether the shard was replayed since `hold` was its hold: changes made then may be lost."""
    return bool(journal.refusal) or journal.shard.hold is not hold
