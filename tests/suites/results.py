"""The result of each test of a run, read from the formats of test runners."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree


class Result(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Case(NamedTuple):
    result: Result
    text: str  # why it failed or was skipped, in the suite's own words
    seconds: float | None = None  # None: the runner does not report it


Tests = dict[str, Case]


def junit(file: Path) -> Tests:
    """The tests in a JUnit XML file, which pytest and other runners write. An error during set-up or tear-down counts as a failure."""
    tests: Tests = {}
    for case in ElementTree.parse(file).iter("testcase"):
        name = f"{case.get('classname', '').removeprefix('test.')}::{case.get('name', '')}"
        outcomes = {child.tag: child.get("message") or child.text or "" for child in case}
        seconds = float(time) if (time := case.get("time")) else None
        for tag, result in (("failure", Result.FAILED), ("error", Result.FAILED), ("skipped", Result.SKIPPED)):
            if tag in outcomes:
                test = Case(result, one_line(outcomes[tag]), seconds)
                break
        else:
            test = Case(Result.PASSED, "", seconds)
        if name not in tests or tests[name].result is not Result.FAILED:
            tests[name] = test
    return tests


GO_RESULTS = {"pass": Result.PASSED, "fail": Result.FAILED, "skip": Result.SKIPPED}
GO_NOISE = ("=== ", "--- ")


def go_json(lines: Iterable[str]) -> Tests:
    """`go test -json`. A test that began and has no end (the run was cut off) has failed."""
    tests: Tests = {}
    outputs: dict[str, list[str]] = {}
    for line in lines:
        if not line.startswith("{"):
            continue  # compiler output, on the same stream
        event = json.loads(line)
        name = event.get("Test")
        if name is None:
            continue
        if event["Action"] == "run":
            tests[name] = Case(Result.FAILED, "began and did not end")
        elif event["Action"] == "output":
            outputs.setdefault(name, []).append(event["Output"])
        elif event["Action"] in GO_RESULTS:
            result = GO_RESULTS[event["Action"]]
            words = [words for words in outputs.get(name, []) if words.strip() and not words.strip().startswith(GO_NOISE)]
            text = "" if result is Result.PASSED else one_line(" ".join(word.strip() for word in words[-6:]))
            tests[name] = Case(result, text, event.get("Elapsed"))
    return tests


RUST_LINE = re.compile(r"^test (?P<name>\S+)(?: - should panic)? \.\.\. .*?(?P<result>ok|FAILED|ignored)\b", re.MULTILINE)
RUST_RESULTS = {"ok": Result.PASSED, "FAILED": Result.FAILED, "ignored": Result.SKIPPED}


def libtest(output: str, target: str) -> Tests:
    """The output of `cargo test` for one target."""
    panics = dict(re.findall(r"^---- (\S+) stdout ----\n(?:.*\n)*?.*panicked at (?:.*\n)(.*)$", output, re.MULTILINE))
    return {f"{target}::{name}": Case(RUST_RESULTS[result], one_line(panics.get(name, ""))) for name, result in RUST_LINE.findall(output)}


def one_line(text: str, most: int = 300) -> str:
    return " ".join(text.split())[:most]


def count(tests: Tests) -> dict[Result, int]:
    return {result: sum(test.result is result for test in tests.values()) for result in Result}
