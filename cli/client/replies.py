"""Find the error codes in a reply, at any depth."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from protocol.message import Part, field_names

# Errors to retry: the coordinator loads, is not available or has moved; the controller, the leader has moved.
MOVED_COORDINATOR = (14, 15, 16)
MOVED_CONTROLLER = (41,)
MOVED_LEADER = (5, 6, 74, 75)  # there is none, it is another one, or a broker does not know yet that it is


def first_error(reply: Any, codes: Collection[int], group_id: str | None = None) -> int | None:
    """The first error code in the reply that is one of `codes`; None if there is none. `group_id`: ignore entries of other groups."""
    return next((code for code in error_codes(reply, group_id) if code in codes), None)


def error_codes(part: Any, group_id: str | None = None) -> Iterator[int]:
    if group_id is not None and getattr(part, "group_id", group_id) != group_id:
        return
    code = getattr(part, "error_code", 0)
    if code:
        yield code
    for name in field_names(type(part)):
        value = getattr(part, name)
        if isinstance(value, list):
            for entry in value:
                if isinstance(entry, Part):
                    yield from error_codes(entry, group_id)
