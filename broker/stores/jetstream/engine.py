"""JetStream's API: create, describe, purge and delete streams, and read their messages by sequence. "The engine" is JetStream.

Any replica answers reads, and has only a prefix of the committed messages: a message that a replica returns is committed, but a message
that it lacks may exist.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from broker.runtime.contain import Contained
from broker.stores.jetstream.connection import Connection
from broker.stores.jetstream.wire import END_OF_BATCH, NO_RESPONDERS, NOT_FOUND, Message

API_PREFIX: Final = "$JS.API"
# JetStream's error codes.
WRONG_SEQUENCE: Final = (10071, 10070)  # wrong last sequence: of the stream, of the subject
STREAM_NOT_FOUND: Final = 10059
STREAM_EXISTS: Final = 10058
TOO_LARGE: Final = (10054, 10122)
STREAM_FULL: Final = 10077
REPLICAS_UNSUPPORTED: Final = 10074  # the server is not in a cluster

CREATE_SECONDS: Final = 6.0
CREATIONS_MAX: Final = 4  # at a time: the engine answers none of hundreds of simultaneous creations in time
BATCH_MESSAGES: Final = 512
BATCH_BYTES: Final = 4 << 20
STALL_SECONDS: Final = 1.5  # a read ends when no message arrives for this long


class EngineError(NamedTuple):
    """The engine's error. `code` 0: no reply, or a reply that leaves open whether the request was carried out."""

    code: int
    text: str


class StreamState(NamedTuple):
    messages: int
    first_seq: int
    last_seq: int
    bytes: int
    created: str
    leader_silent_seconds: float  # since a majority last confirmed the leader that sent this state


class StoredMessage(NamedTuple):
    seq: int
    subject: str
    payload: bytes
    headers: dict[str, str]


NO_ANSWER: Final = EngineError(0, "the engine does not answer")


def reply_of(message: Message | None) -> dict[str, Any] | EngineError:
    """The body of an API reply or of an acknowledgement."""
    if message is None or message.status:
        return NO_ANSWER
    try:
        body = json.loads(message.payload)
    except ValueError:
        return EngineError(0, "the engine's reply cannot be parsed")
    if not isinstance(body, dict):
        return EngineError(0, "the engine's reply cannot be parsed")
    error = body.get("error")
    if error:
        return EngineError(int(error.get("err_code", 0)), str(error.get("description", "")))
    return body


def last_sequence_of(error: EngineError) -> int:
    """The stream's last sequence, from the text of a refusal for a wrong sequence; -1: not in the text."""
    digits = error.text.rpartition(":")[2].strip()
    return int(digits) if digits.isdigit() else -1


def _leader_silent_seconds(info: dict[str, Any]) -> float:
    """Seconds since the leader heard from a majority. If long, it may have been replaced without noticing, and report an old state."""
    replicas = (info.get("cluster") or {}).get("replicas") or []
    ages = sorted(int(replica.get("active", 0)) for replica in replicas)
    return ages[(len(ages) + 1) // 2 - 1] / 1e9 if ages else 0.0


class Engine:
    """JetStream's API over one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._creating = 0
        self._to_create: deque[Callable[[], None]] = deque()

    def call(self, api: str, body: dict[str, Any], done: Callable[[dict[str, Any] | EngineError], None], seconds: float = 2.0) -> None:
        self.connection.request(f"{API_PREFIX}.{api}", json.dumps(body).encode() if body else b"", lambda message: done(reply_of(message)), seconds=seconds)

    def create(self, name: str, subject: str, replicas: int, settings: dict[str, Any], done: Callable[[EngineError | None], None]) -> None:
        """Create the stream; done(None) also if it exists."""
        config = {
            "name": name, "subjects": [subject], "retention": "limits", "storage": "file", "num_replicas": replicas, "discard": "new",
            "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_age": 0, "max_msg_size": -1, "max_msgs_per_subject": -1,
            "allow_direct": True, "deny_delete": True, "deny_purge": False, "duplicate_window": 0, **settings,
        }

        def created(body: dict[str, Any] | EngineError) -> None:
            self._creating -= 1
            self._create_next()
            done(body if isinstance(body, EngineError) and body.code != STREAM_EXISTS else None)

        self._to_create.append(partial(self.call, f"STREAM.CREATE.{name}", config, created, CREATE_SECONDS))
        self._create_next()

    def _create_next(self) -> None:
        if self._to_create and self._creating < CREATIONS_MAX:
            self._creating += 1
            self._to_create.popleft()()

    def info(self, name: str, done: Callable[[StreamState | EngineError], None]) -> None:
        def answered(body: dict[str, Any] | EngineError) -> None:
            if isinstance(body, EngineError):
                done(body)
                return
            state = body.get("state", {})
            messages, first, last, size = (int(state.get(name, 0)) for name in ("messages", "first_seq", "last_seq", "bytes"))
            done(StreamState(messages, first, last, size, str(body.get("created", "")), _leader_silent_seconds(body)))

        self.call(f"STREAM.INFO.{name}", {}, answered)

    def names(self, subject: str, done: Callable[[list[str] | EngineError], None], offset: int = 0) -> None:
        """The names of all streams whose subject matches."""

        def answered(body: dict[str, Any] | EngineError) -> None:
            if isinstance(body, EngineError):
                done(body)
                return
            stream_names = [str(name) for name in body.get("streams") or []]
            total = int(body.get("total", 0))
            if stream_names and offset + len(stream_names) < total:
                self.names(subject, lambda more: done(more if isinstance(more, EngineError) else stream_names + more), offset + len(stream_names))
            else:
                done(stream_names)

        self.call("STREAM.NAMES", {"subject": subject, "offset": offset}, answered)

    def purge(self, name: str, before_seq: int, done: Callable[[EngineError | None], None]) -> None:
        """Delete the messages before `before_seq`."""
        self.call(f"STREAM.PURGE.{name}", {"seq": before_seq}, lambda body: done(body if isinstance(body, EngineError) else None), CREATE_SECONDS)

    def delete(self, name: str, done: Callable[[EngineError | None], None]) -> None:
        """Delete the stream; done(None) also if it does not exist."""

        def deleted(body: dict[str, Any] | EngineError) -> None:
            done(body if isinstance(body, EngineError) and body.code != STREAM_NOT_FOUND else None)

        self.call(f"STREAM.DELETE.{name}", {}, deleted, CREATE_SECONDS)

    def get(self, name: str, seq: int, done: Callable[[StoredMessage | EngineError], None]) -> None:
        """Read the message at this sequence; EngineError(404) if the replica that answers does not have it."""

        def got(message: Message | None) -> None:
            if message is None or message.status == NO_RESPONDERS:
                done(NO_ANSWER)
            elif message.status:
                done(EngineError(message.status, "no such message"))
            else:
                done(stored(message))

        self.connection.request(f"{API_PREFIX}.DIRECT.GET.{name}", json.dumps({"seq": seq}).encode(), got)

    def read(self, name: str, seq: int, on_message: Callable[[StoredMessage], None], ended: Callable[[EngineError | None], None], **limits: Any) -> BatchRead:
        """Read one batch of messages from the sequence on; `ended` is called after the last one."""
        return BatchRead(self.connection, name, {"seq": seq, "batch": BATCH_MESSAGES, "max_bytes": BATCH_BYTES, **limits}, on_message, ended)


def stored(message: Message) -> StoredMessage:
    return StoredMessage(int(message.header("Nats-Sequence") or 0), message.header("Nats-Subject"), message.payload, message.headers or {})


class BatchRead:
    """A read of several messages of a stream."""

    def __init__(
        self, connection: Connection, name: str, request: dict[str, Any], on_message: Callable[[StoredMessage], None], ended: Callable[[EngineError | None], None]
    ) -> None:
        self._on_message = on_message
        self._ended = ended
        self._stopped = False
        self._arrived = False
        self._loop = connection.loop
        self._forget = connection.request_many(f"{API_PREFIX}.DIRECT.GET.{name}", json.dumps(request).encode(), self._receive)
        self._timer = self._loop.call_later(STALL_SECONDS, Contained(self._check_stall, self._defect))

    def _check_stall(self) -> None:
        if self._stopped:
            return
        if not self._arrived:
            self._end(NO_ANSWER)
            return
        self._arrived = False
        self._timer = self._loop.call_later(STALL_SECONDS, Contained(self._check_stall, self._defect))

    def _defect(self) -> None:
        self._end(NO_ANSWER)

    def _receive(self, message: Message) -> None:
        if self._stopped:
            return
        self._arrived = True
        if message.status == END_OF_BATCH or message.status == NOT_FOUND:
            self._end(None)
        elif message.status:
            self._end(NO_ANSWER if message.status == NO_RESPONDERS else EngineError(message.status, "the engine refuses to read"))
        else:
            self._on_message(stored(message))

    def _end(self, result: EngineError | None) -> None:
        self.stop()
        self._ended(result)

    def stop(self) -> None:
        self._stopped = True
        self._timer.cancel()
        self._forget()

