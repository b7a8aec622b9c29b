"""The codecs of record batches: round trips; other data gives a ProtocolError, or bytes within the limit."""

from __future__ import annotations

import gzip
import tracemalloc
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.compression import SNAPPY_BLOCK_BYTES, SNAPPY_HEADER, Compression, Damaged, TooLarge, compress, decompress
from protocol.errors import ProtocolError
from tests.support.containers import lz4_frame, packed_block

pytestmark = pytest.mark.once  # no dependence on the Python version

CODECS = list(Compression)
PACKED = CODECS[1:]
LIMIT = 1 << 20
TEXT = b"".join(b"line %d of the text, " % n for n in range(9_000))


@given(st.sampled_from(CODECS), st.binary(max_size=5_000), st.integers(1, 40))
def test_compressed_data_is_restored(codec: Compression, data: bytes, times: int) -> None:
    assert decompress(compress(data * times, codec), codec, LIMIT) == data * times


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("data", [TEXT, bytes(900_000), b""], ids=["text", "zeros", "nothing"])
def test_data_of_many_blocks_is_decompressed_within_exactly_its_size(codec: Compression, data: bytes) -> None:
    packed = compress(data, codec)
    assert decompress(packed, codec, len(data)) == data
    if data:
        assert len(packed) < len(data) / 2
        with pytest.raises(ProtocolError, match=f"to more than {len(data) - 1} bytes"):
            decompress(packed, codec, len(data) - 1)


@pytest.mark.parametrize("codec", PACKED)
def test_a_cut_is_found_or_leaves_whole_blocks(codec: Compression) -> None:
    packed = compress(TEXT[:3_000], codec)
    for cut in range(len(packed)):
        if codec == Compression.SNAPPY and cut == len(SNAPPY_HEADER):
            continue  # the bare header is a valid stream without blocks
        if codec == Compression.SNAPPY and 0 < (cut - len(SNAPPY_HEADER)) < 4:
            assert decompress(packed[:cut], codec, LIMIT) == b""  # fewer bytes than a length are ignored
            continue
        with pytest.raises(ProtocolError):
            decompress(packed[:cut], codec, LIMIT)


@given(st.sampled_from(PACKED), st.binary(max_size=100), st.booleans())
def test_noise_gives_bytes_within_the_limit_or_a_protocol_error(codec: Compression, noise: bytes, with_magic: bool) -> None:
    data = compress(b"", codec)[:8] + noise if with_magic else noise
    with suppress(ProtocolError):
        assert len(decompress(data, codec, 10_000)) <= 10_000


@given(st.sampled_from(PACKED), st.data())
def test_changed_bytes_give_bytes_within_the_limit_or_a_protocol_error(codec: Compression, data: st.DataObject) -> None:
    packed = bytearray(compress(TEXT[:2_000], codec))
    for at in data.draw(st.lists(st.integers(0, len(packed) - 1), min_size=1, max_size=3)):
        packed[at] = data.draw(st.integers(0, 255))
    with suppress(ProtocolError):
        assert len(decompress(bytes(packed), codec, 10_000)) <= 10_000


def test_snappy_is_read_with_and_without_the_framing_of_java() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(raw, Compression.SNAPPY, LIMIT) == TEXT
    assert compress(TEXT, Compression.SNAPPY).startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")


@pytest.mark.parametrize("announced", [-1, 1 << 30, 0x7FFFFFFF])
def test_a_snappy_block_of_a_length_that_is_not_there_is_refused(announced: int) -> None:
    with pytest.raises(ProtocolError, match="a snappy block of"):
        decompress(SNAPPY_HEADER + announced.to_bytes(4, "big", signed=True) + b"abc", Compression.SNAPPY, LIMIT)


def test_an_impossible_snappy_length_is_refused_before_allocation() -> None:
    false_length = b"\xff\xff\xff\x2f" + b"\0a" * 4  # claims to expand to 100 MB
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="12 bytes of snappy data claim to decompress to 100663295"):
            decompress(false_length, Compression.SNAPPY, 1 << 30)
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", PACKED)
def test_a_decompression_bomb_uses_at_most_the_limit(codec: Compression) -> None:
    bomb = compress(bytes(50_000_000), codec)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="to more than 2000000 bytes"):
            decompress(bomb, codec, 2_000_000)
        assert tracemalloc.get_traced_memory()[1] < 4_500_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", PACKED)
def test_bytes_after_the_data_are_ignored_or_refused_as_by_javas_clients(codec: Compression) -> None:
    packed = compress(TEXT, codec) + b"garbage"
    if codec in (Compression.GZIP, Compression.LZ4):
        assert decompress(packed, codec, LIMIT) == TEXT
    else:
        with pytest.raises(ProtocolError):
            decompress(packed, codec, LIMIT)


@pytest.mark.parametrize("codec", [Compression.SNAPPY, Compression.LZ4])
def test_the_number_of_blocks_is_limited(codec: Compression) -> None:
    packed = compress(TEXT, codec) if codec == Compression.SNAPPY else lz4_frame([packed_block(b"a")] * 3)
    count = len(TEXT) // SNAPPY_BLOCK_BYTES + 1 if codec == Compression.SNAPPY else 3
    decompress(packed, codec, LIMIT, count)
    with pytest.raises(TooLarge, match="blocks"):
        decompress(packed, codec, LIMIT, count - 1)


def test_streams_of_snappy_count_as_blocks() -> None:
    with pytest.raises(TooLarge, match="blocks"):
        decompress(SNAPPY_HEADER * 50, Compression.SNAPPY, LIMIT, 40)


@pytest.mark.parametrize("flags", [0x60, 0x64, 0x68, 0x70, 0x7C])
def test_lz4_blocks_are_unpacked_within_the_limit_whatever_the_flags(flags: int) -> None:
    text = TEXT[:150_000]
    blocks = [packed_block(text[at : at + 65_536]) for at in range(0, len(text), 65_536)]
    packed = lz4_frame(blocks, flags, size=1)  # neither the size nor the checksum of the content is compared
    assert decompress(packed, Compression.LZ4, len(text)) == text
    with pytest.raises(TooLarge):
        decompress(packed, Compression.LZ4, len(text) - 1)
    damaged = bytearray(packed)
    damaged[len(packed) // 2] ^= 0x55
    with suppress(ProtocolError):
        assert decompress(bytes(damaged), Compression.LZ4, LIMIT) != text


def test_damage_after_the_data_is_told_apart() -> None:
    packed = gzip.compress(TEXT)
    with pytest.raises(Damaged) as raised:
        decompress(packed[:-8] + b"\0" * 8, Compression.GZIP, LIMIT)
    assert raised.value.unpacked == TEXT
    with pytest.raises(Damaged) as raised:
        decompress(lz4_frame([packed_block(b"abc")], end=b""), Compression.LZ4, LIMIT)
    assert raised.value.unpacked == b"abc"


def test_many_gzip_members_need_linear_time_whether_they_are_read_or_refused() -> None:
    member = gzip.compress(b"")
    with suppress(ProtocolError):
        assert decompress(member * 50_000, Compression.GZIP, LIMIT) == b""


@pytest.mark.parametrize("codec", [5, 7, -1])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(ProtocolError):
        decompress(b"", codec, LIMIT)
    with pytest.raises(ProtocolError):
        compress(b"", codec)
