"""A server of one topic with one partition, in memory and in threads: correct except for injected errors."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from struct import pack, unpack
from typing import Any, NamedTuple, cast

from bench.servers import Server
from protocol.apis import APIS
from protocol.messages import api_versions, create_topics, fetch, init_producer_id, metadata, produce
from tests.support.headers import decode_request_header, response_header_version

NAME = "kgdata-topic-0"
TOPIC_ID = b"one-topic-server"


class Port(NamedTuple):
    """The attributes of a server that the load generators use; here the server is a part of this process."""

    port: int
    pid: int = 0


class OneTopicServer:
    def __init__(
        self,
        error: int = 0,
        step: int = 1,
        partition: int = 0,
        topic_id: bytes = TOPIC_ID,
        at_once: bool = False,
        batch: Callable[[bytes], bytes] = lambda batch: batch,
    ) -> None:
        self._error, self._step, self._partition, self._topic_id, self._at_once, self._wrong = (
            error,
            step,
            partition,
            topic_id,
            at_once,
            batch,
        )
        self._log: list[bytes] = []  # batches of one record each
        self._next_offset = 0
        self._grown = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._handlers: dict[int, Callable[[Any], Any]] = {
            0: self._produce, 1: self._fetch, 3: self._metadata, 18: self._api_versions, 19: self._create_topics, 22: self._init_producer_id,
        }  # fmt: skip

    def __enter__(self) -> Server:
        threading.Thread(target=self._accept, daemon=True).start()
        return cast("Server", Port(self._listener.getsockname()[1]))

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as stream, suppress(OSError):
            while len(head := stream.read(4)) == 4:
                frame = stream.read(*unpack(">i", head))
                header, at = decode_request_header(frame)
                request, end = APIS[header.api_key].request.decode(frame, at, header.api_version)
                assert end == len(frame)
                reply = self._handlers[header.api_key](request).encode(header.api_version)
                tags = b"\0" * response_header_version(header.api_key, header.api_version)
                client.sendall(pack(">ii", 4 + len(tags) + len(reply), header.correlation_id) + tags + reply)

    def _produce(self, request: produce.ProduceRequest) -> produce.ProduceResponse:
        with self._grown:
            first = not self._log
            records = request.topic_data[0].partition_data[0].records or b""
            self._log.append(pack(">q", len(self._log)) + records[8:])
            self._grown.notify_all()
            part = produce.PartitionProduceResponse(
                0 if first else self._partition, 0 if first else self._error, self._next_offset, log_start_offset=0
            )
            self._next_offset += self._step
        return produce.ProduceResponse([produce.TopicProduceResponse(NAME, partition_responses=[part])])

    def _fetch(self, request: fetch.FetchRequest) -> fetch.FetchResponse:
        fetch_offset = request.topics[0].partitions[0].fetch_offset
        with self._grown:
            if not self._at_once:
                self._grown.wait_for(lambda: len(self._log) > fetch_offset, request.max_wait_ms / 1000)
            records = self._wrong(self._log[fetch_offset]) if fetch_offset < len(self._log) else b""
            part = fetch.PartitionData(0, self._error, len(self._log), records=records)
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(self._topic_id, partitions=[part])])

    def _metadata(self, request: object) -> metadata.MetadataResponse:
        part = metadata.MetadataResponsePartition(0, 0, 1, 0, [1], [1], [])
        return metadata.MetadataResponse(topics=[metadata.MetadataResponseTopic(0, NAME, TOPIC_ID, partitions=[part])])

    def _create_topics(self, request: object) -> create_topics.CreateTopicsResponse:
        return create_topics.CreateTopicsResponse(topics=[create_topics.CreatableTopicResult(NAME, error_code=36)])

    def _api_versions(self, request: object) -> api_versions.ApiVersionsResponse:
        return api_versions.ApiVersionsResponse(0, [api_versions.ApiVersion(key, 0, 20) for key in self._handlers])

    def _init_producer_id(self, request: object) -> init_producer_id.InitProducerIdResponse:
        return init_producer_id.InitProducerIdResponse(producer_id=1)
