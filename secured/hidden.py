"""A text that is shown nowhere."""

from __future__ import annotations


class Secret:
    """A password, key or token. Its text is got with `reveal`, where it is sent; it cannot be pickled, so it never leaves the process."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __str__(self) -> str:
        return "***"

    def __repr__(self) -> str:
        return "***"

    def __reduce__(self) -> str:
        raise TypeError("a secret does not leave its process")
