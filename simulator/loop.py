"""The event loop of one simulated process: the part of asyncio's loop that the broker uses, driven by the events of the world."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from simulator.disk import Crashed, SimDisk
from simulator.world import SECOND, World

if TYPE_CHECKING:
    from simulator.network import AcceptedSocket


class Handle:
    """A scheduled callback. `cancel` prevents its call if it has not run yet."""

    __slots__ = ("arguments", "call")

    def __init__(self, call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.call: Callable[..., object] | None = call
        self.arguments = arguments

    def cancel(self) -> None:
        self.call = None

    def cancelled(self) -> bool:
        return self.call is None


class TimerHandle:
    __slots__ = ("_when", "handle")

    def __init__(self, handle: Handle, when: float) -> None:
        self.handle = handle
        self._when = when

    def cancel(self) -> None:
        self.handle.cancel()

    def cancelled(self) -> bool:
        return self.handle.cancelled()

    def when(self) -> float:
        return self._when


class SimLoop:
    """A loop of passes. Each pass takes virtual time: it runs the input that has arrived, then the callbacks scheduled before the pass."""

    def __init__(self, world: World, disk: SimDisk, crashed: Callable[[], None]) -> None:
        """`crashed`: called when the process dies in a callback, also if a task has swallowed the exception."""
        self._world = world
        self._disk = disk
        self._crashed = crashed
        self._input: deque[Handle] = deque()
        self._ready: deque[Handle] = deque()
        self._free_at = 0  # the end of the current or last pass
        self._awaits_pass = False
        self._readers: dict[int, Handle] = {}
        self.pass_ns = 3_000  # the shortest pass
        self.dead = False
        self.name = ""  # of the node, for its log lines, if there are several nodes
        self.stall_ns = 0  # how long a freeze of the process prolongs the next pass
        self.spent_ns = 0  # virtual time that calls of the clock and of `sleep` took in this pass
        self.frozen_until = 0  # jobs of worker threads wait until this moment: a freeze also stops them
        self.problems: list[str] = []  # exceptions that reached the loop

    # Called by the simulation.

    def post(self, call: Callable[..., object], *arguments: Any) -> Handle:
        """Run the callback as input of the next pass."""
        handle = Handle(call, arguments)
        self._input.append(handle)
        if not self._awaits_pass:
            self._await_pass()
        return handle

    def readable(self, descriptor: int) -> None:
        """The descriptor has data: call its reader in the next pass."""
        reader = self._readers.get(descriptor)
        if reader is not None and reader.call is not None:
            self.post(reader.call, *reader.arguments)

    def _await_pass(self) -> None:
        self._awaits_pass = True
        world = self._world
        world.at(max(world.now, self._free_at), self._run)

    def _run(self) -> None:
        """Run passes until no callback is due before the world's next event."""
        world = self._world
        self._awaits_pass = False
        if self.dead:
            return
        events._set_running_loop(cast(asyncio.AbstractEventLoop, self))
        try:
            while True:
                self.spent_ns = 0
                self.run_pass()
                stalled, self.stall_ns = self.stall_ns, 0
                self._free_at = world.now + self.pass_ns + self.spent_ns + stalled
                self.spent_ns = 0
                if not self._ready and not self._input:
                    return
                if world.next_at <= self._free_at:
                    self._await_pass()
                    return
                world.now = self._free_at
        except Crashed:
            self._crashed()
        finally:
            events._set_running_loop(None)

    def run_pass(self) -> None:
        """Run the input that has arrived, then the callbacks that were scheduled before this pass."""
        self._run_handles(self._input)
        self._run_handles(self._ready)

    def _run_handles(self, handles: deque[Handle]) -> None:
        """Run the callbacks that are in the queue now. Those that they add wait for the next pass."""
        for _ in range(len(handles)):
            handle = handles.popleft()
            if handle.call is not None:
                handle.call(*handle.arguments)
                if self.dead or self._disk.down:
                    raise Crashed

    def kill(self) -> None:
        self.dead = True
        self._input.clear()
        self._ready.clear()
        self._readers.clear()

    # Called by the broker.

    def time(self) -> float:
        return (self._world.now + self.spent_ns) / SECOND

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        handle = Handle(callback, args)
        self._ready.append(handle)
        if not self._awaits_pass and events._get_running_loop() is not cast(Any, self):
            self._await_pass()
        return handle

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        return self.post(callback, *args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        return self._call_at(self._world.now + max(0, round(delay * SECOND)), callback, args)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        return self._call_at(max(self._world.now, round(when * SECOND)), callback, args)

    def _call_at(self, moment: int, callback: Callable[..., object], args: tuple[Any, ...]) -> TimerHandle:
        handle = Handle(callback, args)
        self._world.at(moment, self._due, handle)
        return TimerHandle(handle, moment / SECOND)

    def _due(self, handle: Handle) -> None:
        if not self.dead and handle.call is not None:
            self._input.append(handle)
            if not self._awaits_pass:
                self._await_pass()

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=cast(asyncio.AbstractEventLoop, self))

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=cast(asyncio.AbstractEventLoop, self), name="task")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            self.problems.append(f"{context.get('message')}: {context.get('exception')!r}")

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        self._readers[fd] = Handle(callback, args)
        self.readable(fd)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    async def connect_accepted_socket(self, protocol_factory: Callable[[], Any], sock: Any, **_: Any) -> Any:
        accepted: AcceptedSocket = sock
        return accepted.connect(protocol_factory())


def run_in(loop: SimLoop, main: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Start a task in the loop."""
    loop.post(lambda: loop.create_task(main()))
