"""Brokers with scripted answers, and a proxy that limits a started broker to the API versions of an old Kafka."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from struct import pack, unpack
from typing import Any

from cli.client.releases import first_release_with
from protocol.apis import API_VERSIONS, APIS
from protocol.errors import ProtocolError
from protocol.message import Message
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.messages.find_coordinator import FindCoordinatorResponse
from protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.support.headers import decode_request_header, encode_response, response_header_version

# The APIs of Apache Kafka 2.4 that this project knows.
KAFKA_2_4 = {
    0: (0, 8), 1: (0, 11), 2: (0, 5), 3: (0, 9), 8: (0, 8), 9: (0, 6), 10: (0, 3), 11: (0, 6), 12: (0, 4), 13: (0, 4), 14: (0, 4), 15: (0, 5),
    16: (0, 3), 17: (0, 1), 18: (0, 3), 19: (0, 5), 20: (0, 4), 21: (0, 1), 22: (0, 2), 23: (0, 3), 24: (0, 1), 25: (0, 1), 26: (0, 1),
    28: (0, 2), 29: (0, 1), 32: (0, 2), 33: (0, 1), 35: (0, 1), 37: (0, 1), 42: (0, 2), 44: (0, 1), 47: (0, 0),
}  # fmt: skip

Answer = Callable[[Any, int], Message | bytes | None]
Versions = Mapping[int, tuple[int, int]]


class Close(Exception):
    """Raised by an answer to make the fake broker close the connection."""


class Listener:
    """A port with one serving thread for each connection."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, 0), family=family)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Close all open connections."""
        while self.connections:
            connection = self.connections.pop()
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, EOFError, ProtocolError, Close):  # the peer closed the connection, or sent an invalid request
            self.serve(connection)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    def serve(self, connection: socket.socket) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class FakeBroker(Listener):
    """A broker that replies with `answers[API key](request, version)`; None: no reply. `requests` records all requests but ApiVersions."""

    def __init__(self, answers: Mapping[int, Answer] | None = None, *, host: str = "127.0.0.1", versions: Versions | None = None) -> None:
        self.answers: dict[int, Answer] = dict(answers or {})
        self._offered_versions = versions
        self.requests: list[tuple[Message, int]] = []
        super().__init__(host)

    @property
    def versions(self) -> Versions:
        return {key: APIS[key].served for key in (API_VERSIONS, *self.answers)} if self._offered_versions is None else self._offered_versions

    def serve(self, connection: socket.socket) -> None:
        while True:
            frame = read_frame(connection)
            header, at = decode_request_header(frame)
            key, version = header.api_key, header.api_version
            request, _ = APIS[key].request.decode(frame, at, version)
            if key == API_VERSIONS and key not in self.answers:
                reply: Message | bytes | None = ApiVersionsResponse(api_keys=[ApiVersion(key, *span) for key, span in self.versions.items()])
            else:
                if key != API_VERSIONS:
                    self.requests.append((request, version))
                reply = self.answers[key](request, version)
            if reply is not None:
                body = reply if isinstance(reply, bytes) else reply.encode(version)
                connection.sendall(encode_response(key, version, header.correlation_id, body))


def metadata_of(*brokers: FakeBroker, controller: int = 0, topics: Callable[[Any], list[Any]] = lambda request: []) -> Answer:
    """An answer to Metadata: a cluster of these brokers, with their positions as ids."""

    def answer(request: Any, version: int) -> Message:
        entries = [MetadataResponseBroker(number, broker.host, broker.port) for number, broker in enumerate(brokers)]
        return MetadataResponse(brokers=entries, cluster_id="fake", controller_id=controller, topics=topics(request))

    return answer


class OldCluster(Listener):
    """A proxy that offers only `versions`, and closes the connection at a request of any other version. `requests`: key and version of each request."""

    def __init__(self, bootstrap: str, versions: Versions) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._broker = (host, int(port))
        self.versions = versions
        self.requests: list[tuple[int, int]] = []
        super().__init__()

    def serve(self, connection: socket.socket) -> None:
        with socket.create_connection(self._broker, 10) as broker:
            while True:
                frame = read_frame(connection)
                key, version, correlation_id = unpack(">hhi", frame[:8])
                oldest, newest = self.versions.get(key, (0, -1))
                if key != API_VERSIONS and not oldest <= version <= newest:
                    self.requests.append((key, version))
                    raise Close
                if key == API_VERSIONS and version > newest:
                    connection.sendall(frame_of(pack(">i", correlation_id) + ApiVersionsResponse(error_code=35).encode(0)))
                    continue
                self.requests.append((key, version))
                broker.sendall(frame_of(frame))
                reply = read_frame(broker)
                connection.sendall(self._changed(reply, key, version, correlation_id))

    def _changed(self, reply: bytes, key: int, version: int, correlation_id: int) -> bytes:
        """Reduce the versions in a reply to ApiVersions, and replace the broker's address by that of the proxy."""
        message, _ = APIS[key].response.decode(reply, 4 + response_header_version(key, version), version)
        match message:
            case ApiVersionsResponse():
                message.api_keys = [
                    ApiVersion(entry.api_key, max(entry.min_version, oldest), min(entry.max_version, newest))
                    for entry in message.api_keys
                    for oldest, newest in [self.versions.get(entry.api_key, (0, -1))]
                    if max(entry.min_version, oldest) <= min(entry.max_version, newest)
                ]
            case MetadataResponse():
                for broker in message.brokers:
                    broker.host, broker.port = self.host, self.port
            case FindCoordinatorResponse():
                entries: list[Any] = [*message.coordinators] or [message]
                for endpoint in entries:
                    if endpoint.port > 0:
                        endpoint.host, endpoint.port = self.host, self.port
            case _:
                return frame_of(reply)
        return encode_response(key, version, correlation_id, message.encode(version))


def versions_of(release: tuple[int, int]) -> Versions:
    """The API versions of a Kafka release, of the APIs that this project implements."""
    if release == (2, 4):
        return KAFKA_2_4
    ranges = {}
    for key, api in APIS.items():
        served = [version for version in range(api.served[0], api.served[1] + 1) if first_release_with(key, version) <= release]
        if served:
            ranges[key] = (served[0], served[-1])
    return ranges


@contextmanager
def old_cluster(bootstrap: str, release: tuple[int, int] = (2, 4)) -> Iterator[OldCluster]:
    """The broker at `bootstrap` with only the API versions of that release of Kafka; `.address` is its HOST:PORT."""
    with OldCluster(bootstrap, versions_of(release)) as cluster:
        yield cluster


def read_frame(connection: socket.socket) -> bytes:
    (size,) = unpack(">i", exactly(connection, 4))
    return exactly(connection, size)


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def frame_of(body: bytes) -> bytes:
    return pack(">i", len(body)) + body
