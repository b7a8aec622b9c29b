from __future__ import annotations

from pathlib import Path

import pytest

from project import quick


def test_changed_tests_come_first_then_those_that_import_a_changed_module_then_the_others_of_its_folder(tmp_path: Path) -> None:
    files = {
        "tests/broker/api/test_a.py": "from broker.api import b\n",
        "tests/broker/api/test_b.py": "from broker.api.c import x\n",
        "tests/broker/net/test_d.py": "",
        "tests/cli/test_e.py": "from broker.api.b import x\n",
        "tests/cli/test_f.py": "import broker.api.b\n",
        "tests/cli/test_g.py": "from broker.api.broken import x\n",
        "tests/storage/test_h.py": "",
        "tests/storage/test_i.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    changed = ["broker/api/b.py", "docs/groups.md", "setup.py", "tests/storage/conftest.py", "tests/storage/test_i.py"]
    assert [test for test in quick.chosen(changed, tmp_path) if test not in quick.ALWAYS] == [
        "tests/storage/test_i.py",
        "tests/broker/api/test_a.py",
        "tests/cli/test_e.py",
        "tests/cli/test_f.py",
        "tests/broker/api/test_b.py",
        "tests/storage/test_h.py",
    ]


def test_a_package_without_a_folder_of_tests_has_that_of_the_package_around_it(tmp_path: Path) -> None:
    (tmp_path / "tests/coordinator").mkdir(parents=True)
    assert quick.folder_of("coordinator/classic/join.py", tmp_path) == "tests/coordinator"
    assert quick.folder_of("setup.py", tmp_path) is None


@pytest.mark.parametrize("test", quick.ALWAYS)
def test_what_is_always_run_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (quick.ROOT / file).read_text() or (not name and (quick.ROOT / file).is_file())
