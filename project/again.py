"""A pytest plugin: reruns failed tests, if they are few, three times with no other test in parallel. If all pass each time, they count as passed.

Clients, brokers and timers of a test share two cores with other tests, so some are late by chance. A test with a defect usually fails again, since
a rerun gets the same random numbers. The last lines, and the report that `make test` reads, name the tests that failed at first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from _pytest.junitxml import xml_key

RERUN_FAILURES_MAX = 3
RERUNS = 3
PROPERTY = "passed_alone"

passed_alone = pytest.StashKey[list[str]]()


@pytest.hookimpl(tryfirst=True)  # before the report is written
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if hasattr(config, "workerinput") or exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    reporter = config.pluginmanager.getplugin("terminalreporter")
    failed = sorted({report.nodeid for outcome in ("failed", "error") for report in reporter.stats.get(outcome, [])})
    if not 0 < len(failed) <= RERUN_FAILURES_MAX:
        return
    reporter.write_line("")
    reporter.write_sep("=", f"{len(failed)} failed: run again {RERUNS} times, with no other test in parallel")
    if all(passes(config, failed) for _ in range(RERUNS)):
        config.stash[passed_alone] = failed
        session.exitstatus = pytest.ExitCode.OK
        if report := config.stash.get(xml_key, None):
            for name in failed:
                report.add_global_property(PROPERTY, name)


def passes(config: pytest.Config, tests: Sequence[str]) -> bool:
    chosen = set(map(str, config.option.file_or_dir))
    options = [argument for argument in map(str, config.invocation_params.args) if argument not in chosen]
    alone = ["-n0", "--dist=no", f"--junitxml={os.devnull}", "-pno:project.again", f"--randomly-seed={config.option.randomly_seed}"]
    command = [sys.executable, *(["-P"] if sys.flags.safe_path else []), "-m", "pytest", *options, *alone, *tests]
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name in config.stash.get(passed_alone, []):
        terminalreporter.write_line(f"PASSED ALONE {RERUNS} times, after it failed in parallel with others: {name}")
