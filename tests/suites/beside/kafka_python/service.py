"""A module that the suite's fixtures import and its source package omits: a handle on a running service.

Fixtures that start a server of their own also need server templates, which are not published.
"""

from __future__ import annotations


class ExternalService:
    """A service that the suite does not start or stop: `open` and `close`, which it calls, do nothing."""

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
