from __future__ import annotations

import json
import logging
import os
import pty
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.logging import logs
from broker.logging.events import Events
from broker.logging.logs import LEVELS
from broker.logging.sink import LineSink
from tests.running import environment


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    logs.close()
    os.close(reader)
    os.close(writer)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    reader, writer = pty.openpty()
    yield reader, writer
    logs.close()
    os.close(reader)
    os.close(writer)


def written(reader: int) -> str:
    logs.close()
    return os.read(reader, 1 << 16).decode()


def test_without_a_terminal_each_log_line_is_a_json_object(pipe: tuple[int, int]) -> None:
    logs.configure("info", "auto", fd=pipe[1], environ={})
    logs.log.info("member joined", group="checkout", generation=3)
    line = json.loads(written(pipe[0]))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {"level": "info", "event": "member joined", "group": "checkout", "generation": 3}


def test_on_a_terminal_log_lines_are_coloured_text(terminal: tuple[int, int]) -> None:
    logs.configure("info", "auto", fd=terminal[1], environ={"TERM": "xterm"})
    logs.log.warning("member left", group="checkout", reason="its session ended")
    text = written(terminal[0])
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert re.fullmatch(r"\S+Z warning member left +group=checkout reason='its session ended'\r\n", plain)


@pytest.mark.parametrize(("environ", "coloured"), [({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": "", "TERM": "xterm"}, True)])
def test_colours_can_be_switched_off(terminal: tuple[int, int], environ: dict[str, str], coloured: bool) -> None:
    logs.configure("info", "auto", fd=terminal[1], environ=environ)
    logs.log.info("ready")
    text = written(terminal[0])
    assert ("\x1b[" in text) == coloured
    assert coloured or re.fullmatch(r"\S+Z info    ready\r\n", text)


def test_the_format_can_be_chosen(pipe: tuple[int, int], terminal: tuple[int, int]) -> None:
    logs.configure("info", "console", fd=pipe[1], environ={})
    logs.log.info("ready")
    assert re.fullmatch(r"\S+Z info    ready\n", written(pipe[0]))
    logs.configure("info", "json", fd=terminal[1], environ={})
    logs.log.info("ready")
    assert json.loads(written(terminal[0]))["event"] == "ready"


@pytest.mark.parametrize("form", ["console", "json"])
def test_names_that_peers_choose_can_neither_steer_a_terminal_nor_forge_a_line(pipe: tuple[int, int], form: str) -> None:
    logs.configure("info", form, fd=pipe[1], environ={})
    evil = "x\n2026 error forged\x1b[2J\x9b31m\u202e\udc80"
    logs.log.info(evil, client=evil, ids=[evil], **{evil: 1})
    text = written(pipe[0])
    assert text.count("\n") == 1
    assert text.rstrip("\n").isprintable()


def test_only_the_chosen_level_and_above_is_written(pipe: tuple[int, int]) -> None:
    logs.configure("warning", "json", fd=pipe[1])
    log = logs.log
    for level in LEVELS:
        log.write(level, level, {})
    assert [json.loads(line)["event"] for line in written(pipe[0]).splitlines()] == ["warning", "error", "critical"]


def test_frames_are_formatted_only_if_logged(pipe: tuple[int, int]) -> None:
    assert not logs.debug_enabled()
    logs.configure("debug", "json", fd=pipe[1])
    assert logs.debug_enabled()
    logs.configure("info", "json", fd=pipe[1])
    assert not logs.debug_enabled()


@pytest.mark.parametrize("form", ["console", "json"])
def test_an_exception_comes_with_its_traceback(pipe: tuple[int, int], form: str) -> None:
    logs.configure("info", form, fd=pipe[1], environ={})
    try:
        raise ValueError("no\x1b[31m")
    except ValueError as error:
        caught = error
        logs.log.exception("failed")
    logs.log.error("failed later", exc_info=caught)
    text = written(pipe[0])
    assert text.count("ValueError: no") == 2
    assert "\x1b" not in text
    assert len(text.splitlines()) == 2 or form == "console"


@pytest.mark.parametrize("form", ["console", "json"])
def test_any_value_is_logged_as_one_line(pipe: tuple[int, int], form: str) -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    logs.configure("info", form, fd=pipe[1], environ={})
    logs.log.info("odd", data=b"\x00", cycle=cycle, keys={(1, 2): 3}, kind=ValueError, time=5, level="x")
    assert "odd" in written(pipe[0])


def test_library_logs_and_warnings_use_the_same_output(pipe: tuple[int, int]) -> None:
    logs.configure("info", "json", fd=pipe[1])
    logging.getLogger("asyncio").warning("slow %s", "callback")
    logging.getLogger("asyncio").debug("not shown")
    logging.getLogger("x").log(35, "between levels")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = logs.show_warning
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    slow, between, old = map(json.loads, written(pipe[0]).splitlines())
    assert (slow["event"], slow["logger"], slow["level"]) == ("slow callback", "asyncio", "warning")
    assert between["level"] == "warning"
    assert (old["event"], old["category"]) == ("old", "DeprecationWarning")
    assert old["where"].startswith(__file__)


def test_library_logging_is_restored_after_closing(pipe: tuple[int, int]) -> None:
    before = (list(logging.getLogger().handlers), warnings.showwarning)
    logs.configure("info", "json", fd=pipe[1])
    logs.close()
    assert (logging.getLogger().handlers, warnings.showwarning) == before


def test_events_before_the_import_keep_their_times_and_order(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(("first", "second"))
    monkeypatch.setattr("broker.logging.events.now", lambda: next(times))
    events = Events(as_json=True)
    events.write("info", "one", {})
    events.write("info", "two", {})
    sink = LineSink(pipe[1], lambda count: b"")
    events.close(sink)
    sink.close()
    assert [(line["time"], line["event"]) for line in map(json.loads, written(pipe[0]).splitlines())] == [("first", "one"), ("second", "two")]


def test_the_import_is_tried_again_while_no_descriptor_is_free(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    tried = threading.Event()

    class Failing(Events):
        def _import(self, sink: LineSink) -> None:
            if not tried.is_set():
                tried.set()
                raise OSError(24, "Too many open files")
            super()._import(sink)

    monkeypatch.setattr("broker.logging.events.AGAIN_SECONDS", 0.01)
    events = Failing(as_json=True)
    events.write("info", "waits", {})
    events.started()
    sink = LineSink(pipe[1], lambda count: b"", first=events.import_when_started)
    assert json.loads(os.read(pipe[0], 1 << 16))["event"] == "waits"
    assert tried.is_set()
    events.close(sink)
    sink.close()


class NoText:
    def __str__(self) -> str:
        raise OSError("gone")


def test_an_early_event_that_cannot_be_written_is_named(pipe: tuple[int, int]) -> None:
    events = Events(as_json=True)
    events.write("info", "bad", {"value": NoText()})
    events.write("info", "good", {})
    sink = LineSink(pipe[1], lambda count: b"")
    events.close(sink)
    sink.close()
    bad, good = map(json.loads, written(pipe[0]).splitlines())
    assert (bad["event"], bad["line"], bad["reason"]) == ("a line cannot be logged", "bad", "OSError('gone')")
    assert good["event"] == "good"


def test_structlog_is_imported_after_the_start_without_the_packages_that_it_looks_for(tmp_path: Path) -> None:
    for package in ("better_exceptions", "rich", "twisted"):
        (tmp_path / f"{package}.py").write_text("raise SystemExit('imported')")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from broker.logging import logs
logs.configure("info", "console")
logs.log.info("early")
print("structlog" in sys.modules, flush=True)
logs.started()
input()
print(*(name in sys.modules for name in ("structlog", "better_exceptions", "rich", "twisted")))
logs.close()
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-P", "-c", code], text=True, env=environment(), stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stderr is not None
        assert re.fullmatch(r"\S+Z info    early\n", process.stderr.readline())
        assert process.communicate("\n", timeout=20) == ("False\nTrue False False False\n", "")
