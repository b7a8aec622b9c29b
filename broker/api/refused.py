"""The refusal of one topic or resource of a request, with a message for the client."""

from __future__ import annotations

from protocol.errors import ErrorCode

MESSAGE_CHARACTERS_MAX = 1000  # a message may quote the request, which may be longer than a reply allows


class Refused(Exception):
    """One topic or resource is refused; the rest of the request is processed."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.message = None if message is None else shorten(message)


def shorten(message: str) -> str:
    return message if len(message) <= MESSAGE_CHARACTERS_MAX else f"{message[:MESSAGE_CHARACTERS_MAX]}..."
