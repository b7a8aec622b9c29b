"""Process long requests in steps, some per turn (pass of the event loop), so that other requests are not delayed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from broker.net.dispatch import Call, Response
from broker.runtime.contain import report_defect, run_contained
from broker.runtime.turn import EndTurnScheduler
from protocol.errors import ErrorCode

# Costs of steps, in units of about 5 us.
LOOKUP_COST: Final = 1
READ_COST: Final = 10  # reading an index and a batch
SCAN_COST: Final = 100  # one step of a scan through a log
INLINE_COST_MAX: Final = 320  # a request that costs less is answered at once
TURN_COST_MAX: Final = 400  # all waiting long requests together, in one turn


class LongRequests:
    """The queue of long requests; all of them together get a bounded share of each turn."""

    __slots__ = ("_finish", "_turn", "_waiting")

    def __init__(self, turn: EndTurnScheduler, finish: Callable[[Call, Response], None] = Call.answer) -> None:
        self._turn = turn
        self._finish = finish  # sends a reply that `answer` did not return
        self._waiting: deque[LongRequest] = deque()

    def answer(self, call: Call, reply: Response, steps: Iterator[int]) -> Response | None:
        """Run the steps that fill in `reply`, and return `reply` if they cost less than INLINE_COST_MAX.

        Otherwise return None: later turns run the remaining steps and send the reply.
        """
        request = LongRequest(call, reply, steps)
        if request.resume(INLINE_COST_MAX) < INLINE_COST_MAX:
            return reply
        self._waiting.append(request)
        self._turn.call_at_turn_end(self)
        return None

    def end_turn(self) -> None:
        """Continue the waiting requests, SCAN_COST each, in rotation."""
        waiting = self._waiting
        budget = TURN_COST_MAX
        while waiting and budget > 0:
            request = waiting.popleft()
            budget -= LOOKUP_COST
            if request.call.connection.closed:
                continue
            try:
                spent = request.resume(SCAN_COST)
            except Exception as error:
                report_defect("a request failed inside the broker", error, api=request.call.route.api.name)
                run_contained(request.call.fail, ErrorCode.UNKNOWN_SERVER_ERROR)
                continue
            budget -= spent
            if spent >= SCAN_COST:
                waiting.append(request)
            else:
                run_contained(self._finish, request.call, request.reply)
        if waiting:
            self._turn.call_at_turn_end(self)


class LongRequest:
    """A call, its unfinished reply, and the remaining steps."""

    __slots__ = ("_steps", "call", "reply")

    def __init__(self, call: Call, reply: Response, steps: Iterator[int]) -> None:
        self.call = call
        self.reply = reply
        self._steps = steps

    def resume(self, cost: int) -> int:
        """Run steps up to `cost` and return their cost; a return value below `cost` means that all steps are done."""
        spent = 0
        for step in self._steps:
            spent += step
            if spent >= cost:
                break
        return spent
