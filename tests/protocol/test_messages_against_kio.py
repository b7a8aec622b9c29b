"""Every message and version of the ideal table: our bytes are kio's, and reading them gives the message back."""

from __future__ import annotations

from random import Random

import pytest

from tests.depth import DEPTH
from tests.protocol.foreign import cases, kio_bytes, kio_class, kio_read, made_up, our_class, ours

pytestmark = pytest.mark.once  # kio's answers, to one Python for all

CASES = list(cases())


@pytest.mark.parametrize(("name", "version"), CASES)
def test_our_bytes_are_kios_and_read_back_as_the_same_message(name: str, version: int) -> None:
    cls = kio_class(name, version)
    for n in range(DEPTH):
        instance = made_up(cls, Random(f"{name} {version} {n}"))
        message, data = ours(name, instance), kio_bytes(instance)
        assert message.encode(version) == data
        again, end = our_class(name).decode(data, 0, version)
        assert (again, end) == (message, len(data))
        assert again.encode(version) == data


@pytest.mark.parametrize(("name", "version"), CASES)
def test_kio_reads_what_we_write(name: str, version: int) -> None:
    cls = kio_class(name, version)
    instance = made_up(cls, Random(f"{name} {version}"))
    data = ours(name, instance).encode(version)
    again, size = kio_read(cls, data)
    assert size == len(data)
    assert kio_bytes(again) == data


def test_a_message_is_read_from_the_middle_of_a_frame() -> None:
    cls = kio_class("HeartbeatRequest", 4)
    instance = made_up(cls, Random(1))
    data = kio_bytes(instance)
    assert our_class("HeartbeatRequest").decode(b"before" + data, 6, 4) == (ours("HeartbeatRequest", instance), 6 + len(data))
