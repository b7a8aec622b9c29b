"""Random ids: of topics and clusters, and in the names of files that are being replaced or removed."""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Callable

RandomBytes = Callable[[int], bytes]


def fresh_id(random_bytes: RandomBytes = os.urandom) -> bytes:
    """A random UUID of version 4."""
    return uuid.UUID(bytes=random_bytes(16), version=4).bytes


def fresh_token(random_bytes: RandomBytes = os.urandom) -> str:
    return fresh_id(random_bytes).hex()


def id_text(id: bytes) -> str:
    """The id as 22 characters of base64, as Kafka prints ids."""
    return base64.urlsafe_b64encode(id).decode().rstrip("=")


def fresh_cluster_id(random_bytes: RandomBytes = os.urandom) -> str:
    """A random id that does not begin with a dash, which command lines treat as an option."""
    while True:
        text = id_text(fresh_id(random_bytes))
        if not text.startswith("-"):
            return text
