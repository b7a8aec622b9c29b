"""Replies leave in the order of the requests, whichever path made them: over real sockets, all kinds of requests in one chunk."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from struct import pack

import pytest

from protocol.batch import Record, build
from tests.running import ANSWER_SECONDS, Broker, broker
from tests.support.headers import encode_request
from tests.support.peers import defects, serve_options
from tests.support.pipeliner import BATCH, LARGE, NO_REPLY, TOPIC, Pipeliner, producing
from tests.support.restartable import create_topic

pytestmark = pytest.mark.once  # no dependence on the Python version

PIPELINERS = 8  # connections, each with one chunk of requests in flight


@pytest.fixture(scope="module")
def ours() -> Iterator[Broker]:
    with broker(*serve_options("uvloop", "group.initial.rebalance.delay.ms=0")) as started:
        create_topic(started.port, TOPIC, 1)
        create_topic(started.port, LARGE, 1)
        with socket.create_connection(("127.0.0.1", started.port), ANSWER_SECONDS) as sock:
            large = producing(build([Record(0, 0, None, b"x" * 80_000)]), LARGE)
            sock.sendall(encode_request(0, 9, 1, "c", large.encode(9)))
            assert sock.recv(1000)
        yield started
        assert defects(started) == []


@pytest.fixture(scope="module")
def pipeliners(ours: Broker) -> Iterator[list[Pipeliner]]:
    opened = [Pipeliner(ours.port, f"seat-{number}", number) for number in range(PIPELINERS)]
    for pipeliner in opened:
        pipeliner.warm_up()
    yield opened
    for pipeliner in opened:
        pipeliner.sock.close()


KINDS = (
    "heartbeat", "commit", "fetch offsets", "join", "sync", "produce", NO_REPLY, "refused produce", "metadata", "versions", "newer versions",
    "coordinator", "list offsets", "fetch", "long poll", "long reply", "leave", "describe", "list groups",
)  # fmt: skip


def out_of_order(pipeliners: list[Pipeliner], chunks: Sequence[Sequence[str]], *, anew: bool = False, split: bool = False) -> list[object]:
    """The chunks whose replies arrived out of order."""
    wrong: list[object] = []
    for at in range(0, len(chunks), len(pipeliners)):
        batch = list(zip(pipeliners, chunks[at : at + len(pipeliners)], strict=False))
        for pipeliner, kinds in batch:
            if anew:
                pipeliner.connect_anew()
            pipeliner.send(kinds, split)
        for pipeliner, kinds in batch:
            replies = pipeliner.receive_replies()
            if replies:
                wrong.append((kinds, replies))
    return wrong


def test_replies_are_ordered_for_every_triple_of_requests_in_one_chunk(pipeliners: list[Pipeliner]) -> None:
    assert out_of_order(pipeliners, list(product(KINDS, repeat=3))) == []


def test_replies_are_ordered_for_chunks_ending_within_a_request(pipeliners: list[Pipeliner]) -> None:
    chunks = [[pipeliners[0].random.choice(KINDS) for _ in range(4)] for _ in range(400)]
    assert out_of_order(pipeliners, chunks, split=True) == []


def test_replies_are_ordered_for_more_requests_than_one_turn_processes(pipeliners: list[Pipeliner]) -> None:
    chunks = [[pipeliners[0].random.choice(KINDS) for _ in range(100)] for _ in range(40)]
    assert out_of_order(pipeliners, chunks) == []


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.clients)])
def test_replies_are_ordered_for_every_combination_without_fast_paths(pipeliners: list[Pipeliner], size: int) -> None:
    try:
        assert out_of_order(pipeliners, list(product(KINDS, repeat=size)), anew=True) == []
    finally:
        for pipeliner in pipeliners:
            pipeliner.warm_up()


# Malformed requests.

WITH_FAST_PATH = ("heartbeat", "commit", "fetch offsets", "join", "sync", "produce", NO_REPLY)
OVERLONG = b"\x80\x80\x80\x80\x80\x80\x01"  # a varint of more than five bytes


def corrupted(random: Random, frame: bytes) -> bytes:
    """The request with a defect; its length prefix is kept, adjusted, or wrong."""
    body = bytearray(frame[4:])
    at = random.randrange(8 if random.random() < 0.8 else 0, len(body))
    match random.randrange(6):
        case 0:
            body[at] ^= 1 << random.randrange(8)
        case 1:
            body[at : at + len(OVERLONG)] = OVERLONG
        case 2:
            body[at:at] = random.choice((OVERLONG, b"\xff", b"\0"))
        case 3:
            del body[at:]
        case 4:
            del body[at : at + random.randrange(1, 5)]
        case _:
            body += random.randbytes(random.randrange(1, 20))
    length = len(body) if random.random() < 0.9 else max(0, len(body) - random.randrange(1, 4))
    return pack(">i", length) + bytes(body)


def send_malformed(pipeliners: list[Pipeliner], random: Random, kind: str) -> None:
    """A malformed request between others: only the connection that sent it may be closed."""
    culprit, *bystanders = pipeliners
    frame = culprit.chunk([kind])
    wrong = corrupted(random, frame) if random.random() < 0.9 else corrupted(random, corrupted(random, frame))
    around = [culprit.chunk([random.choice(WITH_FAST_PATH) for _ in range(random.randrange(4))]) for _ in range(2)]
    half = len(bystanders) // 2
    for pipeliner in bystanders[:half]:
        pipeliner.send(random.choices(KINDS, k=3))
    culprit.sock.sendall(around[0] + wrong + around[1])
    for pipeliner in bystanders[half:]:
        pipeliner.send(random.choices(KINDS, k=3))
    for pipeliner in bystanders:
        assert pipeliner.receive_replies() == [], (kind, wrong)
    culprit.sock.close()
    culprit.unanswered.clear()
    culprit.connect_anew()


@pytest.mark.parametrize("kind", WITH_FAST_PATH)
def test_a_malformed_request_does_not_affect_other_connections(ours: Broker, pipeliners: list[Pipeliner], kind: str) -> None:
    random = Random(kind)
    culprit = pipeliners[0]
    for _ in range(40):
        for _ in range(3):
            culprit.send([kind])
            assert culprit.receive_replies() == []
        send_malformed(pipeliners, random, kind)
    culprit.warm_up()
    assert defects(ours) == []


def test_an_overlong_varint_in_a_repeated_produce_does_not_affect_other_connections(ours: Broker, pipeliners: list[Pipeliner]) -> None:
    """The chunk has more requests than one turn processes, so the malformed one is processed at the end of a turn, with later requests."""
    culprit, *bystanders = pipeliners
    for _ in range(3):
        culprit.send(["produce"])
        assert culprit.receive_replies() == []
    good = culprit.chunk(["produce"])
    at = good.index(BATCH)
    wrong = bytearray(good[4:])
    wrong[at - 5 : at - 4] = OVERLONG
    bystanders[0].send(["heartbeat"] * 200)
    culprit.sock.sendall(good * 40 + pack(">i", len(wrong)) + wrong + good)
    for pipeliner in bystanders[1:]:
        pipeliner.send(["heartbeat"] * 200)
    for pipeliner in bystanders:
        assert pipeliner.receive_replies() == []
    culprit.unanswered.clear()
    culprit.connect_anew()
    culprit.warm_up()
    assert defects(ours) == []
