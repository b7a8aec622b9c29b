"""A byte stream is split into the same frames in any chunks, and memory is allocated only for received bytes."""

from __future__ import annotations

import time
import tracemalloc
from struct import Struct

import pytest

from protocol.errors import ProtocolError
from protocol.framing import PART_BYTES_MIN, Framer

LENGTH = Struct(">i")
LIMIT = 100 * 1024 * 1024


def stream(frames: list[bytes]) -> bytes:
    return b"".join(framed(frames))


def framed(frames: list[bytes]) -> list[bytes]:
    return [LENGTH.pack(len(frame)) + frame for frame in frames]


def fed(framer: Framer, *chunks: bytes) -> list[bytes]:
    return [frame for chunk in chunks for frame in framer.feed(chunk)]


def test_a_stream_cut_at_any_two_places_gives_the_same_frames() -> None:
    frames = [b"first", b"", b"x" * 9, b"", b"", b"last"]
    data = stream(frames)
    for cut in range(len(data) + 1):
        for second_cut in range(cut, len(data) + 1):
            assert fed(Framer(LIMIT), data[:cut], data[cut:second_cut], data[second_cut:]) == framed(frames)


def test_a_stream_byte_by_byte_gives_each_frame_with_its_last_byte() -> None:
    framer = Framer(LIMIT)
    frames_of_bytes = [framer.feed(bytes([byte])) for byte in stream([b"ab", b"", b"c"])]
    assert frames_of_bytes == [[]] * 5 + [framed([b"ab"])] + [[]] * 3 + [framed([b""])] + [[]] * 4 + [framed([b"c"])]


@pytest.mark.parametrize("chunk_bytes", [7, PART_BYTES_MIN - 1, PART_BYTES_MIN, PART_BYTES_MIN + 1, 3 * PART_BYTES_MIN])
def test_frames_of_many_parts_are_joined_in_order(chunk_bytes: int) -> None:
    """Chunks shorter than PART_BYTES_MIN are merged."""
    frames = [bytes(n % 251 for n in range(size)) for size in (20 * PART_BYTES_MIN, 1, 0, 5 * PART_BYTES_MIN + 7)]
    data = stream(frames)
    framer = Framer(LIMIT)
    assert fed(framer, *[data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]) == framed(frames)
    assert framer.pending == 0


def test_every_complete_frame_of_a_chunk_is_returned_at_once() -> None:
    framer = Framer(LIMIT)
    frames = [b"%d" % n for n in range(1_000)]
    assert framer.feed(stream(frames) + b"\0\0\0\2z") == framed(frames)
    assert framer.feed(b"") == []
    assert framer.feed(b"y\0") == framed([b"zy"])
    assert framer.feed(b"\0\0\1!") == framed([b"!"])


def test_a_frame_of_the_largest_size_is_read_and_one_byte_more_refused() -> None:
    assert fed(Framer(7), b"\0\0\0\7", b"seven!!") == framed([b"seven!!"])
    with pytest.raises(ProtocolError, match=r"8 bytes, allowed are 0 to 7 \(socket.request.max.bytes\)"):
        Framer(7).feed(b"\0\0\0\x08")


@pytest.mark.parametrize("length", [-1, -(1 << 31), LIMIT + 1, (1 << 31) - 1, 0x47455420])
def test_an_impossible_frame_length_is_refused_at_its_fourth_byte(length: int) -> None:
    packed = LENGTH.pack(length)
    for before in (b"", stream([b"a frame"])):
        framer = Framer(LIMIT)
        framer.feed(before + packed[:3])
        with pytest.raises(ProtocolError, match=f"{length} bytes"):
            framer.feed(packed[3:])


def test_a_frame_of_100_mb_needs_memory_only_for_what_has_arrived() -> None:
    tracemalloc.start()
    try:
        framer = Framer(LIMIT)
        assert framer.feed(LENGTH.pack(LIMIT) + b"only this") == []
        assert tracemalloc.get_traced_memory()[1] < 10_000
        chunk = bytes(65_536)
        for _ in range(16):
            assert framer.feed(chunk[:1] + chunk[1:]) == []
        assert tracemalloc.get_traced_memory()[1] < 20 * 65_536
    finally:
        tracemalloc.stop()


@pytest.mark.alone
def test_a_large_frame_in_small_chunks_is_not_copied_with_every_chunk() -> None:
    """Copying at each of 512 chunks would copy 16 MiB each time on average. The time limit is a multiple of that of a single join."""
    chunks = [bytes(65_536)] * 512
    framer = Framer(LIMIT)
    begun = time.process_time()
    joined = b"".join(chunks)
    join_s = time.process_time() - begun
    framer.feed(LENGTH.pack(len(joined)))
    begun = time.process_time()
    assert fed(framer, *chunks) == framed([joined])
    assert time.process_time() - begun < 20 * max(join_s, 0.005)


def test_the_framer_buffers_at_most_the_incomplete_frame() -> None:
    """Frames before the incomplete frame were returned and take no memory."""
    framer = Framer(LIMIT)
    tracemalloc.start()
    try:
        for n in range(300):
            data = stream([b"x" * 10_000] * 2)
            framer.feed(data[: 10_004 + n])
            framer.feed(data[10_004 + n :])
            assert framer.pending == 0
        del data
        assert tracemalloc.get_traced_memory()[0] < 5_000
    finally:
        tracemalloc.stop()


def test_a_frame_that_trickles_in_costs_its_size_not_its_chunks() -> None:
    framer = Framer(LIMIT)
    framer.feed(LENGTH.pack(1 << 20))
    tracemalloc.start()
    try:
        for n in range(100_000):
            framer.feed(b"%02d" % (n % 100))
        assert framer.pending == 4 + 200_000
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()
