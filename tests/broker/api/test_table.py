"""Each API has one file, which is named after the API and listed in the table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from broker.api import table


@pytest.mark.plain
def test_each_api_is_routed_by_the_file_of_its_name() -> None:
    parts: Any = MagicMock()
    parts.setting_sources.default.return_value = ("", 0)
    parts.directory.path = "data"
    modules: Any = table.SERVED
    in_table = [Path(module.__file__).stem for module in modules]
    named = [re.sub(r"(?<!^)(?=[A-Z])", "_", route.api.name).lower() for route in table.routes(parts)]
    files = [path.stem for path in Path(table.__file__).parent.glob("*.py") if "\ndef route(" in path.read_text()]
    assert in_table == named
    assert sorted(in_table) == sorted(files)
