"""What the suite's fixtures import and its source package leaves out: a handle on a service that runs already.

Fixtures that want to start a server of their own need, besides, server templates that are published nowhere.
"""

from __future__ import annotations


class ExternalService:
    """The broker is started and stopped outside; the suite calls `open` and `close` all the same."""

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
