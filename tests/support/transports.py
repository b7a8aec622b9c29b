"""The common base of fake transports: empty buffers, and no socket."""

from __future__ import annotations


class BareTransport:
    def write(self, data: bytes) -> None: ...

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> object:
        return None

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...
