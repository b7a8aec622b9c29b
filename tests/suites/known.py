"""The known failures of a suite, each with its reason, and the verdict on a run compared with them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from tests.suites.results import Result, Tests, count

FOLDER = Path(__file__).parent / "known"
# A test that passes faster than a request's round trip has probably skipped its body.
QUICK_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Expectations:
    """`failing` and `sometimes` map tests to reasons. `passing`: the least number of tests that must pass, so that a suite whose
    tests are all skipped or not found fails. `quick`: patterns of tests that may pass in almost no time, with the reason.
    """

    passing: int
    failing: dict[str, str] = field(default_factory=dict)
    sometimes: dict[str, str] = field(default_factory=dict)
    quick: dict[str, str] = field(default_factory=dict)

    def may_be_quick(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.quick)


def known(name: str, folder: Path = FOLDER, *, kafka: bool = False, nodes: bool = False) -> Expectations:
    """The known failures of this broker; with `kafka` those of Apache Kafka, with `nodes` those of several nodes, from the same file."""
    file = folder / f"{name}.toml"
    listed = tomllib.loads(file.read_text())
    least = listed["passing"]
    expectations = Expectations(least["kafka"] if kafka else least.get("nodes", least["tenure"]) if nodes else least["tenure"])
    for group in listed.get("failing", []):
        fails = {"tenure": not kafka, "nodes": nodes, "kafka": kafka, "both": True}[group.get("with", "tenure")]
        into = expectations.sometimes if group.get("sometimes") else expectations.failing
        for test in group["tests"]:
            if fails and (test in expectations.failing or test in expectations.sometimes):
                raise ValueError(f"{file}: {test} is listed twice")
            if not group["reason"].strip():
                raise ValueError(f"{file}: {test} has no reason")
            if fails:
                into[test] = group["reason"]
    for group in listed.get("quick", []):
        if not group["reason"].strip():
            raise ValueError(f"{file}: {group['tests']} has no reason")
        expectations.quick.update(dict.fromkeys(group["tests"], group["reason"]))
    return expectations


def judge(tests: Tests, expectations: Expectations, *, complete_run: bool = True) -> list[str]:
    """The problems of a run, one line each. For a part of a suite, tests that did not run are ignored."""
    wrong = []
    for name, test in sorted(tests.items()):
        if test.result is Result.FAILED and name not in expectations.failing and name not in expectations.sometimes:
            wrong.append(f"{name} failed and is not listed: {test.text}")
        elif test.result is not Result.FAILED and name in expectations.failing:
            wrong.append(f"{name} is listed as failing and {test.result}: take it off the list")
        elif test.result is Result.PASSED and test.seconds is not None and test.seconds < QUICK_SECONDS and not expectations.may_be_quick(name):
            wrong.append(f"{name} passed in {test.seconds} s: find out whether it did anything, and list it under `quick` with the reason")
    if complete_run:
        listed = expectations.failing | expectations.sometimes
        wrong += [f"{name} is listed and did not run: take it off the list" for name in sorted(listed) if name not in tests]
        passed = count(tests)[Result.PASSED]
        if passed < expectations.passing:
            wrong.append(f"{passed} passed; at least {expectations.passing} have to")
    return wrong
