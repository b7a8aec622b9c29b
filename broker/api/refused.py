"""Why one topic or resource of a request is refused, in a message that its client reads."""

from __future__ import annotations

from protocol.errors import ErrorCode

MESSAGE_CHARACTERS_MAX = 1000  # a message may name what the client sent, which may be longer than a reply can hold


class Refused(Exception):
    """This topic or resource is left as it is; the rest of the request goes on."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.message = None if message is None else short(message)


def short(message: str) -> str:
    return message if len(message) <= MESSAGE_CHARACTERS_MAX else f"{message[:MESSAGE_CHARACTERS_MAX]}..."
