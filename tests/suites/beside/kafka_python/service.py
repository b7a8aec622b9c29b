"""A module that the suite's fixtures import and its source package omits: a handle on a running service.

Fixtures that start a server of their own also need server templates, which are not published.
"""

from __future__ import annotations


class ExternalService:
    """The broker is started and stopped outside, but the suite still calls `open` and `close`."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def open(self) -> None: ...

    def close(self) -> None: ...

    def stop(self) -> None: ...

    def dump_logs(self) -> None: ...


class SpawnedService:
    def __init__(self, args: list[str], env: dict[str, str] | None = None) -> None:
        raise RuntimeError(f"the source package has no templates to start a server with: {args}")
