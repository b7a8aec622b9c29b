"""`tenure health`: is the broker ready? Light enough to be asked every second.

It asks what any Kafka client could: ApiVersions, then ListGroups and FindCoordinator. A broker that is loading partitions of groups answers
ListGroups with COORDINATOR_LOAD_IN_PROGRESS, one that has suspended some with COORDINATOR_NOT_AVAILABLE, and leaves out what it cannot read;
what keeps it from being ready stands in the error message of FindCoordinator, where Kafka has "NONE"; what its operator should know besides
comes behind that. Frames are put together by hand here:
four of them, and the codec would cost more than the whole command.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import threading
import time

from broker.settings.endpoints import format_endpoint, is_wildcard
from cli.arguments import BOOTSTRAP, address, bootstrap_of
from cli.dial import UnknownHostError, dial, remaining

READY, SILENT, NOT_READY, USAGE, CONFIG = 0, 1, 2, 64, 78

API_VERSIONS, LIST_GROUPS, FIND_COORDINATOR = 18, 16, 10
LOAD_IN_PROGRESS, NOT_AVAILABLE = 14, 15
WHAT = {0: "is not ready", LOAD_IN_PROGRESS: "is loading", NOT_AVAILABLE: "is suspended"}
DEFECTS = "; defects: "  # followed by the number of defects, and the last of them
PROBE_SECONDS = 2.0
PAUSE_SECONDS = 0.1
REPLY_BYTES_MAX = 1 << 20
CLIENT_ID = b"tenure-health"
# No live group is in this state: the reply stays small however many groups there are.
STATE_WITHOUT_GROUPS = b"Dead"
NOTHING = "NONE"  # keeps the broker from being ready


class NotKafkaError(Exception):
    """Something answers, but not in Kafka's protocol; `begins`: how, where that is not how any reply begins."""

    def __init__(self, reason: str, begins: bytes = b"") -> None:
        super().__init__(reason)
        self.begins = begins


# Host, port, exit code, and a predicate: "is ready".
Answer = tuple[str, int, int, str]


def run(options: argparse.Namespace) -> int:
    targets = asked_for(options)
    patience = options.timeout or PROBE_SECONDS
    deadline = time.monotonic() + options.wait
    while True:
        answers = []
        for host, port in targets:
            left = deadline - time.monotonic()
            answers.append((host, port, *probe(host, port, min(patience, left) if left > PAUSE_SECONDS else patience)))
        code = worst(answers)
        if code == READY or time.monotonic() + PAUSE_SECONDS >= deadline:
            print_answers(answers, options)
            return code
        time.sleep(PAUSE_SECONDS)


def worst(answers: list[Answer]) -> int:
    codes = {code for _, _, code, _ in answers}
    return next(code for code in (SILENT, NOT_READY, READY) if code in codes)


def print_answers(answers: list[Answer], options: argparse.Namespace) -> None:
    if not options.json:
        for host, port, _, text in answers:
            print(f"{format_endpoint(host, port)} {text}")
        return
    from cli.failure import EXIT, NOT_READY, Failure
    from cli.shown import Screen

    brokers = [
        {
            "host": host,
            "port": port,
            "ready": code == READY,
            "answers": code != SILENT,
            "defects": defects_in(text),
            "text": f"{format_endpoint(host, port)} {text}",
        }
        for host, port, code, text in answers
    ]
    document: dict[str, object] = {"ready": worst(answers) == READY, "brokers": brokers}
    if trouble := [broker for broker, answer in zip(brokers, answers, strict=True) if answer[2] == worst(answers) != READY]:
        code, word = (EXIT.UNREACHABLE, None) if worst(answers) == SILENT else (EXIT.AGAIN, NOT_READY)
        document["error"] = Failure(code, str(trouble[0]["text"]), word=word, hint="--wait SECONDS waits until it is ready").document()
    Screen.of(options).document(document)


def defects_in(text: str) -> int:
    """The number of internal errors that the broker reports since its start."""
    count = text.partition(DEFECTS)[2].partition(",")[0]
    return int(count) if count.isdecimal() else 0


def asked_for(options: argparse.Namespace) -> list[tuple[str, int]]:
    """The addresses: from the command line, the environment, or the local configuration."""
    if options.broker:
        return [named(options.broker)]
    if options.bootstrap or (os.environ.get(BOOTSTRAP, "").strip() and not options.config):
        try:
            return bootstrap_of(options)
        except ValueError as error:
            raise failure(USAGE, str(error)) from error
    return configured(options.config)


def named(text: str) -> tuple[str, int]:
    try:
        return address(text)
    except argparse.ArgumentTypeError as error:
        raise failure(USAGE, str(error)) from error


def configured(config_file: str | None) -> list[tuple[str, int]]:
    """The broker that this environment and this file describe, as it is reached from this machine; of several nodes each."""
    from broker.settings.config import ConfigError, load_config

    try:
        config = load_config(config_file=config_file, environ=os.environ)
    except ConfigError as error:
        raise failure(CONFIG, "; ".join(error.problems)) from error
    listener = config.listeners[0]
    if listener.port == 0:
        raise failure(USAGE, f"{listener.name} takes a free port at each start; write tenure health HOST:PORT, as its listening line says")
    host = listener.host
    if is_wildcard(host):
        host = "::1" if ":" in host else "127.0.0.1"
    nodes = 1 if "node.id" in config.given else config.cluster_nodes
    return [(host, listener.port + number) for number in range(nodes)]


def failure(code: int, line: str) -> Exception:
    from cli.failure import Failure

    return Failure(code, line)


def probe(host: str, port: int, seconds: float) -> tuple[int, str]:
    """The exit code and the message, within the given seconds whatever the peer does."""
    deadline = time.monotonic() + seconds
    took = ""
    second_look = SecondLook(host, port, seconds)
    try:
        with dial(host, port, deadline) as connection:
            took = "takes connections, but "
            second_look.start()
            return ask(Exchange(connection, deadline))
    except NotKafkaError as error:
        return SILENT, what_else(host, port, deadline, error.begins) or f"does not answer as Kafka: {error}"
    except TimeoutError:
        return SILENT, (took and second_look.found()) or f"{took}does not answer within {seconds:.3g} s"
    except ConnectionRefusedError:
        return SILENT, "does not answer: connection refused (is a broker running there?)"
    except UnknownHostError as error:
        return SILENT, f"does not answer: this name is not known here ({error.reason})"
    except OSError as error:
        return SILENT, (took and what_else(host, port, deadline)) or f"does not answer: {error.strerror or error}"
    finally:
        second_look.cancel()


class SecondLook(threading.Timer):
    """Asks in other protocols where a broker has not answered in half of the time: a web server waits for the end of a line."""

    def __init__(self, host: str, port: int, seconds: float) -> None:
        super().__init__(seconds / 2, self._look)
        self.daemon = True
        self._address = host, port
        self._until = time.monotonic() + seconds * 0.95
        self._found: str | None = None

    def _look(self) -> None:
        self._found = what_else(*self._address, self._until)

    def found(self) -> str | None:
        return self._found


def what_else(host: str, port: int, deadline: float, begins: bytes = b"") -> str | None:
    """In words, where something is there that is no broker, or a listener that wants more."""
    from cli.client import nature

    return nature.of_bytes(begins) if begins else nature.of(host, port, deadline)


class Exchange:
    """One request and the beginning of its reply: only the needed bytes are read."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self._correlation_id = 0

    def request(self, key: int, version: int, body: bytes = b"", *, flexible: bool = False) -> int:
        """Send it; the number of reply bytes that follow the correlation id."""
        self._correlation_id += 1
        header = struct.pack(">hhih", key, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID + (b"\0" if flexible else b"")
        frame = header + body
        self._connection.settimeout(remaining(self._deadline))
        self._connection.sendall(struct.pack(">i", len(frame)) + frame)
        head = self.read(8)
        size, correlation_id = struct.unpack(">ii", head)
        if size < 4 or correlation_id != self._correlation_id:
            raise NotKafkaError("the reply does not belong to the request", head + self.more())
        return int(size) - 4

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            self._connection.settimeout(remaining(self._deadline))
            piece = self._connection.recv(size - len(data))
            if not piece:
                raise NotKafkaError("it closed the connection")
            data += piece
        return data

    def more(self) -> bytes:
        """Other bytes received so far."""
        try:
            self._connection.settimeout(min(0.1, remaining(self._deadline)))
            return self._connection.recv(200)
        except OSError:
            return b""

    def whole(self, size: int) -> bytes:
        if size > REPLY_BYTES_MAX:
            raise NotKafkaError(f"a reply of {size} bytes")
        return self.read(size)


def ask(exchange: Exchange) -> tuple[int, str]:
    versions = advertised(exchange.whole(exchange.request(API_VERSIONS, 0)))
    if LIST_GROUPS not in versions:
        return READY, "is ready (it serves no groups)"
    error = list_groups_error(exchange, versions[LIST_GROUPS])
    if error not in WHAT:
        return NOT_READY, f"is not ready: ListGroups is answered with error {error}"
    trouble = progress(exchange, versions.get(FIND_COORDINATOR, (0, 0)))
    if not error and (not trouble or trouble.startswith(NOTHING)):
        return READY, f"is ready{trouble.removeprefix(NOTHING)}"
    trouble = trouble.removeprefix(NOTHING).removeprefix("; ")
    return NOT_READY, f"{WHAT[error]}: {trouble}" if trouble else WHAT[error]


def advertised(reply: bytes) -> dict[int, tuple[int, int]]:
    """The body of ApiVersions version 0: an error code and (key, lowest, highest) of each API."""
    if len(reply) < 6:
        raise NotKafkaError("its ApiVersions reply is too short")
    error, count = struct.unpack_from(">hi", reply)
    if error:
        raise NotKafkaError(f"ApiVersions is answered with error {error}")
    if count < 0 or len(reply) < 6 + 6 * count:
        raise NotKafkaError("its ApiVersions reply is too short")
    return {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", reply[6 : 6 + 6 * count])}


def list_groups_error(exchange: Exchange, versions: tuple[int, int]) -> int:
    """From version 4 on the request can ask for no topics; older ones always list them."""
    if versions[1] >= 4:
        names = b"\x02" + bytes([len(STATE_WITHOUT_GROUPS) + 1]) + STATE_WITHOUT_GROUPS
        reply = exchange.whole(exchange.request(LIST_GROUPS, 4, names + b"\0", flexible=True))
        at = 5  # no tagged fields in the header, the throttle time
    else:
        reply = exchange.read(min(6, exchange.request(LIST_GROUPS, 0)))
        at = 0
    if len(reply) < at + 2:
        raise NotKafkaError("its ListGroups reply is too short")
    return int(struct.unpack_from(">h", reply, at)[0])


def progress(exchange: Exchange, versions: tuple[int, int]) -> str:
    """The error message of FindCoordinator version 2, for a group that need not exist: NOTHING, and further remarks after it,
    if the broker is ready.
    """
    if not versions[0] <= 2 <= versions[1]:
        return ""
    key = CLIENT_ID
    reply = exchange.whole(exchange.request(FIND_COORDINATOR, 2, struct.pack(">h", len(key)) + key + b"\0"))
    if len(reply) < 8:
        return ""
    error, length = struct.unpack_from(">hh", reply, 4)  # after the throttle time
    text = reply[8 : 8 + length].decode("utf-8", "replace") if length > 0 and not error else ""
    return text if text.isprintable() else repr(text)
