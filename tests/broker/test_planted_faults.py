"""An exception planted at every callback of a started broker ends at most one connection, and all clients are served afterwards.

The callbacks are found in the source: those passed to the event loop, to a worker thread or to the turn. A test also finds callbacks
that are passed without containment (`runtime/contain.py`).
"""

from __future__ import annotations

import ast
import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import broker.net.connection
from tests.running import ROOT, Broker, Client, environment
from tests.running import broker as started_broker
from tests.support.peers import becomes_true, serve_options
from tests.support.pipeliner import BATCH, LARGE, TOPIC, Pipeliner, fetching, producing
from tests.support.restartable import create_topic

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(str(broker.net.connection.__file__).endswith(".so"), reason="nothing can be planted in compiled code"),
]

# Functions that take callbacks: the position of the callback among the arguments.
CALLBACK_POSITION = {"call_soon": 0, "call_later": 1, "call_at": 1, "call_soon_threadsafe": 0, "add_reader": 1, "add_writer": 1, "add_done_callback": 0}
# Callbacks that need no wrapper: they contain exceptions themselves, or cannot raise.
UNWRAPPED_CALLBACKS = {
    ("broker/runtime/turn.py", "self._end"),
    ("broker/runtime/turn.py", "self._fire"),
    ("broker/runtime/turn.py", "self._advance_past_input"),
    ("broker/stores/jetstream/claim.py", "self._ending_on_defect(step)"),  # returns a `Contained` callback
    ("broker/topics/partitions.py", "self._continue_deletion(topic_partitions, remaining)"),  # also returns a `Contained` callback
    ("broker/control/loop.py", "callback"),  # the loop of a controlled cluster hands on what the broker gives it
}
# Tasks that are awaited: the awaiting code gets their exceptions.
AWAITED = {
    ("broker/topics/batch_checker.py", "self._start()"),
    ("broker/stores/compaction.py", "self._run_cleaner(self._command, target.folder, request, niceness, limit)"),
    ("broker/control/life.py", "self._serve(server)"),
    ("broker/control/loop.py", "work"),  # as `callback` above
}
# Methods called by a turn, a log or a transport.
CALLED = {"end_turn", "advance", "move_deadlines", "write_piece", "release", "fail", "complete", "answer", "has_enough", "done", "grown"}
PROTOCOL_CALLBACKS = ("data_received", "pause_writing", "resume_writing", "connection_lost")
NOT_PLANTED = {
    "broker.net.connection:Connection.connection_lost",  # these end connections, so an exception in them would leave one open
    "broker.net.dispatch:ConstantReply.answer",
}

PLANTING = """\
import functools, importlib, os, socket, sys, threading
if "serve" in sys.argv or any("cli" in word for word in sys.orig_argv):
    import broker.server
    armed, fired = {}, []
    def planted(point, function):
        @functools.wraps(function)
        def call(*arguments, **named):
            if armed.get(point):
                armed[point] -= 1
                fired.append(point)
                raise RuntimeError("planted in " + point)
            return function(*arguments, **named)
        return call
    for point in os.environ["POINTS"].split():
        module, _, name = point.partition(":")
        kind, _, method = name.partition(".")
        kind = getattr(importlib.import_module(module), kind)
        setattr(kind, method, planted(point, kind.__dict__[method]))
    server = socket.create_server(("127.0.0.1", 0))
    with open(os.environ["CONTROL"] + ".new", "w") as file:
        file.write(str(server.getsockname()[1]))
    os.rename(os.environ["CONTROL"] + ".new", os.environ["CONTROL"])
    def control():
        while True:
            peer, _ = server.accept()
            with peer, peer.makefile("rw") as lines:
                for line in lines:
                    word, point = line.split()
                    if word == "arm":
                        armed.clear()
                        armed[point] = 1
                    elif word == "disarm":
                        armed.clear()
                    lines.write(str(fired.count(point)) + "\\n")
                    lines.flush()
    threading.Thread(target=control, daemon=True).start()
"""


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "broker").rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def handed_over() -> Iterator[tuple[str, ast.expr]]:
    """The callbacks and tasks that the broker passes to an event loop, with their file."""
    for path, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLBACK_POSITION:
                yield path, node.args[CALLBACK_POSITION[node.func.attr]]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("create_task", "ensure_future"):
                yield path, node.args[0]


def method_in(node: ast.expr) -> str:
    """The name of `self.method` or `partial(self.method, ...)`."""
    if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Name) and node.func.id in ("partial", "Contained"):
        return method_in(node.args[0])
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return ""


def planting_points() -> list[str]:
    points: dict[str, None] = {}
    for path, tree in sources():
        module = path.removesuffix(".py").replace("/", ".")
        for kind in [node for node in tree.body if isinstance(node, ast.ClassDef)]:
            if any(isinstance(base, ast.Name) and base.id in ("Protocol", "NamedTuple") for base in kind.bases):
                continue
            methods = {node.name for node in kind.body if isinstance(node, ast.FunctionDef)}
            contained = {method_in(node) for node in ast.walk(kind) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Contained"}
            planted_methods = (methods & (CALLED | contained)) | ({*PROTOCOL_CALLBACKS} & methods if kind.name == "Connection" else set())
            points.update(dict.fromkeys(f"{module}:{kind.name}.{name}" for name in sorted(planted_methods)))
    return [point for point in points if point not in NOT_PLANTED]


POINTS = planting_points()
# Callbacks that the requests of the test reach; many others need a full disk, a deletion or a long time.
ALWAYS_MET = {
    "broker.net.connection:Connection.data_received",
    "broker.net.connection:Connection.end_turn",
    "broker.groups.group_journal:GroupJournal.end_turn",
    "broker.topics.waiting_fetches:ParkedFetches.advance",
    "broker.topics.waiting_fetches:ParkedFetches.end_turn",
    "broker.net.long_replies:LongReplies.end_turn",
    "broker.net.connection:Connection.write_piece",
    "broker.net.dispatch:Call.answer",
    "broker.fastpath.commit:CommitFastPath.release",
    "broker.fastpath.commit:CommitFastPath.answer",
    "broker.fastpath.heartbeat:HeartbeatFastPath.answer",
    "broker.fastpath.rejoin:JoinFastPath.release",
    "broker.fastpath.rejoin:SyncFastPath.answer",
    "broker.fastpath.produce:ProduceFastPath.answer",
    "broker.topics.retention:PartitionJobLoop._begin_round",
    "broker.net.acceptor:Acceptor._readable",
    "broker.stores.local:LocalStore._flush_scheduled",
}


def test_every_callback_given_to_the_loop_is_contained() -> None:
    bare = {(path, ast.unparse(node)) for path, node in handed_over() if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Contained", "contained_task"))}
    bare -= AWAITED
    assert bare <= UNWRAPPED_CALLBACKS


def test_the_planting_points_exist_in_the_code() -> None:
    assert set(POINTS) >= ALWAYS_MET
    assert len(POINTS) > 50


class Planted:
    """A started broker, and control over which of its callbacks raises next."""

    def __init__(self, ours: Broker, control: Path) -> None:
        self.ours = ours
        assert becomes_true(control.exists)
        self._socket = socket.create_connection(("127.0.0.1", int(control.read_text())), 10)
        self._lines = self._socket.makefile("rw")
        self.pipeliners = [Pipeliner(ours.port, f"planted-{number}", number) for number in range(3)]
        for pipeliner in self.pipeliners:
            pipeliner.warm_up()

    def say(self, word: str, point: str) -> int:
        """Send a command to the planting code in the broker; returns the number of exceptions that it has raised."""
        self._lines.write(f"{word} {point}\n")
        self._lines.flush()
        return int(self._lines.readline())

    def close(self) -> None:
        self._socket.close()
        self._lines.close()
        for pipeliner in self.pipeliners:
            pipeliner.sock.close()


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    folder = tmp_path_factory.mktemp("planting")
    (folder / "sitecustomize.py").write_text(PLANTING)
    path = f"{folder}{os.pathsep}{environment()['PYTHONPATH']}"
    settings = (
        "group.initial.rebalance.delay.ms=0",
        "offsets.topic.num.partitions=1",
        "offsets.flush=interval",
        "offsets.flush.interval.ms=50",
        "log.retention.check.interval.ms=50",
        "log.retention.ms=-1",
    )
    with started_broker(*serve_options("uvloop", *settings), PYTHONPATH=path, POINTS=" ".join(POINTS), CONTROL=str(folder / "control")) as ours:
        create_topic(ours.port, TOPIC, 1)
        create_topic(ours.port, LARGE, 1)
        with Client(ours.port) as client:
            assert client.ask(producing(b"".join([BATCH]), TOPIC), 9)
            large = broker_batch()
            assert client.ask(producing(large, LARGE), 9).responses[0].partition_responses[0].error_code == 0
        cluster = Planted(ours, folder / "control")
        yield cluster
        cluster.close()


def broker_batch() -> bytes:
    from protocol.batch import Record, build

    return build([Record(0, 0, None, b"x" * 80_000)])


CHUNK = ("heartbeat", "commit", "produce", "fetch offsets", "join", "sync", "long poll", "list offsets", "long reply", "describe")


def works(port: int, pipeliner: Pipeliner) -> bool:
    """Whether Produce, OffsetCommit, Heartbeat and the deadline of a waiting fetch work."""
    with Client(port, client_id="after") as client:
        for kind in ("produce", "commit", "heartbeat", "long poll"):
            version, request = pipeliner.requests[kind]
            begun = time.monotonic()
            with contextlib.suppress(TimeoutError):
                reply = client.ask(request, version)
                codes = {
                    "produce": lambda reply=reply: reply.responses[0].partition_responses[0].error_code,
                    "commit": lambda reply=reply: reply.topics[0].partitions[0].error_code,
                    "heartbeat": lambda reply=reply: reply.error_code,
                    "long poll": lambda reply=reply: reply.error_code,
                }
                if codes[kind]() == 0:
                    continue
            assert time.monotonic() - begun < 5, f"{kind} was not answered"
            return False
    return True


def all_replies(pipeliner: Pipeliner) -> bool:
    """Whether all replies arrived; False if the broker closed the connection."""
    try:
        assert pipeliner.receive_replies() == [], "out of order"
    except (AssertionError, ConnectionError) as error:
        if isinstance(error, AssertionError) and "closed after" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize("point", POINTS)
def test_a_fault_at_any_point_ends_at_most_one_connection(planted: Planted, point: str) -> None:
    before = planted.say("count", point)
    planted.say("arm", point)
    for pipeliner in planted.pipeliners:
        pipeliner.unanswered.clear()
        pipeliner.send(CHUNK)
    ended = [pipeliner for pipeliner in planted.pipeliners if not all_replies(pipeliner)]
    if point in ALWAYS_MET and planted.say("count", point) == before:
        with contextlib.suppress(ConnectionError, TimeoutError), Client(planted.ours.port) as waiting, Client(planted.ours.port) as client:
            client.socket.settimeout(0.3)
            client.ask(planted.pipeliners[0].requests["long poll"][1], 11)
            waiting.send(fetching(TOPIC, max_wait_ms=1_000, min_bytes=1 << 20), 11)
            client.ask(producing(BATCH, TOPIC), 9)  # completes the waiting fetch
        assert becomes_true(lambda: planted.say("count", point) > before, 3), "the planted exception was not raised"
    planted.say("disarm", point)
    for pipeliner in ended:
        pipeliner.connect_anew()
    assert len(ended) <= 1
    assert becomes_true(lambda: works(planted.ours.port, planted.pipeliners[0])), planted.ours.errors()[-2000:]
    for pipeliner in planted.pipeliners:
        pipeliner.warm_up()


def test_health_reports_planted_faults(planted: Planted) -> None:
    """Faults do not make the broker unready."""
    import subprocess
    import sys

    test_a_fault_at_any_point_ends_at_most_one_connection(planted, "broker.net.connection:Connection.data_received")
    command = [sys.executable, "-P", "-m", "tenure", "health", f"127.0.0.1:{planted.ours.port}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=20, check=False)
    assert done.returncode == 0, done.stdout
    assert " is ready; defects: " in done.stdout
    assert "planted in " in done.stdout
