"""A project in a folder of its own, whose tests are run by a pytest of its own with the plugin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.running import ROOT, environment

PLUGIN = ROOT / "pytest-tenure"
BEGIN = '''
import pytest
from tests.testing.groups import Static
from tests.running import Client
from protocol.messages.api_versions import ApiVersionsRequest

def ask(kafka, client_id="app"):
    client = Client(int(kafka.bootstrap.rpartition(":")[2]), client_id=client_id)
    try:
        return client.ask(ApiVersionsRequest("t", "1"), 3).error_code
    finally:
        client.socket.close()
'''


class Done:
    """A run that has ended: its output, and how each test ended."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.text = done.stdout + done.stderr

    def outcomes(self, name: str) -> dict[str, str]:
        """The outcomes of the tests of this file, from the summary; a test that passed and failed at its end has an error."""
        return {test: outcome for outcome, test in re.findall(rf"^(PASSED|FAILED|ERROR) {name}\.py::(\S+)", self.text, re.MULTILINE)}

    def all_passed(self, name: str, count: int) -> None:
        assert list(self.outcomes(name).values()) == ["PASSED"] * count, self.text

    def report_of(self, test: str) -> str:
        """What is told of a test that failed."""
        heading = rf"^_+ (?:ERROR at \w+ of )?{re.escape(test)} _+$"
        match = re.search(rf"{heading}(.*?)(?=^_{{3,}} \S|^={{3,}} )", self.text, re.MULTILINE | re.DOTALL)
        assert match, self.text
        return match[1]


class Project:
    """A folder with tests; the plugin is loaded by its name, as an entry point would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pytest.ini").write_text("[pytest]\naddopts = -p pytest_tenure.plugin --strict-markers -p no:cacheprovider -q -rpfE\n")

    def write(self, text: str, name: str = "test_it") -> None:
        (self.folder / f"{name}.py").write_text(BEGIN + text)

    def run(self, *arguments: str, seconds: float = 100, others: bool = False, **more: str) -> Done:
        """`others`: with all plugins of this environment, not the plugin alone."""
        inherited = environment()
        inherited["PYTHONPATH"] = os.pathsep.join([inherited["PYTHONPATH"], str(PLUGIN), str(ROOT)])
        inherited.pop("PYTHONWARNINGS")
        if not others:
            inherited["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        command = [sys.executable, "-P", "-m", "pytest", f"--rootdir={self.folder}", *arguments]
        return Done(subprocess.run(command, cwd=self.folder, env=inherited | more, capture_output=True, text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL))
