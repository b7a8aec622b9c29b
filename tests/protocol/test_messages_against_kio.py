"""Every message and version of the table of APIs: our bytes are kio's, and decoding them returns the message."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from tests.depth import DEPTH
from tests.protocol.foreign import kio_bytes, kio_class, kio_read, our_class, ours, random_instance, versions

pytestmark = pytest.mark.once  # no dependence on the Python version

VERSIONS = versions()


@pytest.mark.parametrize("name", VERSIONS)
def test_our_bytes_are_kios_and_read_back_as_the_same_message(name: str) -> None:
    for version, n in product(VERSIONS[name], range(DEPTH)):
        instance = random_instance(kio_class(name, version), Random(f"{name} {version} {n}"))
        message, data = ours(name, instance), kio_bytes(instance)
        assert message.encode(version) == data
        decoded, end = our_class(name).decode(data, 0, version)
        assert (decoded, end) == (message, len(data))
        assert decoded.encode(version) == data


@pytest.mark.parametrize("name", VERSIONS)
def test_kio_reads_our_messages(name: str) -> None:
    for version in VERSIONS[name]:
        cls = kio_class(name, version)
        data = ours(name, random_instance(cls, Random(f"{name} {version}"))).encode(version)
        decoded, size = kio_read(cls, data)
        assert (size, kio_bytes(decoded)) == (len(data), data)


def test_a_message_is_read_from_the_middle_of_a_frame() -> None:
    cls = kio_class("HeartbeatRequest", 4)
    instance = random_instance(cls, Random(1))
    data = kio_bytes(instance)
    assert our_class("HeartbeatRequest").decode(b"before" + data, 6, 4) == (ours("HeartbeatRequest", instance), 6 + len(data))
