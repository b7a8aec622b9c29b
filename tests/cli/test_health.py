from __future__ import annotations

import json
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.conftest import Tenure
from tests.cli.other_servers import OtherServer, Serve, answer_as_web_server, answer_slowly, answer_with, close, keep_silent, reset

pytestmark = pytest.mark.once  # tests sockets and timeouts, not Python

Serving = Callable[[Serve], str]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secured.probing.PROBE_SECONDS", 0.2)  # the time limit of each probe for TLS and SASL
    for variable in [name for name in os.environ if name.startswith("TENURE_")]:
        monkeypatch.delenv(variable)


@pytest.fixture
def serving() -> Iterator[Serving]:
    """Opens a port whose connections are served by the given function; returns its address."""
    with ExitStack() as ports:
        yield lambda serve: str(ports.enter_context(OtherServer(serve)).address)


class Broker:
    """The part of Kafka that `tenure health` uses."""

    def __init__(self, *errors: int, list_groups: tuple[int, int] | None = (0, 5), message: str | None = None) -> None:
        self._errors = list(errors)
        self._list_groups = list_groups
        self._message = message
        self.requests: list[tuple[int, int, bytes]] = []

    def __call__(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as stream:
            while size := stream.read(4):
                frame = stream.read(struct.unpack(">i", size)[0])
                key, version, correlation_id, length = struct.unpack_from(">hhih", frame)
                self.requests.append((key, version, frame[10 + length :]))
                body = {18: self.versions, 16: self.groups, 10: self.coordinator}[key](version)
                connection.sendall(struct.pack(">ii", len(body) + 4, correlation_id) + body)

    def versions(self, version: int) -> bytes:
        assert version == 0
        ranges = [(18, 0, 4), (10, 0, 6)] + ([(16, *self._list_groups)] if self._list_groups else [])
        return struct.pack(">hi", 0, len(ranges)) + b"".join(struct.pack(">hhh", *entry) for entry in ranges)

    def groups(self, version: int) -> bytes:
        error = self._errors.pop(0) if len(self._errors) > 1 else self._errors[0]
        return struct.pack(">hi", error, 0) if version == 0 else b"\0" + struct.pack(">ih", 0, error) + b"\1\0"

    def coordinator(self, version: int) -> bytes:
        assert version == 2
        text = None if self._message is None else self._message.encode()
        written = struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text
        return struct.pack(">ih", 0, 0) + written + struct.pack(">ihi", 1, 0, 9092)


@pytest.fixture
def health(tenure: Tenure) -> Tenure:
    return lambda *arguments, stdin="": tenure("health", *arguments, stdin=stdin)


def test_a_broker_that_serves_groups_is_ready(serving: Serving, health: Tenure) -> None:
    broker = Broker(0)
    endpoint = serving(broker)
    assert health(endpoint)[:2] == (0, f"{endpoint} is ready\n")
    # ListGroups asks for state Dead, which no group has, so the reply stays small.
    assert broker.requests[1] == (16, 4, b"\0\x02\x05Dead\0")


def test_a_ready_broker_has_no_problem_text(serving: Serving, health: Tenure) -> None:
    assert health(serving(Broker(0, message="NONE"))).code == 0


def test_a_broker_with_defects_is_ready_and_reports_them(serving: Serving, health: Tenure) -> None:
    text = "defects: 12, last: 2026-11-22 10:00:00 UTC, a request failed inside the broker: ValueError: x; y"
    endpoint = serving(Broker(0, 0, message=f"NONE; {text}"))
    assert health(endpoint)[:2] == (0, f"{endpoint} is ready; {text}\n")
    result = health("--json", endpoint)
    assert result.code == 0
    (broker,) = json.loads(result.out)["brokers"]
    assert (broker["ready"], broker["defects"]) == (True, 12)


def test_the_figures_of_a_node_in_a_cluster_over_an_engine_are_shown(serving: Serving, health: Tenure) -> None:
    text = "needs something; store: lease.left.ms=8912 appends=3 oldest.append.ms=14 quarantined=0"
    result = health("--json", serving(Broker(0, 0, message=f"NONE; {text}")))
    (broker,) = json.loads(result.out)["brokers"]
    assert broker["store"] == {"lease_left_ms": 8912, "appends": 3, "oldest_append_ms": 14, "quarantined": 0}


def test_an_older_broker_is_checked_with_older_versions(serving: Serving, health: Tenure) -> None:
    assert health(serving(Broker(0, list_groups=(0, 2)))).code == 0
    assert health(serving(Broker(14, list_groups=(0, 2)))).code == 2


def test_a_broker_without_group_apis_is_ready_once_it_answers(serving: Serving, health: Tenure) -> None:
    assert health(serving(Broker(list_groups=None))).code == 0


@pytest.mark.parametrize(
    ("error", "message", "line"),
    [
        (14, None, "is loading"),
        (14, "12 of 50 offsets partitions", "is loading: 12 of 50 offsets partitions"),
        (14, "NONE", "is loading"),
        (15, "partition 7 (the disk is full)", "is suspended: partition 7 (the disk is full)"),
        (15, "NONE", "is suspended"),
        (0, "partition 7 (cannot be read)", "is not ready: partition 7 (cannot be read)"),
        (14, "\x1b[31m", r"is loading: '\x1b[31m'"),
        (15, "partition 7 (begins anew); defects: 2, last: X", "is suspended: partition 7 (begins anew); defects: 2, last: X"),
        (29, "not asked for", "is not ready: ListGroups is answered with error 29"),
        (-1, None, "is not ready: ListGroups is answered with error -1"),
    ],
)
def test_a_loading_broker_reports_its_progress(serving: Serving, error: int, message: str | None, line: str, health: Tenure) -> None:
    endpoint = serving(Broker(error, message=message))
    assert health(endpoint)[:2] == (2, f"{endpoint} {line}\n")


def test_wait_polls_until_the_broker_is_ready(serving: Serving, monkeypatch: pytest.MonkeyPatch, health: Tenure) -> None:
    monkeypatch.setattr("cli.health.PAUSE_SECONDS", 0.001)
    broker = Broker(14, 14, 0)
    assert health(serving(broker), "--wait", "10").code == 0
    assert sum(key == 16 for key, _, _ in broker.requests) == 3


def test_after_the_wait_the_last_reply_counts(serving: Serving, monkeypatch: pytest.MonkeyPatch, health: Tenure) -> None:
    monkeypatch.setattr("cli.health.PAUSE_SECONDS", 0.4)  # the least time that a probe gets
    result = health(serving(Broker(14)), "--wait", "1")
    assert result.code == 2
    assert len(result.out.splitlines()) == 1


def test_a_port_without_a_listener_is_exit_code_1(health: Tenure) -> None:
    with socket.create_server(("127.0.0.1", 0)) as blocker:
        port = blocker.getsockname()[1]
    assert health(f"127.0.0.1:{port}")[:2] == (1, f"127.0.0.1:{port} does not answer: connection refused (is a broker running there?)\n")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (keep_silent, "accepts connections, but does not answer within 0.2 s"),
        (answer_slowly, "accepts connections, but does not answer within 0.2 s"),
        (close, "does not answer"),
        (reset, "does not answer"),
        (answer_with(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "is a web server (HTTP), not a Kafka broker"),
        (answer_with(b"\x15\x03\x03\0\x02\x02\x0a\0"), "wants TLS: name a file with security.protocol=SSL, or SASL_SSL for a login, by --command-config (docs/secured.md)"),
        (answer_with(b"SSH-2.0-nobody\r\n"), "is not a Kafka broker: it sends 'SSH-2.0-nobody'"),
        (answer_with(b"\0\0"), "does not answer as Kafka: it closed the connection"),
        (answer_with(struct.pack(">iihi", 10, 1, 35, 0)), "does not answer as Kafka: ApiVersions is answered with error 35"),
        (answer_with(struct.pack(">iihi", 10, 1, 0, 2**31 - 1)), "does not answer as Kafka: its ApiVersions reply is too short"),
        (answer_with(struct.pack(">iihi", 10, 1, 0, -1)), "does not answer as Kafka: its ApiVersions reply is too short"),
        (answer_with(struct.pack(">iih", 6, 1, 0)), "does not answer as Kafka: its ApiVersions reply is too short"),
        (answer_with(struct.pack(">ii", 2**31 - 1, 1)), "does not answer as Kafka: a reply of 2147483643 bytes"),
        (answer_with(struct.pack(">ii", -1, 1)), "is not a Kafka broker: its answer is not in Kafka's protocol"),
    ],
)
def test_another_program_on_the_port_is_exit_code_1_within_the_timeout(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, answer: Serve, problem: str, health: Tenure
) -> None:
    monkeypatch.setattr("cli.health.PROBE_SECONDS", 0.2 if "within" in problem else 5)
    start = time.monotonic()
    result = health(serving(answer))
    assert result.code == 1
    assert time.monotonic() - start < 4
    assert problem in result.out


def test_a_host_name_without_an_address_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, health: Tenure) -> None:
    def unknown(*arguments: object, **options: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert health("kafka.example:9092")[:2] == (1, "kafka.example:9092 does not answer: unknown host name (Name or service not known)\n")


def test_name_resolution_is_limited_by_the_timeout(monkeypatch: pytest.MonkeyPatch, health: Tenure) -> None:
    answered = threading.Event()

    def slow(*arguments: object, **options: object) -> list[object]:
        answered.wait(20)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr("cli.health.PROBE_SECONDS", 0.05)
    start = time.monotonic()
    assert health("kafka.example:9092").code == 1
    assert time.monotonic() - start < 2
    answered.set()


def test_every_address_of_a_name_is_tried(serving: Serving, monkeypatch: pytest.MonkeyPatch, health: Tenure) -> None:
    with socket.create_server(("127.0.0.1", 0)) as blocker:
        nobody = blocker.getsockname()
    host, _, port = serving(Broker(0)).rpartition(":")
    entries = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in (nobody, (host, int(port)))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: entries)
    assert health("kafka.example:9092").code == 0


@pytest.mark.parametrize("target", ["http://localhost:9092", "localhost:99999", "localhost:0", ":9092"])
def test_a_malformed_target_is_a_usage_error(target: str, health: Tenure) -> None:
    result = health(target)
    assert result.code == 64
    assert result.err.startswith(f"tenure: '{target}'")


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Collects the addresses to which `tenure health` would connect."""
    endpoints: list[tuple[str, int]] = []

    def probe(host: str, port: int, seconds: float, security: object) -> tuple[int, str]:
        endpoints.append((host, port))
        return 0, "is ready"

    monkeypatch.setattr("cli.health.probe", probe)
    return endpoints


@pytest.mark.parametrize(
    ("listeners", "target"),
    [
        (None, ("127.0.0.1", 9092)),
        ("PLAINTEXT://0.0.0.0:9094", ("127.0.0.1", 9094)),
        ("PLAINTEXT://[::]:9094", ("::1", 9094)),
        ("PLAINTEXT://:9094", ("127.0.0.1", 9094)),
        ("INSIDE://10.0.0.5:9095,OUTSIDE://:9096", ("10.0.0.5", 9095)),
    ],
)
def test_the_default_target_is_the_configured_broker(
    monkeypatch: pytest.MonkeyPatch, configured: list[tuple[str, int]], listeners: str | None, target: tuple[str, int], health: Tenure
) -> None:
    if listeners:
        monkeypatch.setenv("TENURE_LISTENERS", listeners)
        names = [listener.partition("://")[0] for listener in listeners.split(",")]
        monkeypatch.setenv("TENURE_ADVERTISED_LISTENERS", ",".join(f"{name}://kafka.example:9092" for name in names))
    assert health().code == 0
    assert configured == [target]


def test_the_configuration_file_can_be_named(tmp_path: Path, configured: list[tuple[str, int]], health: Tenure) -> None:
    path = tmp_path / "tenure.toml"
    path.write_text('listeners = "PLAINTEXT://[::1]:9097"')
    assert health("--config", str(path)).code == 0
    assert configured == [("::1", 9097)]


@pytest.mark.parametrize(
    ("variable", "value", "code", "error"),
    [
        ("NUM_PARTITIONS", "none", 78, r"^tenure: num\.partitions=none \(environment TENURE_NUM_PARTITIONS\): must be"),
        ("PROFILE", "test", 64, "gets a free port at each start"),
        ("BOOTSTRAP", "kafka:0", 64, "^tenure: TENURE_BOOTSTRAP=kafka:0: 'kafka:0': the port must be 1 to 65535"),
    ],
)
def test_an_environment_without_a_usable_broker_is_an_error(
    variable: str, value: str, code: int, error: str, monkeypatch: pytest.MonkeyPatch, health: Tenure
) -> None:
    monkeypatch.setenv(f"TENURE_{variable}", value)
    result = health()
    assert result.code == code
    assert re.search(error, result.err)


# Several brokers, and for programs


def test_the_environment_and_bootstrap_name_brokers_as_for_other_commands(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, health: Tenure
) -> None:
    first, second = serving(Broker(0)), serving(Broker(0))
    assert health("--bootstrap", f"{first},{second}")[:2] == (0, f"{first} is ready\n{second} is ready\n")
    monkeypatch.setenv("TENURE_BOOTSTRAP", second)
    assert health()[:2] == (0, f"{second} is ready\n")
    assert health(first)[:2] == (0, f"{first} is ready\n")


def test_a_named_file_wins_over_the_environment(
    tmp_path: Path, configured: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, health: Tenure
) -> None:
    monkeypatch.setenv("TENURE_BOOTSTRAP", "kafka:1")
    path = tmp_path / "tenure.toml"
    path.write_text('listeners = "PLAINTEXT://[::1]:9097"')
    assert health("--config", str(path)).code == 0
    assert health().code == 0
    assert configured == [("::1", 9097), ("kafka", 1)]


@pytest.mark.parametrize(("errors", "code"), [((0, 14), 2), ((0, 0), 0)])
def test_the_exit_code_is_that_of_the_worst_broker(serving: Serving, errors: tuple[int, int], code: int, health: Tenure) -> None:
    assert health("--bootstrap", ",".join(serving(Broker(error)) for error in errors)).code == code


def test_an_unreachable_broker_decides_the_exit_code(serving: Serving, health: Tenure) -> None:
    assert health("--bootstrap", f"{serving(Broker(14))},127.0.0.1:1").code == 1


def test_health_is_printed_as_json(serving: Serving, health: Tenure) -> None:
    endpoint = serving(Broker(14, message="12 of 50\x1b[31m"))
    result = health("--json", endpoint)
    assert result.code == 2
    host, _, port = endpoint.rpartition(":")
    text = f"{endpoint} is loading: '12 of 50\\x1b[31m'"
    broker = {"host": host, "port": int(port), "ready": False, "answers": True, "defects": 0, "store": None, "text": text}
    error = {"code": "not-ready", "message": text, "hint": "--wait SECONDS waits until it is ready"}
    assert json.loads(result.out) == {"ready": False, "brokers": [broker], "error": error}


def test_a_web_server_that_waits_for_more_is_named(serving: Serving, health: Tenure) -> None:
    endpoint = serving(answer_as_web_server)
    assert health(endpoint, "--timeout", "1.5")[:2] == (1, f"{endpoint} is a web server (HTTP), not a Kafka broker\n")


def test_the_health_timeout_is_an_option(serving: Serving, health: Tenure) -> None:
    endpoint = serving(keep_silent)
    assert health(endpoint, "--timeout", "0.1")[:2] == (1, f"{endpoint} accepts connections, but does not answer within 0.1 s\n")
