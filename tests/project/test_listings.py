"""Listings in the pages work: commands parse, links have a target, and those of docs/start.md are run."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.settings.load import load_config
from cli.command_line import parse
from tests.kafka_process import free_ports
from tests.project.listings import PAGES, Listing, anchors, links, listing_named, listings, tenure_commands
from tests.running import ROOT, Broker, environment

pytestmark = pytest.mark.once  # pages of this checkout do not depend on the Python version

README = ROOT / "README.md"
START = ROOT / "docs/start.md"
SHELL_LISTINGS = [listing for page in PAGES for listing in listings(page) if listing.language in ("", "sh", "bash", "console")]
ADDRESS = "127.0.0.1:9092"
LINES_WAIT_SECONDS = 30
READ_AGAIN_SECONDS = 10  # for three orders after the restart of the broker; the producer of the page sends one a second


def test_pages_are_found() -> None:
    assert {README, ROOT / "docs/operating.md", ROOT / "docker/README.md"} <= set(PAGES)
    assert sum(len(tenure_commands(listing.text)) for listing in SHELL_LISTINGS) > 10


@pytest.mark.parametrize("listing", [listing for listing in SHELL_LISTINGS if tenure_commands(listing.text)], ids=str)
def test_every_command_that_a_page_shows_is_understood(listing: Listing) -> None:
    for words in tenure_commands(listing.text):
        try:
            options = parse(words)
        except SystemExit as end:
            assert end.code == 0, f"{listing}: tenure {' '.join(words)}"  # noqa: PT017 (argparse prints its message itself)
            continue
        if options is not None and options.command == "serve":
            check_settings(options)


def check_settings(options: argparse.Namespace) -> None:
    """Check the settings in a command; raises ConfigError if one is wrong."""
    load_config(
        listen=options.listen, advertise=options.advertise, data=options.data, profile=options.profile, settings=options.settings, environ={}
    )


def test_make_targets_named_in_pages_exist() -> None:
    words = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = {word for page in PAGES for word in re.findall(r"`make ([a-z-]+)[`\s]|^ *make ([a-z-]+)$", page.read_text(), re.MULTILINE) for word in word if word}
    assert {"run", "test", "check"} <= used
    assert used <= words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_a_target(page: Path) -> None:
    for link in links(page):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


def test_every_page_is_found_from_the_readme_and_from_the_index() -> None:
    pages = {page for page in PAGES if page.parent == ROOT / "docs"} - {ROOT / "docs/README.md"}
    for index in (README, ROOT / "docs/README.md"):
        assert pages <= {(index.parent / link).resolve() for link in links(index)}


@pytest.mark.parametrize("listing", [listing for page in PAGES for listing in listings(page, "python")], ids=str)
def test_every_python_listing_compiles(listing: Listing) -> None:
    compile(listing.text, str(listing), "exec")


def test_tests_named_in_pages_exist() -> None:
    files = list(ROOT.glob("tests/**/*.py"))
    defined_tests = {name for file in files for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)}
    named_tests = {name for page in PAGES for name in re.findall(r"`(test_\w+)`", page.read_text())}
    assert len(named_tests) > 20
    assert named_tests <= defined_tests
    assert {name for page in PAGES for name in re.findall(r"`(?:tests/[\w/]*)?(test_\w+\.py)`", page.read_text())} <= {file.name for file in files}


def test_the_readme_starts_the_broker_like_make_run() -> None:
    recipe = (ROOT / "Makefile").read_text()
    assert "\tmake run\n" not in recipe
    assert "$(BIN)/tenure serve --data ./data $(ARGS)" in recipe
    assert any(listing.text == "make run\n" for listing in listings(README))


# The consumer of docs/start.md, run as on the page, but on another port.


class Program:
    """A listing of docs/start.md as a process; its output goes to a file."""

    def __init__(self, folder: Path, port: int, name: str, *arguments: str) -> None:
        script = folder / name
        script.write_text(listing_named(START, name).replace(ADDRESS, f"127.0.0.1:{port}"))
        self.printed = folder / f"{name}-{time.monotonic_ns()}"
        self._errors = self.printed.with_suffix(".errors")
        # Warnings are no errors here, as client libraries cause some.
        plain = environment(PYTHONWARNINGS="default")
        with self.printed.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, name, *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=plain
            )

    def lines(self) -> list[str]:
        return self.printed.read_text().splitlines()

    def await_lines(self, count: int) -> list[str]:
        until = time.monotonic() + LINES_WAIT_SECONDS
        while len(self.lines()) < count:
            assert self._process.poll() is None, self._errors.read_text()
            assert time.monotonic() < until, f"{self.printed.name} has {self.lines()}, {self._errors.read_text()}"
            time.sleep(0.05)
        return self.lines()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree(tmp_path / "data", ignore_errors=True)


@pytest.mark.clients
@pytest.mark.parametrize("away_seconds", [0, 75])
def test_the_consumer_of_the_readme_keeps_its_seat_over_kills_of_itself_and_of_the_broker(folder: Path, away_seconds: int) -> None:
    (port,) = free_ports(1)
    arguments = ("--data", str(folder / "data"), "--listen", f"127.0.0.1:{port}")
    brokers = [Broker(*arguments)]
    programs = [Program(folder, port, "orders.py"), Program(folder, port, "billing.py", "billing-1")]
    try:
        programs[1].await_lines(3)
        programs[1].kill()
        programs.append(Program(folder, port, "billing.py", "billing-1"))
        programs[2].await_lines(3)
        brokers[0].kill()
        time.sleep(away_seconds)
        brokers.append(Broker(*arguments))
        before = time.monotonic()
        programs[2].await_lines(len(programs[2].lines()) + 3)
        assert time.monotonic() - before < READ_AGAIN_SECONDS
    finally:
        for program in programs:
            program.kill()
        for broker in brokers:
            broker.kill()
    read = programs[1].lines() + programs[2].lines()
    # No order is missing. Only the order at which the consumer was killed may be printed twice, as its offset was not committed.
    assert list(dict.fromkeys(read)) == [f"{number} order {number}" for number in range(len(set(read)))]
    assert len(read) - len(set(read)) <= 1
    history = [line for broker in brokers for line in broker.lines if '"event": "group"' in line]
    assert len(history) == 3, "a rebalance after the first"  # as docs/start.md says
    assert all('"generation": 1' in line for line in history[1:])
    dumped = subprocess.run(
        [sys.executable, "-P", "-m", "tenure", "log", "dump", "--group", "billing", "--kind", "groups", str(folder / "data")],
        capture_output=True, text=True, check=True, env=environment(), cwd=os.sep,
    )  # fmt: skip
    assert set(re.findall(r"generation (\d+), 1 member", dumped.stdout)) == {"1"}
    assert dumped.stdout.count("instance billing-1") >= 2, "the restarted consumer got its seat"
