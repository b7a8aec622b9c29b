"""The archives of `make dist`: their contents, and a broker served from them alone.

In `make compiled-test` the compiled wheel of the copy under test is used.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from cli import VERSION
from project import distribution
from project.install import SERVING
from setup import description
from tests.project.archives import COMPILED, copy_of_the_checkout, environment_with, wheel_of
from tests.running import wait_until

pytestmark = pytest.mark.install

PLAIN = {"PATH": os.defpath, "PYTHONWARNINGS": "error"}
BUILD = "compiled" if COMPILED else "plain"


def test_the_archives_have_only_the_files_of_the_application(archives: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert distribution.main([str(archives), *(["--compiled"] if COMPILED else [])]) == 0, capsys.readouterr().err


def test_surplus_and_missing_files_of_an_archive_are_named(archives: Path) -> None:
    (wheel,) = archives.glob("*.whl")
    names = distribution.wheel_names(wheel)
    inside, (log,) = distribution.INSIDE, [name for name in names if name.endswith("storage/log.py")]
    assert distribution.problems_of(names, wheel=True, machine_code=COMPILED) == []
    for stray in (f"{inside}storage/disk.so", f"{inside}protocol/generate.py", "storage/log.py", "tenure__mypyc.so"):
        assert distribution.problems_of([*names, stray], wheel=True, machine_code=COMPILED) == [f"{stray} does not belong there"]
    for name in (name for name in names if name.endswith(".so") and ("storage/log." in name or "tenure__mypyc" in name)):
        without = [package for package in names if package != name]
        assert distribution.problems_of(without, wheel=True, machine_code=True) == [f"{name.split('.')[0]} is not compiled"]
    page = [name for name in names if name.endswith("/page.html")]
    assert distribution.problems_of([name for name in names if name not in page], wheel=True, machine_code=COMPILED) == [f"{page[0]} is missing"]
    if not COMPILED:
        assert f"{log.removesuffix('.py')} is not compiled" in distribution.problems_of(names, wheel=True, machine_code=True)


def test_the_package_metadata_is_complete(archives: Path) -> None:
    (wheel,) = archives.glob("*.whl")
    with ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        metadata: Message = Parser().parsestr(opened.read(name).decode())
    assert (metadata["Name"], metadata["Version"], metadata["License-Expression"], metadata["Requires-Python"]) == ("tenure", VERSION, "Apache-2.0", ">=3.11")
    assert metadata.get_all("License-File") == ["LICENSE", "NOTICE"]
    assert metadata["Summary"]
    assert metadata["Author"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "make run" in str(metadata.get_payload())
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(metadata.get_all("Classifier", []))
    locked = {line.split("==")[0] for line in SERVING.read_text().splitlines() if line[0].isalnum()}
    needed = [requirement for requirement in metadata.get_all("Requires-Dist", []) if "extra ==" not in requirement]
    assert {requirement.split(">")[0] for requirement in needed} == locked


def test_an_installation_leaves_nothing_in_the_checkout(tmp_path: Path) -> None:
    checkout = copy_of_the_checkout(tmp_path / "tenure")
    before = sorted(checkout.rglob("*"))
    for words in (["wheel", "--wheel-dir", str(tmp_path / "wheels")], ["install", "--target", str(tmp_path / "target")]):
        command = [sys.executable, "-I", "-m", "pip", *words, "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "."]
        done = subprocess.run(command, cwd=checkout, env=PLAIN, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(checkout.rglob("*")) == before
    assert (tmp_path / "target" / "tenure" / "_inside" / "broker").is_dir()


def test_the_page_of_a_package_index_has_no_link_that_leads_nowhere(archives: Path) -> None:
    wheel = wheel_of(archives)
    with ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        page = str(Parser().parsestr(opened.read(name).decode()).get_payload())
    targets = re.findall(r"\]\(([^)\s]+)", page) + re.findall(r"(?:src|href)=[\"\']([^\"\']+)", page)
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    assert "docs/start.md" in page


@pytest.mark.parametrize(
    ("readme", "without", "linked"),
    [
        ("see [the start](docs/start.md#how)", "see the start", "see [the start](https://e/blob/HEAD/docs/start.md#how)"),
        ("![a report](docs/report.png)", "", "![a report](https://e/raw/HEAD/docs/report.png)"),
        ("[![a report](docs/r.png)](docs/a.md)", "", "[![a report](https://e/raw/HEAD/docs/r.png)](https://e/blob/HEAD/docs/a.md)"),
        ("[there](https://x/y) and [here](#here)", "[there](https://x/y) and [here](#here)", "[there](https://x/y) and [here](#here)"),
    ],
)
def test_relative_links_lead_into_the_repository_if_it_has_an_address(readme: str, without: str, linked: str) -> None:
    assert description(readme, None) == without
    assert description(readme, "https://e") == linked


def test_the_wheel_declares_its_own_name_and_that_of_the_spark_source(archives: Path) -> None:
    (wheel,) = archives.glob("*.whl")
    with ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/top_level.txt")]
        assert sorted(opened.read(name).decode().split()) == ["pyspark_koffsets", "tenure"]


OURS = ("protocol", "coordinator", "storage", "history", "secured", "broker", "pipeline", "cli")
DECOY = "raise ImportError('this is a package of another application')\n"


@pytest.fixture(scope="module")
def environment(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and with packages of another application that have the same names as ours."""
    venv = environment_with(archives, tmp_path_factory.mktemp("environment"))
    (site_packages,) = venv.glob("lib/python3.*/site-packages")
    decoys(site_packages)
    return venv


def decoys(folder: Path) -> Path:
    for name in OURS:
        assert not (folder / name).exists(), "the installation has a top-level package with a common name"
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(DECOY)
    return folder


def test_the_wheel_installs_one_package_without_import_side_effects(environment: Path) -> None:
    code = "import sys; before = list(sys.path), set(sys.modules); import tenure; print(list(sys.path) == before[0], set(sys.modules) - before[1])"
    done = subprocess.run([environment / "bin/python", "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True {'tenure'}\n"


MEMBER = """
import os, sys
from kafka import KafkaConsumer
reader = KafkaConsumer("words", bootstrap_servers=sys.argv[1], group_id="clients", group_instance_id="one", auto_offset_reset="earliest",
                       enable_auto_commit=False, max_poll_records=1, consumer_timeout_ms=30_000)
print(*(next(reader).offset for _ in range(5)), flush=True)
reader.commit()
os._exit(0)  # without a word to the broker: its seat is kept
"""


class Installed:
    """The wheel's command, run where other packages of the same names are installed, on PYTHONPATH and in the current folder."""

    def __init__(self, environment: Path, folder: Path) -> None:
        self.bin = environment / "bin"
        self.folder = folder
        self.bootstrap: tuple[str, ...] = ()
        self.run_options = {"cwd": decoys(folder / "elsewhere"), "env": PLAIN | {"PYTHONPATH": f"{decoys(folder / 'path')}:."}, "text": True}

    def __call__(self, *arguments: str, input: str | None = None, program: tuple[str, ...] = ("tenure",)) -> str:
        command = [str(self.bin / program[0]), *program[1:], *arguments]
        done = subprocess.run(command, capture_output=True, input=input, timeout=60, check=False, **self.run_options)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    @contextmanager
    def serving(self) -> Iterator[subprocess.Popen[str]]:
        """Serve, at the same address as in the run before."""
        listen = self.bootstrap[1] if self.bootstrap else "127.0.0.1:0"
        command = [str(self.bin / "tenure"), "serve", "--listen", listen, "--data", str(self.folder / "data")]
        with (self.folder / "errors").open("a") as errors:
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, **self.run_options)  # type: ignore[call-overload]
        try:
            listening = server.stdout.readline()
            assert listening.startswith("listening PLAINTEXT 127.0.0.1:"), listening + self.errors()
            self.bootstrap = ("--bootstrap", listening.split()[-1])
            self("health", self.bootstrap[1], "--wait", "30")
            yield server
        finally:
            server.kill()
            server.wait()
            server.stdout.close()

    def errors(self) -> str:
        return (self.folder / "errors").read_text()

    def offsets_consumed_by_client(self) -> list[int]:
        """Run a client with this test run's own Python, which exits after five records without leaving; returns the offsets that it printed."""
        run = subprocess.run([sys.executable, "-I", "-c", MEMBER, self.bootstrap[1]], capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == 0, run.stderr
        return list(map(int, run.stdout.split()))


@pytest.fixture
def tenure(environment: Path, tmp_path: Path) -> Installed:
    return Installed(environment, tmp_path)


def test_the_version_names_the_build(tenure: Installed) -> None:
    version_line = f"tenure {VERSION} ({BUILD}, Python {sys.version.split()[0]})\n"
    assert tenure("--version") == version_line
    assert tenure("--version", program=("python", "-m", "tenure")) == version_line


def test_an_installed_broker_works_with_packages_of_the_same_names_and_survives_a_kill(tenure: Installed) -> None:
    with tenure.serving() as server:
        wait_until(lambda: f'"build": "{BUILD}, ' in tenure.errors())  # the first lines come a moment after it listens
        compacted = ("cleanup.policy=compact", "segment.bytes=1048576", "min.cleanable.dirty.ratio=0.01")
        tenure("topic", "create", "words", *(word for setting in compacted for word in ("--set", setting)), *tenure.bootstrap)
        lines = "".join(f"key{number % 10}:{'x' * 10_000}\n" for number in range(500))
        tenure("produce", "words", "--key-separator", ":", *tenure.bootstrap, input=lines)
        wait_until(lambda: "cleaned" in tenure.errors(), 60)
        assert "cleaned" in tenure.errors(), "no log was compacted"
        assert tenure("consume", "words", "--group", "readers", "--from-beginning", "--limit", "10", *tenure.bootstrap).count("x" * 10_000) == 10
        first = tenure.offsets_consumed_by_client()
        assert server.poll() is None
    with tenure.serving() as server:
        second = tenure.offsets_consumed_by_client()
        assert first + second == sorted({*first, *second}), "it continued at its committed offset"
        (described,) = json.loads(tenure("group", "describe", "clients", "--json", *tenure.bootstrap))["groups"]
        assert {partition["instance_id"] for partition in described["partitions"]} == {"one"}
        history = tenure("group", "history", "clients", *tenure.bootstrap)
        assert history.count("generation 0 -> 1") == 1
        assert "generation 1 -> 2" not in history
        assert "readers" in tenure("group", "list", *tenure.bootstrap)
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0, tenure.errors()
    assert "0 problems" in tenure("log", "verify", str(tenure.folder / "data"))
