"""A broker in a thread of this process, with an event loop of its own: for debuggers, and for a start in milliseconds once it is imported.

Signals, the garbage collector, logging and the end of the process stay the application's.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import sys
import threading
from collections import deque
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .control import Control
from .process import LINES_KEPT, START_SECONDS, STOP_SECONDS, NoBroker

# The packages of Tenure that are imported into this process; an application may have one of the same name.
PACKAGES = ("broker", "cli", "coordinator", "history", "protocol", "secured", "storage")


def import_packages() -> Any:
    """The module of Tenure that serves in a thread. Its packages are found after the application's own, and hide none. Raises NoBroker."""
    try:
        from tenure.start import packages_folder
    except ImportError:
        raise NoBroker("a broker in this process needs `tenure` in this environment: `pip install tenure`, or leave out in_process") from None
    folder = packages_folder()
    if folder not in sys.path:
        sys.path.append(folder)
    for name in PACKAGES:
        module = sys.modules.get(name)
        place = getattr(module, "__file__", None) if module is not None else getattr(find_spec(name), "origin", None)
        if place is None or Path(place).parent.parent != Path(folder):
            raise NoBroker(f"a broker in this process needs the name {name!r}, which here is {place or 'a folder'}: leave out in_process")
    from cli.control import in_thread

    return in_thread


class InProcess:
    """A served host of clusters in a thread; what `Process` is for a child process."""

    def __init__(self, settings: Mapping[str, Any], *, data: str | os.PathLike[str] | None = None, port: int = 0) -> None:
        module = import_packages()
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)  # the last warnings and errors of its log
        self.pid = os.getpid()
        try:
            self._host = module.Served(settings, None if data is None else str(Path(data)), port, secrets.token_urlsafe(18), self.lines)
        except module.REFUSALS as error:
            raise NoBroker(str(error)) from error
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True, name="tenure")
        self._thread.start()
        if not self._ready.wait(START_SECONDS) or self._error is not None:
            self._host.stop()
            raise NoBroker(f"the broker in this process did not start: {self._error or 'it does not listen'}") from self._error
        self.bootstrap: str = self._host.bootstrap
        self.control = Control(self._host.url, self._host.token, own_thread=self._thread.ident)
        atexit.register(self.stop)

    def _serve(self) -> None:
        try:
            self._host.serve(self._ready.set)
        except BaseException as error:  # for the thread that started this one
            self._error = error
        finally:
            self._ready.set()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def kill(self) -> None:
        raise RuntimeError("a broker in this process cannot be killed without it: use kafka.kill(), or leave out in_process")

    def stop(self) -> None:
        """End its clusters and its thread. A forked child has neither."""
        if os.getpid() != self.pid:
            return
        atexit.unregister(self.stop)
        self.control.close_all()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._host.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_SECONDS)
