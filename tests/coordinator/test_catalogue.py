"""Every scenario number of the catalogue is tested, points to tested scenarios, or is left out with a reason.

scenario_numbers.txt has all numbers; scenarios.py has the decorators that attach a number to a test.
"""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TESTS = HERE.parent
MARKS = ("scenario", "row")


@cache
def numbers() -> list[str]:
    return (HERE / "scenario_numbers.txt").read_text().split()


@cache
def left_out() -> list[str]:
    return [number for entry in _exceptions()["left_out"] for number in entry["numbers"]]


@cache
def _exceptions() -> dict[str, Any]:
    return tomllib.loads((HERE / "scenarios_left_out.toml").read_text())


@cache
def scenarios_with_tests() -> dict[str, str]:
    """The scenario numbers that tests are marked with, by `scenario` or `row`; each with the last file that has it."""
    files: dict[str, str] = {}
    for path in sorted(TESTS.rglob("*.py")):
        source = path.read_text()
        if path.is_relative_to(TESTS / "pipeline") or not any(f"{mark}(" in source for mark in MARKS):  # other functions of these names
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MARKS:
                of_test = node.args if node.func.id == "scenario" else node.args[:1]
                for literal in of_test:
                    if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
                        files[literal.value] = path.name
    return files


def test_scenario_numbers_are_unique() -> None:
    assert len(set(numbers())) == len(numbers()) > 400
    assert len(set(left_out())) == len(left_out())


def test_tests_carry_numbers_of_the_catalogue() -> None:
    assert not {number: file for number, file in scenarios_with_tests().items() if number not in numbers()}
    assert not set(left_out()) - set(numbers())


def test_scenarios_listed_as_left_out_have_no_tests() -> None:
    assert not {number: scenarios_with_tests()[number] for number in left_out() if number in scenarios_with_tests()}


def test_pointers_lead_to_tested_scenarios() -> None:
    for number, targets in _exceptions()["pointers"].items():
        assert number in numbers()
        assert targets
        assert not set(targets) - set(scenarios_with_tests()), f"{number} points to a number without a test"


def test_every_number_of_the_catalogue_is_accounted_for() -> None:
    accounted = {*scenarios_with_tests(), *left_out(), *_exceptions()["pointers"]}
    assert not [number for number in numbers() if number not in accounted]


def test_the_search_for_numbers_finds_decorators_and_rows() -> None:
    assert scenarios_with_tests()["SR-01"] == "test_static_restart.py"
    assert scenarios_with_tests()["FE-13"] == "test_leave_group.py"
    assert scenarios_with_tests()["DJ-38"] == "test_new_groups.py"
