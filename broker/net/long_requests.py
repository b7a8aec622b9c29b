"""Process long requests in steps, some per turn (pass of the event loop), so that other requests are not delayed.

A handler in steps is a generator: it yields the cost of each step, and returns the reply as other handlers do. Between two steps other
requests change topics and groups, so a change of state is one step. The reply of a request that took more than one turn is encoded in steps too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from broker.net.dispatch import Call, Handler, ReplyTooLarge, Response
from broker.net.encoded_parts import EncodedParts
from broker.runtime.contain import report_defect, run_contained
from broker.runtime.turn import EndTurnScheduler
from broker.runtime.workers import Workers
from protocol.errors import ErrorCode, ProtocolError
from protocol.wire import Result, Steps

# Costs of steps, in units of about 5 us.
LOOKUP_COST: Final = 1
READ_COST: Final = 10  # reading an index and a batch
CREATE_COST: Final = 10  # creating, growing or deleting a topic
SCAN_COST: Final = 100  # one step of a scan through a log
INLINE_COST_MAX: Final = 320  # a request that costs less is answered at once
TURN_COST_MAX: Final = 400  # all waiting long requests together, in one turn

StepsHandler = Callable[[Call, Any], Steps[Response | None]]


class LongRequests:
    """The queue of long requests; all of them together get a bounded share of each turn."""

    __slots__ = ("_aside", "_turn", "_waiting", "_workers")

    def __init__(self, turn: EndTurnScheduler, workers: Workers | None = None) -> None:
        """`workers`: a thread for the work of `aside`."""
        self._turn = turn
        self._workers = workers
        self._waiting: deque[LongRequest] = deque()
        self._aside: dict[Call, LongRequest | None] = {}  # calls that wait for the thread; their requests, once their turn has come

    def handler(self, handle: StepsHandler) -> Handler:
        """The handler that runs the steps of `handle`."""
        return partial(self._handle, handle)

    def _handle(self, handle: StepsHandler, call: Call, request: Any) -> Response | None:
        """Return the reply if the steps cost less than INLINE_COST_MAX; otherwise later turns run the remaining steps and send the reply."""
        steps = handle(call, request)
        spent = 0
        try:
            while spent < INLINE_COST_MAX:
                spent += next(steps)
        except StopIteration as end:
            reply: Response | None = end.value
            return reply
        self.run(call, steps)
        return None

    def run(self, call: Call, steps: Steps[Response | None]) -> None:
        """Run the steps in the next turns, and send the reply that they return."""
        call.send_long = self.send
        self._add(call, _answer(call, steps))

    def send(self, call: Call, reply: Response) -> None:
        """Encode a reply in steps, and send it."""
        self._add(call, _send(call, reply))

    def aside(self, call: Call, work: Callable[[], None]) -> Steps[None]:
        """Let another thread do this work; the steps of the call continue afterwards. Raises what the work has raised."""
        if self._workers is None:
            work()
            yield TURN_COST_MAX
            return
        failures: list[Exception] = []
        self._aside[call] = None
        self._workers.submit(work, partial(self._continue, call, failures))
        yield TURN_COST_MAX
        if failures:
            raise failures[0]

    def _continue(self, call: Call, failures: list[Exception], failure: Exception | None) -> None:
        if failure is not None:
            failures.append(failure)
        request = self._aside.pop(call)
        if request is not None:
            self._waiting.append(request)
            self._turn.call_at_turn_end(self)

    def _add(self, call: Call, steps: Steps[None], refused: bool = False) -> None:
        self._waiting.append(LongRequest(call, steps, refused))
        self._turn.call_at_turn_end(self)

    def end_turn(self) -> None:
        """Continue the waiting requests, SCAN_COST each, in rotation."""
        waiting = self._waiting
        budget = TURN_COST_MAX
        while waiting and budget > 0:
            request = waiting.popleft()
            budget -= LOOKUP_COST
            if request.call in self._aside:
                self._aside[request.call] = request
                continue
            if request.call.connection.closed:
                continue
            try:
                spent = request.resume(SCAN_COST)
            except ReplyTooLarge as refused:
                if request.refused:
                    request.call.connection.close(str(refused))
                else:
                    self._add(request.call, _refuse(request.call, refused), refused=True)
                continue
            except ProtocolError as unwritable:  # the reply repeats text of the request that is too long for a reply
                request.call.connection.close(str(unwritable))
                continue
            except Exception as error:
                report_defect("a request failed inside the broker", error, api=request.call.route.api.name)
                request.call.connection.hold_reply_bytes(0)
                run_contained(request.call.fail, ErrorCode.UNKNOWN_SERVER_ERROR)
                continue
            budget -= spent
            if spent >= SCAN_COST:
                waiting.append(request)
        if waiting:
            self._turn.call_at_turn_end(self)


class LongRequest:
    """A call, and the remaining steps."""

    __slots__ = ("_steps", "call", "refused")

    def __init__(self, call: Call, steps: Steps[None], refused: bool) -> None:
        self.call = call
        self.refused = refused  # the reply is an error, since another was too large
        self._steps = steps

    def resume(self, cost: int) -> int:
        """Run steps up to `cost` and return their cost; a return value below `cost` means that all steps are done."""
        spent = 0
        for step in self._steps:
            spent += step
            if spent >= cost:
                break
        return spent


def run_to_end(steps: Steps[Result]) -> Result:
    """Run all steps at once, for a request that has few."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: Result = end.value
        return result


def _answer(call: Call, steps: Steps[Response | None]) -> Steps[None]:
    reply = yield from steps
    if reply is not None:
        yield from _send(call, reply)


def _send(call: Call, reply: Response) -> Steps[None]:
    encode: Callable[[list[bytes], int], Steps[None]] | None = getattr(reply, "encode_in_steps", None)
    if encode is None:
        call.send_long = None
        call.answer(reply)
        return
    parts = EncodedParts(call)
    out: list[bytes] = []
    yield from parts.encode(encode(out, call.version), out)
    parts.send(reply)


def _refuse(call: Call, refused: ReplyTooLarge) -> Steps[None]:
    yield TURN_COST_MAX  # in another turn: freeing the larger reply takes time too
    yield from _send(call, call.refusal(refused))
