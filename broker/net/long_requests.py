"""Requests that take more than a turn has time for: they go on in steps, in turn, while everybody else is served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from broker.net.connection import Later
from broker.net.dispatch import Call, Response
from broker.runtime.contain import defect, run
from protocol.errors import ErrorCode

# What looking costs, in some 5 us, and how much of that a request may have at once, and all that take longer in one turn.
ASKING: Final = 1
READING: Final = 10  # of an index and a batch
STEP: Final = 100  # of a look that reads on and on
LOOKS_AT_ONCE: Final = 320
LOOKS_PER_TURN: Final = 400


class Looks:
    """Requests that look for longer than a turn has time for. All of them together get a bounded share of each turn."""

    __slots__ = ("_finish", "_turn", "_waiting")

    def __init__(self, turn: Later, finish: Callable[[Call, Response], None] = Call.answer) -> None:
        self._turn = turn
        self._finish = finish  # what becomes of a reply that took longer
        self._waiting: deque[Looking] = deque()

    def answer(self, call: Call, reply: Response, steps: Iterator[int]) -> Response | None:
        """The reply, if its steps come to their end at once; otherwise it leaves when they have."""
        looking = Looking(call, reply, steps)
        if looking.resume(LOOKS_AT_ONCE) < LOOKS_AT_ONCE:
            return reply
        self._waiting.append(looking)
        self._turn.schedule_end_turn(self)
        return None

    def end_turn(self) -> None:
        """In turn, a step's worth each."""
        waiting = self._waiting
        left = LOOKS_PER_TURN
        while waiting and left > 0:
            looking = waiting.popleft()
            left -= ASKING
            if looking.call.connection.closed:
                continue
            try:
                spent = looking.resume(STEP)
            except Exception as error:
                defect("a request failed inside the broker", error, api=looking.call.route.api.name)
                run(looking.call.fail, ErrorCode.UNKNOWN_SERVER_ERROR)
                continue
            left -= spent
            if spent >= STEP:
                waiting.append(looking)
            else:
                run(self._finish, looking.call, looking.reply)
        if waiting:
            self._turn.schedule_end_turn(self)


class Looking:
    """One of these requests, and what is still to be done for it."""

    __slots__ = ("_steps", "call", "reply")

    def __init__(self, call: Call, reply: Response, steps: Iterator[int]) -> None:
        self.call = call
        self.reply = reply
        self._steps = steps

    def resume(self, cost: int) -> int:
        """Take steps until they have cost so much, or a step more; what they did cost. Less than `cost`: it was the last."""
        spent = 0
        for step in self._steps:
            spent += step
            if spent >= cost:
                break
        return spent
