from __future__ import annotations

import ast

import pytest

from project.distribution import PACKAGES
from tests.running import ROOT

pytestmark = pytest.mark.once  # files of this checkout do not depend on the Python version


def unsafe_children(source: str) -> list[int]:
    """Lines with sys.executable not directly followed by "-P": such a child would import `storage` from the folder it starts in."""
    tree = ast.parse(source)
    safe: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple):
            safe.update(id(first) for first, second in zip(node.elts, node.elts[1:], strict=False) if isinstance(second, ast.Constant) and second.value == "-P")
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "executable" and id(node) not in safe]


def test_child_processes_start_with_dash_p() -> None:
    sources = [path for package in sorted(PACKAGES) for path in (ROOT / package).rglob("*.py")]
    assert len(sources) > 50
    starting = {path: text for path in sources if "executable" in (text := path.read_text())}
    assert not [f"{path}:{line}" for path, text in starting.items() for line in unsafe_children(text)]


@pytest.mark.parametrize(
    ("source", "unsafe"),
    [
        ("Popen([sys.executable, '-P', '-m', 'tenure'])", []),
        ("Popen((sys.executable, '-P', script))", []),
        ("Popen([sys.executable, '-m', 'tenure'])", [1]),
        ("Popen([sys.executable, '-m', 'tenure', '-P'])", [1]),
        ("\nPopen([sys.executable])", [2]),
        ("python = sys.executable", [1]),
    ],
)
def test_a_child_without_dash_p_is_noticed(source: str, unsafe: list[int]) -> None:
    assert unsafe_children(source) == unsafe
