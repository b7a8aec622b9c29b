"""Changes of a batch on its way to the log that are not compared with Kafka in recorded/test_produce.py."""

from __future__ import annotations

import random
from typing import Any

import cramjam
import pytest

from broker.topics.batch_checks import (
    INLINE_LIMITS,
    RECORD_ERRORS_MAX,
    BatchRefused,
    InvalidBatch,
    TooMuchWork,
    batch_size,
    check_single_batch,
    is_transactional,
    prepare,
)
from broker.topics.settings import log_settings
from protocol.batch import DECOMPRESSED_BYTES_MAX, LOG_APPEND_TIME, BatchHeader, read_header, records, validate
from protocol.compression import SNAPPY_HEADER, Compression
from protocol.errors import ErrorCode
from tests.support.produce_batches import NAMES, THEN, batch, batch_of_three, plain_batch, producer_batch, record, varint

pytestmark = pytest.mark.once  # bytes do not depend on the Python version

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4, "uncompressed": 0}


def prepared(data: bytes, now: int = THEN, **settings: Any) -> tuple[bytes, BatchHeader]:
    """The batch as the broker appends it, and its header. `settings`: topic settings, with underscores for dots."""
    values = {name.replace("_", "."): value for name, value in settings.items()}
    unchanged = bytes(data)
    prepared_batch, header = prepare(data, 0, len(data), log_settings(values, {}), now, "t-0")
    assert data == unchanged
    validate(bytes(prepared_batch), 0, len(prepared_batch))
    stored = read_header(prepared_batch, 0)
    for field in ("size", *(name for name in NAMES if name != "length")):
        assert getattr(header, field) == getattr(stored, field), field
    return bytes(prepared_batch), header


def refused(data: bytes, **settings: Any) -> ErrorCode:
    with pytest.raises(BatchRefused) as refusal:
        prepared(data, **settings)
    return refusal.value.error


@pytest.mark.parametrize("codec", CODECS.values())
def test_an_unchanged_batch_is_stored_as_received(codec: int) -> None:
    for data in (batch(record(0), record(1, timestamp=5), codec=codec, max_timestamp=THEN + 5), producer_batch(3, 4)):
        assert prepared(data)[0] == data


def test_a_batch_is_read_from_the_middle_of_a_buffer() -> None:
    data = batch_of_three()
    prepared_batch, header = prepare(b"before" + data + b"behind", 6, len(data), log_settings({}, {}), THEN, "t-0")
    assert prepared_batch == data
    assert header.record_count == 3


def test_the_max_timestamp_is_computed_from_the_records() -> None:
    prepared_batch, header = prepared(batch_of_three(max_timestamp=THEN + 1000))
    assert header.max_timestamp == THEN + 5
    assert [record.timestamp for record in records(prepared_batch, 0)] == [THEN, THEN + 5, THEN + 3]


def test_with_log_append_time_every_record_has_the_append_time() -> None:
    prepared_batch, header = prepared(batch_of_three(), THEN + 77, message_timestamp_type="LogAppendTime")
    assert header.attributes == LOG_APPEND_TIME
    assert {record.timestamp for record in records(prepared_batch, 0)} == {THEN + 77}


@pytest.mark.parametrize("to", CODECS)
@pytest.mark.parametrize("codec", CODECS.values())
def test_recompression_for_a_topic_keeps_the_records(codec: int, to: str) -> None:
    parts = [record(number, key=None if number % 3 else b"k", value=bytes(number), timestamp=-number) for number in range(300)]
    data = batch(*parts, codec=codec, producer_id=7, producer_epoch=2, base_sequence=11)
    prepared_batch, header = prepared(data, compression_type=to)
    assert header.compression == CODECS[to]
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_offset_delta) == (7, 2, 11, 299)
    assert records(prepared_batch, 0) == records(data, 0)
    assert (prepared_batch == data) == (CODECS[to] == codec)


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", "1", "9"), ("zstd", "-1000", "19")])
def test_a_topics_compression_level_is_used(codec: str, low: str, high: str) -> None:
    text = b" ".join(b"%d" % (number * number) for number in range(5_000))
    levels: list[dict[str, Any]] = [{f"compression_{codec}_level": level} for level in (low, high)]
    sizes = [len(prepared(batch(record(0, value=text)), compression_type=codec, **level)[0]) for level in levels]
    assert sizes[0] != sizes[1]


def test_a_decompression_bomb_is_refused() -> None:
    codec = Compression.ZSTD
    assert prepared(batch(record(0, value=bytes(DECOMPRESSED_BYTES_MAX // 2)), codec=codec))
    assert refused(batch(record(0, value=bytes(DECOMPRESSED_BYTES_MAX)), codec=codec)) == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_batch_exceeding_the_limit_after_recompression_is_refused() -> None:
    packed = batch(record(0, value=bytes(5_000)), codec=Compression.GZIP)
    assert len(packed) < 1_000
    limits: dict[str, Any] = {"compression_type": "uncompressed"}
    assert refused(packed, **limits, max_message_bytes="2000") == ErrorCode.MESSAGE_TOO_LARGE
    assert prepared(packed, max_message_bytes="2000")[0] == packed


def test_each_refused_record_is_listed_and_the_first_is_in_the_message() -> None:
    data = batch(*[record(number, key=None if number % 2 else b"k") for number in range(20)])
    with pytest.raises(BatchRefused) as refusal:
        prepared(data, cleanup_policy="compact")
    assert [error.record for error in refusal.value.records] == list(range(1, 20, 2))
    assert refusal.value.message is not None
    assert "10 record errors" in refusal.value.message
    assert refusal.value.message.count("RecordError(") == 3


def test_a_reply_lists_a_limited_number_of_refused_records() -> None:
    data = batch(*[record(number, key=None) for number in range(RECORD_ERRORS_MAX + 5)])
    with pytest.raises(BatchRefused) as refusal:
        prepared(data, cleanup_policy="compact")
    assert [error.record for error in refusal.value.records] == list(range(RECORD_ERRORS_MAX))
    assert f"{RECORD_ERRORS_MAX + 5} record errors in total" in (refusal.value.message or "")


@pytest.mark.parametrize("ahead", [-1, 0, 1])
def test_timestamp_limits_are_exact(ahead: int) -> None:
    limits: dict[str, Any] = {"message_timestamp_before_max_ms": "1000", "message_timestamp_after_max_ms": "500"}
    for edge, direction in ((THEN + 500, 1), (THEN - 1000, -1)):
        data = batch(record(0), base_timestamp=edge + direction * ahead)
        if ahead > 0:
            assert refused(data, **limits) == ErrorCode.INVALID_TIMESTAMP
        else:
            assert prepared(data, **limits)[0] == data


def test_a_record_without_a_timestamp_is_within_timestamp_limits() -> None:
    limits: dict[str, Any] = {"message_timestamp_before_max_ms": "1000"}
    assert prepared(batch(record(0), record(1, timestamp=-THEN - 1)), **limits)[1].max_timestamp == THEN
    assert refused(batch(record(0), record(1, timestamp=-THEN)), **limits) == ErrorCode.INVALID_TIMESTAMP


def test_the_first_batch_is_delimited_by_its_size() -> None:
    data = plain_batch()
    assert batch_size(data, 0) == batch_size(data + b"behind", 0) == len(data)
    assert [batch_size(data[:size], 0) for size in range(len(data))] == [0] * len(data)
    for wrong in (plain_batch(length=13), plain_batch(magic=3), bytes(12)):
        with pytest.raises(InvalidBatch):
            batch_size(wrong, 0)


def test_only_batches_of_transactions_are_transactional() -> None:
    for data, expected in ((plain_batch(), False), (producer_batch(0, attributes=16), True), (plain_batch(magic=1, attributes=16), False)):
        assert is_transactional(data, batch_size(data, 0)) is expected


def test_zstd_is_refused_in_produce_versions_before_7() -> None:
    data = batch(record(), codec=Compression.ZSTD)
    check_single_batch(data, len(data), 7)
    with pytest.raises(BatchRefused) as refusal:
        check_single_batch(data, len(data), 6)
    assert refusal.value.error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


MANY = INLINE_LIMITS.changed_records + 1
BEYOND: dict[str, tuple[bytes, dict[str, str]]] = {
    "its own size": (batch(record(value=bytes(INLINE_LIMITS.batch_bytes))), {"max_message_bytes": "100000000"}),
    "the size of a gzip": (batch(record(value=random.Random(1).randbytes(INLINE_LIMITS.gzip_bytes)), codec=1), {}),
    "blocks of snappy": (batch(raw=SNAPPY_HEADER + b"\0\0\0\1\0" * (INLINE_LIMITS.blocks + 1), attributes=2, record_count=1, last_offset_delta=0), {}),
    "the decompressed size": (batch(record(value=bytes(INLINE_LIMITS.unpacked_bytes)), codec=4), {}),
    "the decompressed size of raw snappy": (
        batch(raw=bytes(cramjam.snappy.compress_raw(record(value=bytes(INLINE_LIMITS.unpacked_bytes)))), attributes=2, record_count=1, last_offset_delta=0), {},
    ),
    "records that differ": (batch(*[record(number, value=bytes(number % 2)) for number in range(INLINE_LIMITS.survey_steps + 1)]), {}),
    "headers": (batch(record(headers=varint(INLINE_LIMITS.survey_steps) + b"\0\1" * INLINE_LIMITS.survey_steps)), {}),
    "records to be recompressed": (batch(*[record(number) for number in range(MANY)]), {"compression_type": "gzip"}),
    "bytes to be recompressed": (batch(record(value=bytes(INLINE_LIMITS.changed_bytes))), {"compression_type": "zstd"}),
    "bytes to be recompressed at a slow level": (
        batch(record(value=bytes(INLINE_LIMITS.changed_bytes // 16))), {"compression_type": "zstd", "compression_zstd_level": "19"},
    ),
    "records to be refused": (batch(*[record(number, key=None) for number in range(MANY)]), {"cleanup_policy": "compact"}),
}  # fmt: skip


@pytest.mark.parametrize("beyond", BEYOND)
def test_an_expensive_batch_is_detected_before_checking(beyond: str) -> None:
    data, values = BEYOND[beyond]
    settings = log_settings({name.replace("_", "."): value for name, value in values.items()}, {})
    with pytest.raises(TooMuchWork):
        prepare(data, 0, len(data), settings, THEN, "t-0", INLINE_LIMITS)


def test_ordinary_batches_are_not_expensive() -> None:
    alike = batch(*[record(number, value=bytes(100)) for number in range(9_000)])
    unlike = [record(number, value=bytes(number % 300)) for number in range(300)]
    for data in (alike, *[batch(*unlike, codec=codec) for codec in range(5)]):
        assert prepare(data, 0, len(data), log_settings({}, {}), THEN, "t-0", INLINE_LIMITS)[0] == data
