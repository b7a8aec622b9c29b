"""The tests of rust-rdkafka, the client of Rust over librdkafka: its crate has them, and cargo fetches, builds and runs them."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.suites.results import Tests, libtest
from tests.suites.suite import Run, Suite, SuiteError, call, run_suite

VERSION = "0.39.0"
BUILD_SECONDS = 3600
SECONDS = 900

MANIFEST = f"""[package]
name = "fetching"
version = "0.0.0"
edition = "2021"
[lib]
path = "lib.rs"
[dependencies]
rdkafka = "={VERSION}"
"""


def fetch(folder: Path) -> None:
    """Let cargo download and unpack the crate, copy its folder, and build the tests."""
    fetching = folder / "fetching"
    fetching.mkdir(exist_ok=True)
    (fetching / "lib.rs").touch()
    (fetching / "Cargo.toml").write_text(MANIFEST)
    call(["cargo", "vendor", "--quiet", "--versioned-dirs", "vendored"], fetching)
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(fetching / "vendored" / f"rdkafka-{VERSION}", source)
    shutil.rmtree(fetching)
    call(["cargo", "test", "--quiet", "--no-run", "--tests"], source, seconds=BUILD_SECONDS)


def run(run: Run) -> Tests:
    """Run each test file by itself, as cargo does, so that each has its own output."""
    targets = sorted(file.stem for file in (run.folder / "source" / "tests").glob("test_*.rs"))
    tests: Tests = {}
    with (run.report / "log").open("w") as log_file:
        for target in targets:
            log = run.report / f"log.{target}"
            command = ["cargo", "test", "--test", target, "--", *([run.only] if run.only else [])]
            environment = {"KAFKA_HOST": f"127.0.0.1:{run.port}", "KAFKA_VERSION": "4.3.1", "RUST_BACKTRACE": "0"}
            run_suite(command, run.folder / "source", log, seconds=SECONDS, **environment)
            text = log.read_text(errors="replace")
            log_file.write(text)
            tests |= libtest(text, target)
    if not tests:
        raise SuiteError(f"no test ran; see {run.report / 'log'}")
    return tests


SUITE = Suite(
    name="rust-rdkafka",
    client="rust-rdkafka",
    version=VERSION,
    source="its crate",
    fetch=fetch,
    run=run,
    # The settings of the crate's own docker-compose.yaml.
    settings={"node.id": "0", "num.partitions": "3"},
    host="localhost",
    port=9092,  # fixed in some of its tests
)
