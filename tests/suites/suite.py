"""The definition of a suite, and the steps that suites have in common."""

from __future__ import annotations

import os
import signal
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.suites.results import Tests

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "suites"
FETCH_SECONDS = 600
# For suites that require access control: an authorizer that refuses no request.
ALLOW_EVERYONE = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "allow.everyone.if.no.acl.found": "true"}


class SuiteError(Exception):
    """The suite could not be fetched, built or run, in one line."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run against a broker: the suite's folder, the broker, the selected tests, the time limit."""

    folder: Path
    port: int
    broker: str  # `tenure` or `kafka`
    only: str
    report: Path  # a folder for the files of the run


@dataclass(frozen=True, slots=True)
class Suite:
    """`settings`: settings of the broker, taken from the suite's own set-up for Kafka. `kafka_settings`: those that only Kafka needs.

    `port` is for suites that need a fixed port. `nodes` is the least number of brokers that the suite needs. With `proxied_port` the first
    node's clients are sent to that port, the second's to the next one and so on, where the suite has a proxy. `fetch` fills a folder, once for a `version`; `run` runs the suite.
    """

    name: str
    client: str
    version: str
    source: str  # the origin of the suite, as text
    fetch: Callable[[Path], None]
    run: Callable[[Run], Tests]
    settings: Mapping[str, str] = field(default_factory=dict)
    kafka_settings: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"  # the address that the broker advertises
    port: int = 0
    nodes: int = 1
    proxied_port: int = 0
    folder_of: str = ""  # the suite whose folder it uses, if that is another one

    @property
    def folder(self) -> Path:
        return CACHE / f"{self.folder_of or self.name}-{self.version}"


def fetched(suite: Suite) -> Path:
    """The suite's folder, fetched and built if missing; an interrupted fetch is repeated."""
    done = suite.folder / ".fetched"
    if not done.exists():
        suite.folder.mkdir(parents=True, exist_ok=True)
        suite.fetch(suite.folder)
        done.touch()
    return suite.folder


def call(command: Sequence[str | Path], cwd: Path, *, seconds: float = FETCH_SECONDS, **more: str) -> str:
    """Run a command that must succeed; returns its output."""
    try:
        done = subprocess.run(
            command, cwd=cwd, env=os.environ | more, capture_output=True, text=True, errors="replace", timeout=seconds, check=False
        )
    except FileNotFoundError as error:
        raise SuiteError(f"{command[0]} is needed and not on PATH") from error
    except subprocess.TimeoutExpired as error:
        raise SuiteError(f"{' '.join(map(str, command))} did not end within {seconds:.0f} s") from error
    if done.returncode != 0:
        raise SuiteError(f"{' '.join(map(str, command))} ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-600:]}")
    return done.stdout


def run_suite(command: Sequence[str | Path], cwd: Path, log: Path, *, seconds: float, **more: str) -> None:
    """Run a suite, which may fail; its output goes to `log`. After the time limit it is killed with its child processes."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=cwd, env=os.environ | more, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            print(f"the suite did not end within {seconds:.0f} s; what it said until then counts")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a source package without its first folder."""
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            _, _, member.name = member.name.partition("/")
            if member.name:
                tar.extract(member, folder, filter="data")
