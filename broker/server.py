"""The broker process: start, signals, orderly stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable
from functools import partial

from broker.logging import logs
from broker.logging.logs import log
from broker.machine import Machine, RealMachine
from broker.runtime import start_trace
from broker.runtime.build import build
from broker.runtime.contain import handle_loop_exception
from broker.runtime.node import Address
from broker.runtime.parent import ParentWatch
from broker.runtime.start import ExitCode, StartError, StoppedEarly
from broker.runtime.start_trace import mark
from broker.runtime.stopping import StopRequest, run_until_stopped
from broker.runtime.workers import never_preempt
from broker.settings.config import Config
from broker.settings.descriptors import Descriptors, descriptors_of_links, divide_descriptors, memory_bytes, raise_limit, with_connections
from broker.settings.endpoints import format_endpoint
from broker.stores.port import BrokerStore
from broker.wiring import Broker
from storage.disk import LOCK_FILES

# An orderly stop takes at most three seconds: first appends in progress end, then clients read their replies, then all logs are
# flushed. The remaining time is for the last log lines (half a second) and the exit of the process.
SETTLE_SECONDS = 0.8
DRAIN_SECONDS = 0.4
NOTES_SECONDS = 0.2
FLUSH_SECONDS = 0.8

ADDRESSES_PER_LISTENER = 2  # `localhost` and an empty host usually mean IPv4 and IPv6


def serve(config: Config) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP, and return the exit code. Raises StartError when the broker cannot start."""
    beside_other_nodes = config.cluster_nodes > 1 and config.store.backend.one_machine
    if beside_other_nodes:
        never_preempt()  # clients often share the cores: a node that lets them run first then reads and answers more requests together
    limit = raise_limit()
    for_nodes = LOCK_FILES + descriptors_of_links(config.cluster_nodes, limit) if beside_other_nodes else 0
    descriptors = divide_descriptors(limit, len(config.listeners) * ADDRESSES_PER_LISTENER + for_nodes)
    config = with_connections(config, descriptors, memory_bytes())
    loop_factory, buffered_protocol = choose_loop(config.event_loop)
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        server = Server(config, runner.get_loop(), descriptors, buffered_protocol, RealMachine())
        mark("event_loop")
        return run_until_stopped(runner, server.run())


def choose_loop(name: str) -> tuple[Callable[[], asyncio.AbstractEventLoop], bool]:
    """The loop factory, and whether its transports read into a shared buffer (asyncio's do, uvloop's do not)."""
    if name != "asyncio":
        try:
            import uvloop
        except ImportError:
            if name == "uvloop":
                raise StartError("event.loop=uvloop, but uvloop is not installed", ExitCode.CONFIG) from None
        else:
            return uvloop.new_event_loop, False
    return asyncio.new_event_loop, True


def new_broker(
    config: Config, loop: asyncio.AbstractEventLoop, descriptors: Descriptors, buffered_protocol: bool, machine: Machine
) -> Broker:
    """Build a single broker, or one node of several."""
    if config.cluster_nodes > 1 or not config.store.backend.single:
        from broker.cluster_wiring import ClusterBroker

        return ClusterBroker(config, loop, descriptors, buffered_protocol, machine)
    return Broker(config, loop, descriptors, buffered_protocol, machine)


class Server:
    """Runs one Broker: opens listeners and the store, handles signals, stops in order."""

    def __init__(
        self, config: Config, loop: asyncio.AbstractEventLoop, descriptors: Descriptors, buffered_protocol: bool, machine: Machine
    ) -> None:
        self.config = config
        self.broker = new_broker(config, loop, descriptors, buffered_protocol, machine)
        self._machine = machine
        self._descriptors = descriptors
        self._loop = loop
        self.stop_request = StopRequest(loop)
        self.stop = self.stop_request.stop
        self._code = ExitCode.OK  # after an orderly stop

    async def run(self) -> int:
        self.stop_request.handle_signals()
        self._loop.set_exception_handler(handle_loop_exception)
        gc.disable()  # no garbage is created while starting
        parent = ParentWatch(self._loop, self.stop) if self.config.exit_with_parent else None
        try:
            return await self.serve()
        finally:
            if parent is not None:
                parent.close()
            self.broker.acceptor.close()

    async def serve(self) -> int:
        """Listen and serve until `stop` is called."""
        addresses = self._listen()
        mark("listeners")
        store = self.broker.new_store(self._descriptors.logs)
        mark("data_directory")
        self.broker.ended = self._stop_with
        self.broker.stop_requested = self.stop_request.reason
        try:
            await self.broker.open(store, addresses)
            self.broker.acceptor.start()
            mark("registry_and_apis")
            self._announce(addresses)
            log.info("stopping", **await self.stop_request.reason)
            return await self._end(store)
        except StoppedEarly:
            log.info("stopped before the node served", **self.stop_request.reason.result())
            return self._code
        finally:
            self.broker.close_channel()
            store.close()

    def _listen(self) -> list[Address]:
        """Open every listener."""
        addresses = []
        for listener in self.config.listeners:
            sockets, port = self._machine.open_sockets(listener, self.config.socket_listen_backlog_size)
            address = Address(listener.name, listener.advertised_host, listener.advertised_port or port, listener.host, port)
            self.broker.acceptor.add_sockets(sockets, address)
            addresses.append(address)
        return addresses

    def _announce(self, addresses: list[Address]) -> None:
        for address in addresses:
            with contextlib.suppress(OSError):  # standard output may be closed
                print(f"listening {address.name} {format_endpoint(address.listen_host, address.listen_port)}", flush=True)
            log.info(
                "listening",
                listener=address.name,
                port=address.listen_port,
                advertised=format_endpoint(address.host, address.port),
                build=build(),
            )
        if start_trace.requested:
            log.info("start", **start_trace.summary())
        if logs.debug_enabled():
            log.info("frames are traced: repeated requests take the usual path too")
        logs.started()

    async def _end(self, store: BrokerStore) -> int:
        """Send the replies whose facts are durable, flush and close the logs, and mark the directory clean if everything was written."""
        until = self._loop.time() + SETTLE_SECONDS + DRAIN_SECONDS + NOTES_SECONDS + FLUSH_SECONDS
        broker = self.broker
        broker.stop()
        store.flush_topics()  # early, so that the final flush is short
        cleaned = asyncio.gather(broker.stores.stop_cleaning(), broker.checker.stop())
        settled = await self._settle()
        broker.turn.close()
        noted: asyncio.Future[None] = self._loop.create_future()
        broker.notes.close(partial(noted.set_result, None))
        await self._drain()
        await cleaned
        await asyncio.wait([noted], timeout=NOTES_SECONDS)
        closed: asyncio.Future[str] = self._loop.create_future()
        store.finish(settled and all(journal.writable or not journal.owns_log for journal in broker.journals), closed.set_result)
        await asyncio.wait([closed], timeout=max(until - self._loop.time(), FLUSH_SECONDS))
        problem = closed.result() if closed.done() else f"the {self.config.store.backend.keeper} does not answer"
        if problem:
            raise StartError(f"stopped, but {problem}; the next start checks the logs", ExitCode.DISK)
        log.info("stopped")
        return self._code

    def _stop_with(self, reason: str, code: ExitCode) -> None:
        """Stop in order, because the broker cannot go on."""
        self._code = code
        self.stop({"reason": reason})

    async def _drain(self) -> None:
        """Close each connection once its replies are sent; at the deadline, abort the remaining connections."""
        broker = self.broker
        deadline = self._loop.time() + DRAIN_SECONDS
        while broker.live_connections() and self._loop.time() < deadline:
            await asyncio.sleep(0.01)  # requests that arrive now are read and dropped
            for connection in broker.live_connections():
                connection.close_when_sent()
        for connection in broker.live_connections():
            connection.abort("")
        await asyncio.sleep(0)

    async def _settle(self) -> bool:
        """Wait until no append is in progress and all shards are unloaded; returns False after `SETTLE_SECONDS`."""
        broker = self.broker
        waits = []
        for journal in broker.journals:
            if not journal.writable:
                continue
            done: asyncio.Future[None] = self._loop.create_future()
            journal.when_settled(partial(done.set_result, None))
            waits.append(done)
        for shard in broker.shards.journals:
            unloaded: asyncio.Future[None] = self._loop.create_future()
            shard.unload(partial(unloaded.set_result, None))
            waits.append(unloaded)
        if not waits:
            return True
        _, late = await asyncio.wait(waits, timeout=SETTLE_SECONDS)
        for shard in broker.shards.journals:
            shard.finish_unload()
        await asyncio.sleep(0)  # the last replies are written at the end of this turn
        return not late
