"""`tenure health`: checks whether a broker is ready, cheaply enough to run every second.

It sends ApiVersions, ListGroups and FindCoordinator. A Tenure broker answers ListGroups with COORDINATOR_LOAD_IN_PROGRESS while it loads
partitions of __consumer_offsets, and with COORDINATOR_NOT_AVAILABLE while it has suspended some. Its error message in FindCoordinator, "NONE"
in Kafka, has the reason why the broker is not ready, and then other remarks for its operator. The frames are encoded here, since importing
the codec would take longer than the rest of the command.
"""

from __future__ import annotations

import argparse
import os
import struct
import threading
import time

from broker.logging.secrets import hide
from broker.settings.endpoints import format_endpoint, reachable_host
from cli.arguments import BOOTSTRAP, CLIENT_CONFIG, address, bootstrap_of
from cli.dial import UnknownHostError, dial
from secured.channel import Channel
from secured.security import OPEN, Security

READY, SILENT, NOT_READY, USAGE, CONFIG = 0, 1, 2, 64, 78
WANTS_LOGIN = -1  # it answers, and this command cannot ask more

API_VERSIONS, LIST_GROUPS, FIND_COORDINATOR, SASL_HANDSHAKE = 18, 16, 10, 17
LOAD_IN_PROGRESS, NOT_AVAILABLE = 14, 15
CONDITIONS = {0: "is not ready", LOAD_IN_PROGRESS: "is loading", NOT_AVAILABLE: "is suspended"}
STORE = "; store: "  # followed by figures (name=number) of a node whose logs are in JetStream
DEFECTS = "; defects: "  # followed by the number of defects, and the last one
PROBE_SECONDS = 2.0
PAUSE_SECONDS = 0.1
REPLY_BYTES_MAX = 1 << 20
CLIENT_SETTINGS = ("security.protocol", "sasl.", "ssl.")
CLIENT_ID = b"tenure-health"
# ListGroups asks only for groups in this state, which no group has: that keeps the reply small.
STATE_WITHOUT_GROUPS = b"Dead"
NO_REASON = "NONE"  # the broker is ready


class NotKafkaError(Exception):
    """The peer does not answer in Kafka's protocol. `begins`: the first bytes of its answer, if these are the reason."""

    def __init__(self, reason: str, begins: bytes = b"") -> None:
        super().__init__(reason)
        self.begins = begins


class WantsLoginError(Exception):
    """The broker closed the connection at the first request that needs a login."""


# Host, port, exit code, and a predicate: "is ready".
Answer = tuple[str, int, int, str]


def run(options: argparse.Namespace) -> int:
    targets = targets_of(options)
    security = security_given(options)
    probe_seconds = options.timeout or PROBE_SECONDS
    deadline = time.monotonic() + options.wait
    while True:
        answers = []
        for host, port in targets:
            remaining_seconds = deadline - time.monotonic()
            answers.append((host, port, *probe(host, port, min(probe_seconds, remaining_seconds) if remaining_seconds > PAUSE_SECONDS else probe_seconds, security)))
        code = worst(answers)
        if code in (READY, WANTS_LOGIN) or time.monotonic() + PAUSE_SECONDS >= deadline:
            print_answers(answers, options)
            return (NOT_READY if options.ready else READY) if code == WANTS_LOGIN else code
        time.sleep(PAUSE_SECONDS)


def worst(answers: list[Answer]) -> int:
    codes = {code for _, _, code, _ in answers}
    return next(code for code in (SILENT, NOT_READY, WANTS_LOGIN, READY) if code in codes)


def print_answers(answers: list[Answer], options: argparse.Namespace) -> None:
    if not options.json:
        for host, port, _, text in answers:
            print(hide(f"{format_endpoint(host, port)} {text}"))
        return
    from cli.failure import NOT_READY, Exit, Failure
    from cli.shown import Screen

    brokers = [
        {
            "host": hide(host),
            "port": port,
            "ready": code == READY,
            "answers": code != SILENT,
            "defects": defects_in(text),
            "store": store_figures_in(text),
            "text": hide(f"{format_endpoint(host, port)} {text}"),
        }
        for host, port, code, text in answers
    ]
    document: dict[str, object] = {"ready": worst(answers) == READY, "brokers": brokers}
    if worst(answers) != WANTS_LOGIN and (reason := [broker for broker, answer in zip(brokers, answers, strict=True) if answer[2] == worst(answers) != READY]):
        code, word = (Exit.UNREACHABLE, None) if worst(answers) == SILENT else (Exit.AGAIN, NOT_READY)
        document["error"] = Failure(code, str(reason[0]["text"]), kind=word, hint="--wait SECONDS waits until it is ready").document()
    Screen.of(options).document(document)


def defects_in(text: str) -> int:
    """The number of internal errors that the broker reports since its start."""
    count = text.partition(DEFECTS)[2].partition(",")[0]
    return int(count) if count.isdecimal() else 0


def store_figures_in(text: str) -> dict[str, int] | None:
    """Figures about a node's access to its logs in JetStream; None: its logs are in a directory."""
    figures = [word.partition("=") for word in text.partition(STORE)[2].split()]
    return {name.replace(".", "_"): int(value) for name, _, value in figures if value.isdecimal()} or None


def targets_of(options: argparse.Namespace) -> list[tuple[str, int]]:
    """The addresses: from the command line, the environment, or the local configuration."""
    if options.broker:
        return [parsed_address(options.broker)]
    if options.bootstrap or (os.environ.get(BOOTSTRAP, "").strip() and not options.config):
        try:
            return bootstrap_of(options)
        except ValueError as error:
            raise failure(USAGE, str(error)) from error
    return configured_targets(options.config)


def parsed_address(text: str) -> tuple[str, int]:
    try:
        return address(text)
    except argparse.ArgumentTypeError as error:
        raise failure(USAGE, str(error)) from error


def configured_targets(config_file: str | None) -> list[tuple[str, int]]:
    """The addresses, one for each node, at which this machine reaches the broker that the environment and the file configure."""
    from broker.settings.load import ConfigError, load_config

    try:
        config = load_config(config_file=config_file, environ=os.environ)
    except ConfigError as error:
        of_client = any(name in problem for problem in error.problems for name in CLIENT_SETTINGS)
        hint = "; a file with the settings of a client is named by --command-config" if of_client and config_file else ""
        raise failure(CONFIG, "; ".join(error.problems) + hint) from error
    listener = config.listeners[0]
    if listener.port == 0:
        raise failure(USAGE, f"{listener.name} gets a free port at each start; write tenure health HOST:PORT with the port of its listening line")
    host = reachable_host(listener.host)
    nodes = 1 if "node.id" in config.given else config.cluster_nodes
    return [(host, listener.port + number) for number in range(nodes)]


def failure(code: int, line: str) -> Exception:
    from cli.failure import Failure

    return Failure(code, line)


def security_given(options: argparse.Namespace) -> Security:
    if not (options.client_config or os.environ.get(CLIENT_CONFIG, "").strip()):
        return OPEN
    from cli.client.security import security_of

    return security_of(options)


def probe(host: str, port: int, seconds: float, security: Security = OPEN) -> tuple[int, str]:
    """Check a broker. Returns the exit code and the message, after `seconds` at the latest."""
    deadline = time.monotonic() + seconds
    if security is not OPEN:
        from cli.health_secured import probe_secured

        return probe_secured(host, port, deadline, security)
    accepted = ""
    protocol_probe = ProtocolProbe(host, port, seconds)
    try:
        with dial(host, port, deadline) as connection:
            accepted = "accepts connections, but "
            protocol_probe.start()
            return query_state(Exchange(Channel(connection), deadline))
    except WantsLoginError:
        return WANTS_LOGIN, wants_login_text(host, port, deadline)
    except NotKafkaError as error:
        return described(host, port, deadline, error.begins) or (SILENT, f"does not answer as Kafka: {error}")
    except TimeoutError:
        return (accepted and protocol_probe.result()) or (SILENT, f"{accepted}does not answer within {seconds:.3g} s")
    except ConnectionRefusedError:
        return SILENT, "does not answer: connection refused (is a broker running there?)"
    except UnknownHostError as error:
        return SILENT, f"does not answer: unknown host name ({error.reason})"
    except OSError as error:
        return (accepted and described(host, port, deadline)) or (SILENT, f"does not answer: {error.strerror or error}")
    finally:
        protocol_probe.cancel()


class ProtocolProbe(threading.Timer):
    """Probes the listener for other protocols after half of the time without a reply: a web server waits for a line feed before it answers."""

    def __init__(self, host: str, port: int, seconds: float) -> None:
        super().__init__(seconds / 2, self._probe)
        self.daemon = True
        self._address = host, port
        self._until = time.monotonic() + seconds * 0.95
        self._result: tuple[int, str] | None = None

    def _probe(self) -> None:
        self._result = described(*self._address, self._until)

    def result(self) -> tuple[int, str] | None:
        return self._result


def described(host: str, port: int, deadline: float, begins: bytes = b"") -> tuple[int, str] | None:
    """The code and a predicate for a listener that does not answer as a broker ("is a web server"); None if nothing is known about it."""
    from cli.client import other_protocols
    from secured.probing import speaks_tls, wants_tls

    text = other_protocols.sender_of(begins) if begins else other_protocols.describe_listener(host, port, deadline)
    if text == wants_tls().line and speaks_tls(lambda until: dial(host, port, until), deadline, kafka=True):
        return WANTS_LOGIN, f"answers, and {in_our_words(text)}"
    return (SILENT, in_our_words(text)) if text else None


def wants_login_text(host: str, port: int, deadline: float) -> str:
    from secured.opening import open_channel
    from secured.probing import sasl_mechanisms, wants_login

    mechanisms = sasl_mechanisms(lambda until: open_channel(host, port, until, OPEN, dial), deadline)
    return f"answers, and {in_our_words(wants_login(mechanisms or []).line)}"


def in_our_words(text: str) -> str:
    """Here --config is the configuration of the broker."""
    return text.replace(" by --config, or use --user", " by --command-config").replace(" by --config", " by --command-config")


class Exchange:
    """Requests on one connection; the caller reads as much of each reply as it needs."""

    def __init__(self, channel: Channel, deadline: float) -> None:
        self._channel = channel
        self._deadline = deadline
        self._correlation_id = 0

    def request(self, key: int, version: int, body: bytes = b"", *, flexible: bool = False) -> int:
        """Send a request; return the number of reply bytes after the correlation id."""
        self._correlation_id += 1
        header = struct.pack(">hhih", key, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID + (b"\0" if flexible else b"")
        frame = header + body
        self._channel.send(struct.pack(">i", len(frame)) + frame, self._deadline)
        head = self.read(8)
        size, correlation_id = struct.unpack(">ii", head)
        if size < 4 or correlation_id != self._correlation_id:
            raise NotKafkaError("the reply does not belong to the request", head + self.read_available())
        return int(size) - 4

    def read(self, size: int) -> bytes:
        try:
            return self._channel.receive_exactly(size, self._deadline)
        except EOFError:
            raise NotKafkaError("it closed the connection") from None

    def read_available(self) -> bytes:
        """Read bytes that have arrived, or arrive within a tenth of a second."""
        try:
            return self._channel.receive(200, min(self._deadline, time.monotonic() + 0.1))
        except OSError:
            return b""

    def read_reply(self, size: int) -> bytes:
        if size > REPLY_BYTES_MAX:
            raise NotKafkaError(f"a reply of {size} bytes")
        return self.read(size)


def query_state(exchange: Exchange) -> tuple[int, str]:
    versions = read_api_versions(exchange.read_reply(exchange.request(API_VERSIONS, 0)))
    if LIST_GROUPS not in versions:
        return READY, "is ready (it serves no groups)"
    try:
        error = list_groups_error(exchange, versions[LIST_GROUPS])
    except (NotKafkaError, ConnectionError):
        if SASL_HANDSHAKE in versions:
            raise WantsLoginError from None
        raise
    if error not in CONDITIONS:
        return NOT_READY, f"is not ready: ListGroups is answered with error {error}"
    reason = readiness_message(exchange, versions.get(FIND_COORDINATOR, (0, 0)))
    if not error and (not reason or reason.startswith(NO_REASON)):
        return READY, f"is ready{reason.removeprefix(NO_REASON)}"
    reason = reason.removeprefix(NO_REASON).removeprefix("; ")
    return NOT_READY, f"{CONDITIONS[error]}: {reason}" if reason else CONDITIONS[error]


def read_api_versions(reply: bytes) -> dict[int, tuple[int, int]]:
    """The oldest and newest version of each API, from the body of an ApiVersions reply of version 0."""
    if len(reply) < 6:
        raise NotKafkaError("its ApiVersions reply is too short")
    error, count = struct.unpack_from(">hi", reply)
    if error:
        raise NotKafkaError(f"ApiVersions is answered with error {error}")
    if count < 0 or len(reply) < 6 + 6 * count:
        raise NotKafkaError("its ApiVersions reply is too short")
    return {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", reply[6 : 6 + 6 * count])}


def list_groups_error(exchange: Exchange, versions: tuple[int, int]) -> int:
    """Send ListGroups; returns its error code. From version 4 on the request filters by state, which keeps the reply small."""
    if versions[1] >= 4:
        names = b"\x02" + bytes([len(STATE_WITHOUT_GROUPS) + 1]) + STATE_WITHOUT_GROUPS
        reply = exchange.read_reply(exchange.request(LIST_GROUPS, 4, names + b"\0", flexible=True))
        at = 5  # after the header's tagged fields and the throttle time
    else:
        reply = exchange.read(min(6, exchange.request(LIST_GROUPS, 0)))
        at = 0
    if len(reply) < at + 2:
        raise NotKafkaError("its ListGroups reply is too short")
    return int(struct.unpack_from(">h", reply, at)[0])


def readiness_message(exchange: Exchange, versions: tuple[int, int]) -> str:
    """Send FindCoordinator version 2; returns its error message: NO_REASON if the broker is ready, else the reason; then other
    remarks. Returns "" if the broker sends no message.
    """
    if not versions[0] <= 2 <= versions[1]:
        return ""
    key = CLIENT_ID
    reply = exchange.read_reply(exchange.request(FIND_COORDINATOR, 2, struct.pack(">h", len(key)) + key + b"\0"))
    if len(reply) < 8:
        return ""
    error, length = struct.unpack_from(">hh", reply, 4)  # after the throttle time
    text = reply[8 : 8 + length].decode("utf-8", "replace") if length > 0 and not error else ""
    return text if text.isprintable() else repr(text)
