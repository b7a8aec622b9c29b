"""Base classes of generated messages: comparison and printing by fields."""

from __future__ import annotations

from typing import Any, ClassVar

from protocol.wire import Steps


def field_names(cls: type) -> tuple[str, ...]:
    """The fields of a generated class, in the order of its constructor (compiled classes have no `__slots__`)."""
    names: tuple[str, ...] = getattr(cls, "__mypyc_attrs__", None) or cls.__slots__  # type: ignore[attr-defined]
    return names


class Part:
    """A struct inside a message."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in field_names(type(self)))

    def __repr__(self) -> str:
        values: list[Any] = [f"{name}={getattr(self, name)!r}" for name in field_names(type(self))]
        return f"{type(self).__name__}({', '.join(values)})"


class Message(Part):
    """A message or record: one class for all its versions, from VERSIONS[0] to VERSIONS[1]."""

    __slots__ = ()
    FLEXIBLE_FROM: ClassVar[int] = 32767
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)

    @staticmethod
    def decode(data: bytes, at: int, version: int) -> tuple[Message, int]:
        """The message at `at`, and its end. `data` must end at the end of the frame."""
        raise NotImplementedError

    def encode(self, version: int) -> bytes:
        raise NotImplementedError

    def encode_in_steps(self, out: list[bytes], version: int) -> Steps[None]:
        """As `encode`, as a generator that appends to `out` and yields before each part with its approximate cost in array elements.

        Only replies have it. The caller may clear `out` between two steps.
        """
        raise NotImplementedError
