"""The failures of a suite that are known, each with its reason, and what a run is when it is held against them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from tests.suites.results import Result, Tests, count

FOLDER = Path(__file__).parent / "known"
# A test that passes faster than a request takes to a broker and back has probably left its body out.
QUICK_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Known:
    """`failing` and `sometimes` map tests to reasons; `passing` is the least that has to pass, so that a suite which skips
    everything, or is no longer found, does not pass for good. `quick` maps patterns of names to the reason why these tests
    may pass in no time."""

    passing: int
    failing: dict[str, str] = field(default_factory=dict)
    sometimes: dict[str, str] = field(default_factory=dict)
    quick: dict[str, str] = field(default_factory=dict)

    def may_be_quick(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.quick)


def known(name: str, folder: Path = FOLDER, *, kafka: bool = False) -> Known:
    """What is known of this broker; with `kafka` of Apache Kafka, which the same file tells."""
    file = folder / f"{name}.toml"
    listed = tomllib.loads(file.read_text())
    found = Known(listed["passing"]["kafka" if kafka else "tenure"])
    for group in listed.get("failing", []):
        fails = {"tenure": not kafka, "kafka": kafka, "both": True}[group.get("with", "tenure")]
        into = found.sometimes if group.get("sometimes") else found.failing
        for test in group["tests"]:
            if fails and (test in found.failing or test in found.sometimes):
                raise ValueError(f"{file}: {test} is listed twice")
            if not group["reason"].strip():
                raise ValueError(f"{file}: {test} has no reason")
            if fails:
                into[test] = group["reason"]
    for group in listed.get("quick", []):
        if not group["reason"].strip():
            raise ValueError(f"{file}: {group['tests']} has no reason")
        found.quick.update(dict.fromkeys(group["tests"], group["reason"]))
    return found


def judge(tests: Tests, known: Known, *, whole: bool = True) -> list[str]:
    """What is wrong with a run, one line each. Of a part of a suite nothing is said about what did not run."""
    wrong = []
    for name, test in sorted(tests.items()):
        if test.result is Result.FAILED and name not in known.failing and name not in known.sometimes:
            wrong.append(f"{name} failed and is not listed: {test.text}")
        elif test.result is not Result.FAILED and name in known.failing:
            wrong.append(f"{name} is listed as failing and {test.result}: take it off the list")
        elif test.result is Result.PASSED and test.seconds is not None and test.seconds < QUICK_SECONDS and not known.may_be_quick(name):
            wrong.append(f"{name} passed in {test.seconds} s: find out whether it did anything, and list it under `quick` with the reason")
    if whole:
        listed = known.failing | known.sometimes
        wrong += [f"{name} is listed and did not run: take it off the list" for name in sorted(listed) if name not in tests]
        passed = count(tests)[Result.PASSED]
        if passed < known.passing:
            wrong.append(f"{passed} passed; at least {known.passing} have to")
    return wrong
