"""A client for the pipeline: fetches offsets and batches from leaders, and retries while brokers restart or leaders move.

It joins no group and commits nothing. A client belongs to one task in one thread.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import closing
from struct import Struct, pack
from typing import Any, Final, NamedTuple

from pipeline.inputs import LOGS, WIRE, BadInput, NoAnswer, NotLetIn
from protocol.apis import API_VERSIONS, APIS
from protocol.errors import RETRIABLE, ErrorCode, ProtocolError
from protocol.headers import encode_request, skip_response_header
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from secured import probing
from secured.errors import AccessError, Cause
from secured.opening import open_channel
from secured.security import OPEN, Security

CLIENT_ID: Final = "tenure-analyze"
TIMEOUT_S: Final = 60.0  # enough for a restart of a broker or a leader election
UNKNOWN_S: Final = 10.0  # for an address that has never answered and may be wrong
PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 2.0
REPLY_S: Final = 30.0
REPLY_BYTES_MAX: Final = 1 << 28
FETCH_BYTES: Final = 4 << 20
FETCH_WAIT_MS: Final = 200
EARLIEST: Final = -2
LATEST: Final = -1
COMMITTED: Final = 1  # isolation level: without open transactions
UNCOMMITTED: Final = 0  # isolation level: all records
NO_BROKER: Final = -1
BROKER_RESOURCE: Final = 4  # the resource type of brokers in DescribeConfigs
PORT: Final = 9092

UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
_size: Final = Struct(">i")


class Retriable(Exception):
    """A retriable error; another broker may lead now."""


class Partition(NamedTuple):
    leader: int
    topic_id: bytes


class Connection:
    """A connection to one broker. The client closes it after any failure, so that no late reply is read as another's."""

    def __init__(self, host: str, port: int, security: Security = OPEN) -> None:
        self._address = (host, port)
        self._answered = 0  # requests
        self._security = security
        self._correlation = 0
        self._ends_at: float | None = None  # when the session of the login is to be renewed, by a new connection
        self.versions: dict[int, tuple[int, int]] = {}
        deadline = time.monotonic() + REPLY_S
        try:
            self._channel = open_channel(host, port, deadline, security, _dial)
        except AccessError as error:
            raise self._not_let_in(error) from None
        except ConnectionResetError as error:
            if security.tls is not None and probing.speaks_kafka(self._dial_again, deadline):
                raise self._not_let_in(probing.no_tls()) from None
            raise error from None
        try:
            reply = self._exchange(ApiVersionsRequest(CLIENT_ID, "1"), 3)
            if reply.error_code == ErrorCode.UNSUPPORTED_VERSION:
                reply = self._exchange(ApiVersionsRequest(), 0)
            self.versions = {api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in reply.api_keys}
            if security.sasl is not None:
                self._log_in(deadline)
        except BaseException:
            self.close()
            raise

    def _log_in(self, deadline: float) -> None:
        from secured.sasl import OtherMechanism, log_in

        assert self._security.sasl is not None
        try:
            renewed_after = log_in(self._security.sasl, self._bare_exchange, self.versions, deadline)
        except AccessError as error:
            raise self._not_let_in(error) from None
        except OtherMechanism:
            raise Retriable("the broker offers another mechanism") from None
        self._ends_at = None if renewed_after is None else time.monotonic() + renewed_after

    def _not_let_in(self, error: AccessError) -> NotLetIn:
        return NotLetIn(f"{self._address[0]}:{self._address[1]} {error.line}" if error.about_broker else error.line, error)

    @property
    def expired(self) -> bool:
        """Whether the login ends soon: then the broker closes the connection at the next request."""
        return self._ends_at is not None and time.monotonic() >= self._ends_at

    def close(self) -> None:
        self._channel.close()

    def request(self, request: Any) -> Any:
        oldest, newest = self.versions.get(request.API_KEY, (0, -1))
        version = min(newest, request.VERSIONS[1])
        if version < max(oldest, request.VERSIONS[0]):
            raise BadInput(f"the broker serves {type(request).__name__} in versions {oldest} to {newest}, which Tenure does not know")
        return self._exchange(request, version)

    def _exchange(self, request: Any, version: int) -> Any:
        key, flexible_from = request.API_KEY, request.FLEXIBLE_FROM
        self._correlation += 1
        body = self._send_and_receive(encode_request(key, version, version >= flexible_from, self._correlation, CLIENT_ID, request.encode(version)))
        if key == API_VERSIONS and body[4:6] == UNSUPPORTED_VERSION:
            version = 0  # an error reply always has version 0
        at = skip_response_header(key, version >= flexible_from, body, 4)
        return APIS[key].response.decode(body, at, version)[0]

    def _bare_exchange(self, key: int, version: int, body: bytes) -> bytes:
        """Send a request whose codec is not in `protocol`; returns the body of its reply."""
        self._correlation += 1
        client_id = CLIENT_ID.encode()
        frame = pack(">hhih", key, version, self._correlation, len(client_id)) + client_id + body
        return self._send_and_receive(_size.pack(len(frame)) + frame)[4:]

    def _send_and_receive(self, frame: bytes) -> bytes:
        """The reply, from its correlation id on."""
        deadline = time.monotonic() + REPLY_S
        try:
            self._channel.send(frame, deadline)
            (size,) = _size.unpack(self._channel.receive_exactly(_size.size, deadline))
            if not 4 <= size <= REPLY_BYTES_MAX:
                if probing.is_tls(_size.pack(size)):
                    raise self._not_let_in(probing.wants_tls())
                raise ProtocolError("not a reply of a Kafka broker")
            body = self._channel.receive_exactly(size, deadline)
        except EOFError:
            raise self._cut(ConnectionError("the connection was closed"), deadline) from None
        except OSError as error:
            raise self._cut(error, deadline) from error
        self._answered += 1
        if _size.unpack_from(body)[0] != self._correlation:
            raise ProtocolError("a reply to another request")
        return body

    def _cut(self, error: OSError, deadline: float) -> Exception:
        """Why the connection was closed: at its first requests a listener wants TLS, a client certificate or a login."""
        tls, refusal = self._security.tls, None
        if isinstance(error, TimeoutError) or self._answered > 1:
            return error
        if tls is not None:
            from secured.tls import alert_in_words

            reason = alert_in_words(error, tls)
            refusal = reason if isinstance(reason, AccessError) else None
        elif not self._answered and probing.speaks_tls(self._dial_again, deadline):
            refusal = probing.wants_tls()
        if refusal is None and self._answered and self._security.sasl is None:
            mechanisms = probing.sasl_mechanisms(lambda until: open_channel(*self._address, until, self._security, _dial), deadline)
            refusal = None if mechanisms is None else probing.wants_login(mechanisms)
        return error if refusal is None else self._not_let_in(refusal)

    def _dial_again(self, deadline: float) -> socket.socket:
        return _dial(*self._address, deadline)


def _dial(host: str, port: int, deadline: float) -> socket.socket:
    return socket.create_connection((host, port), max(0.001, deadline - time.monotonic()))


_read: dict[str, tuple[tuple[int, int, int], Security]] = {}  # by the file's path: its state when it was read


def security_in(path: str) -> Security:
    """The settings in a file, read again when it changes: a token lasts for several connections. Raises NotLetIn."""
    if not path:
        return OPEN
    from secured.settings import load

    try:
        status = os.stat(path)
        state = (status.st_mtime_ns, status.st_size, status.st_ino)
    except OSError:
        state = (0, 0, 0)
    known = _read.get(path)
    if known is None or known[0] != state:
        try:
            known = _read[path] = (state, load(path))
        except AccessError as error:
            raise NotLetIn(error.line, error) from None
    return known[1]


class Client:
    def __init__(self, source: str, timeout_s: float = TIMEOUT_S, *, config: str = "", reached_before: bool = False) -> None:
        """`source`: kafka://host:port, several separated by commas. `config`: the file with the settings for a secured cluster. `reached_before`:
        another client has reached the cluster, so the first requests are retried for the whole `timeout_s`. Raises BadInput."""
        self.source = source
        self._security = security_in(config)
        self._timeout_s = timeout_s
        self._reached_before = reached_before
        self._bootstrap = [_address(text, source) for text in source.removeprefix(WIRE).rstrip("/").split(",")]
        self._connections: dict[int, Connection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._partitions: dict[tuple[str, int], Partition] = {}
        self.cluster = ""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        for number in list(self._connections):
            self._close_connection(number)

    # Requests

    def logs(self, topics: tuple[str, ...]) -> list[tuple[str, int]]:
        """The existing partitions of these topics."""
        self._retry(lambda: self._load_metadata(topics), "its metadata")
        return sorted(self._partitions)

    def offset(self, topic: str, partition: int, at: int, isolation: int = UNCOMMITTED) -> int:
        """The log start offset (`at` EARLIEST), or the end offset (`at` LATEST); with `isolation` COMMITTED the last stable offset."""
        request = ListOffsetsRequest(-1, isolation, [ListOffsetsTopic(topic, [ListOffsetsPartition(partition, timestamp=at)])])

        def attempt() -> int:
            partition_reply = self._leader(topic, partition).request(request).topics[0].partitions[0]
            _check(partition_reply.error_code, f"{topic}-{partition}")
            return int(partition_reply.offset)

        return int(self._retry(attempt, f"{topic}-{partition}", topic, partition))

    def ends(self, topics: tuple[str, ...]) -> dict[tuple[str, int], tuple[int | None, int]]:
        """The start and end offset of each partition of these topics, without partitions that have no leader or an error."""
        self._retry(lambda: self._load_metadata(topics, lenient=True), "its metadata")
        of_leader: dict[int, dict[str, list[int]]] = {}
        for (topic, partition), known in sorted(self._partitions.items()):
            if topic in topics and known.leader in self._brokers:
                of_leader.setdefault(known.leader, {}).setdefault(topic, []).append(partition)
        offsets_by_time: dict[int, dict[tuple[str, int], int]] = {EARLIEST: {}, LATEST: {}}
        for places in of_leader.values():
            for at, offsets in offsets_by_time.items():
                requested = [ListOffsetsTopic(topic, [ListOffsetsPartition(number, timestamp=at) for number in numbers]) for topic, numbers in places.items()]
                for topic_reply in self._request_from_leader(ListOffsetsRequest(-1, UNCOMMITTED, requested), next(iter(places)), places[next(iter(places))][0]).topics:
                    offsets.update({(topic_reply.name, partition.partition_index): partition.offset for partition in topic_reply.partitions if not partition.error_code})
        return {place: (offsets_by_time[EARLIEST].get(place), end) for place, end in sorted(offsets_by_time[LATEST].items())}

    def broker_setting(self, name: str) -> str:
        """The value of a setting of one broker of the cluster."""
        self._retry(lambda: self._load_metadata(()), "its metadata")

        def attempt() -> str:
            number, address = min(self._brokers.items())
            with closing(Connection(*address, self._security)) as connection:
                (result,) = connection.request(DescribeConfigsRequest([DescribeConfigsResource(BROKER_RESOURCE, str(number), [name])])).results
            _check(result.error_code, f"the setting {name}")
            (setting,) = result.configs or [None]
            if setting is None or setting.value is None:
                raise BadInput(f"{self.source}: the broker does not tell its setting {name}")
            return str(setting.value)

        return str(self._retry(attempt, f"the setting {name}"))

    def _request_from_leader(self, request: Any, topic: str, partition: int) -> Any:
        return self._retry(lambda: self._leader(topic, partition).request(request), f"the end offsets of {topic}")

    def fetch(self, topic: str, partition: int, offset: int) -> PartitionData:
        """Fetch records, also those of open and aborted transactions. The caller handles OFFSET_OUT_OF_RANGE; other errors are retried or raise BadInput."""

        def attempt() -> PartitionData:
            leader = self._leader(topic, partition)
            fetch_partition = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
            topics = [FetchTopic(self._partitions[topic, partition].topic_id, topic, [fetch_partition])]
            request = FetchRequest(
                max_wait_ms=FETCH_WAIT_MS, min_bytes=1, max_bytes=FETCH_BYTES, isolation_level=UNCOMMITTED, session_epoch=-1, topics=topics
            )
            reply = leader.request(request)
            _check(reply.error_code, f"{topic}-{partition}")
            fetched: PartitionData = reply.responses[0].partitions[0]
            if fetched.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
                _check(fetched.error_code, f"{topic}-{partition}")
            return fetched

        fetched: PartitionData = self._retry(attempt, f"{topic}-{partition}", topic, partition)
        return fetched

    # Retries and connections

    def _retry(self, attempt: Any, what: str, topic: str = "", partition: int = 0) -> Any:
        """Retry until a reply arrives or the deadline passes."""
        began = time.monotonic()
        pause = PAUSE_S
        while True:
            try:
                if topic and (topic, partition) not in self._partitions:
                    self._load_metadata(tuple(LOGS))
                return attempt()
            except (OSError, ProtocolError, Retriable) as error:
                known = self._partitions.pop((topic, partition), None)
                if known is not None and not isinstance(error, Retriable):
                    self._close_connection(known.leader)
                timeout_s = self._timeout_s if self._reached_before or self._brokers else min(self._timeout_s, UNKNOWN_S)
                if time.monotonic() + pause > began + timeout_s:
                    reason = getattr(error, "strerror", None) or str(error) or "no answer"
                    raise NoAnswer(f"{self.source}: {what}: {reason} (tried for {timeout_s:.0f} s)") from None
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)

    def _load_metadata(self, topics: tuple[str, ...], *, lenient: bool = False) -> None:
        """Load brokers and partitions. `lenient`: ignore topics with an error."""
        reply = self._any_broker().request(MetadataRequest([MetadataRequestTopic(name=name) for name in topics], False))
        if not reply.brokers:
            raise Retriable("the cluster has no brokers yet")
        self.cluster = reply.cluster_id or self.cluster
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in reply.brokers}
        for topic in reply.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or (lenient and topic.error_code):
                continue
            _check(topic.error_code, topic.name or "")
            for partition in topic.partitions:
                self._partitions[topic.name or "", partition.partition_index] = Partition(partition.leader_id, topic.topic_id)

    def _leader(self, topic: str, partition: int) -> Connection:
        known = self._partitions.get((topic, partition))
        if known is None or known.leader not in self._brokers:
            raise Retriable("no broker leads it at the moment")
        if known.leader in self._connections and self._connections[known.leader].expired:
            self._close_connection(known.leader)
        if known.leader not in self._connections:
            self._connections[known.leader] = Connection(*self._brokers[known.leader], self._security)
        return self._connections[known.leader]

    def _any_broker(self) -> Connection:
        """A new connection to any broker: metadata is requested after errors, so the old connection may be broken."""
        self._close_connection(NO_BROKER)
        failure: Exception = Retriable("no address")
        for address in [*self._bootstrap, *self._brokers.values()]:
            try:
                self._connections[NO_BROKER] = Connection(*address, self._security)
                return self._connections[NO_BROKER]
            except (OSError, ProtocolError) as error:
                failure = error
            except NotLetIn as error:
                if error.reason.cause != Cause.LISTENER:
                    raise
                failure = error
        raise failure

    def _close_connection(self, number: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is not None:
            connection.close()


def _check(code: int, description: str) -> None:
    if not code:
        return
    name = ErrorCode(code).name if code in list(ErrorCode) else str(code)
    if code in RETRIABLE or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise Retriable(f"{description}: {name}")
    raise BadInput(f"{description}: the broker refuses with {name}")


def _address(text: str, source: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":") if ":" in text and not text.endswith("]") else (text, ":", str(PORT))
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise BadInput(f"{source}: write kafka://HOST:PORT, several separated by commas")
    return host.strip("[]"), int(port)
