"""Every message and version, cut, with flipped bits and with false lengths: reading it ends soon, with a message or with a ProtocolError."""

from __future__ import annotations

import functools
import tracemalloc
from random import Random
from typing import Any

import pytest

from protocol.errors import ProtocolError
from tests.depth import DEPTH
from tests.protocol.foreign import kio_bytes, kio_class, our_class, random_instance, versions

pytestmark = pytest.mark.once  # slow, and independent of the Python version

VERSIONS = versions()
LONGEST = 60 * DEPTH  # the largest size of a generated message: each of its bytes is changed
LARGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x7f\xff", b"\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\xff\xff")


@functools.cache
def sample(name: str, version: int) -> bytes:
    """A message with contents, but short enough to change each of its bytes."""
    encodings = (kio_bytes(random_instance(kio_class(name, version), Random(f"{name} {version} {n}"))) for n in range(10))
    return max((data for data in encodings if len(data) < LONGEST), key=len, default=b"")


def survives(cls: Any, data: bytes, version: int) -> bool:
    """Whether the bytes can be decoded; an exception other than ProtocolError fails the test."""
    try:
        _, end = cls.decode(data, 0, version)
    except ProtocolError:
        return False
    assert 0 <= end <= len(data)
    return True


@pytest.mark.parametrize("name", VERSIONS)
def test_a_message_cut_anywhere_is_refused(name: str) -> None:
    cls = our_class(name)
    for version in VERSIONS[name]:
        data = sample(name, version)
        for cut in range(len(data)):
            assert not survives(cls, data[:cut], version), (version, cut)


@pytest.mark.parametrize("name", VERSIONS)
def test_flipped_bits_give_a_message_or_a_protocol_error(name: str) -> None:
    cls = our_class(name)
    for version in VERSIONS[name]:
        data, random = sample(name, version), Random(f"{name} {version}")
        for at in range(len(data)):
            flipped = bytearray(data)
            flipped[at] ^= 1 << random.randrange(8)
            survives(cls, bytes(flipped), version)
            flipped[random.randrange(len(data))] = random.choice((0, 127, 128, 255))
            survives(cls, bytes(flipped), version)


@pytest.mark.parametrize("name", VERSIONS)
def test_noise_gives_a_message_or_a_protocol_error(name: str) -> None:
    for version in VERSIONS[name]:
        random = Random(f"{name} {version}")
        for _ in range(5 * DEPTH):
            survives(our_class(name), bytes(random.choices((0, 1, 2, 3, 7, 127, 128, 255), k=random.randrange(60))), version)


def test_false_lengths_allocate_nothing() -> None:
    """In the newest version of every message, up to a dozen positions are overwritten in turn with a huge length."""
    tracemalloc.start()
    try:
        for name, its_versions in VERSIONS.items():
            version = its_versions[-1]
            cls, data = our_class(name), sample(name, version)
            for at in range(0, len(data), 1 + len(data) // 12):
                for false_length in LARGE:
                    tracemalloc.reset_peak()
                    before, _ = tracemalloc.get_traced_memory()
                    survives(cls, data[:at] + false_length + data[at + len(false_length) :], version)
                    _, peak = tracemalloc.get_traced_memory()
                    assert peak - before < 200_000, f"{name} at {at}"
    finally:
        tracemalloc.stop()
