from __future__ import annotations

from email.message import Message
from pathlib import Path

import pytest

from project import licences


def package(*headers: tuple[str, str]) -> Message:
    metadata = Message()
    for name, value in headers:
        metadata[name] = value
    return metadata


@pytest.fixture
def package_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Message]:
    """Two locks of three packages whose metadata a test may change: `broker` is needed for serving, the others are not."""
    installed = {name: package(("License-Expression", "MIT")) for name in ("broker", "tester", "crc32c")}
    (tmp_path / "serving.txt").write_text("# a lock\nbroker==1 \\\n    --hash=sha256:00\n")
    (tmp_path / "development.txt").write_text("broker==1 \\\n    --hash=sha256:00\ntester==2\ncrc32c==3\nwindows==1 ; sys_platform == 'win32' \\\n")
    monkeypatch.setattr(licences, "metadata", lambda name: installed[name])
    return installed


def verdict(tmp_path: Path) -> int:
    return licences.main(tmp_path / "serving.txt", tmp_path / "development.txt")


def test_packages_with_listed_licences_pass(package_metadata: dict[str, Message], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(tmp_path) == 0
    assert capsys.readouterr().out == "licences: all 3 locked packages may be used; not on this system, so not judged: windows\n"


@pytest.mark.parametrize(
    "metadata",
    [
        package(("License-Expression", "GPL-3.0-only")),
        package(("License-Expression", "MIT AND GPL-2.0-or-later")),
        package(("Classifier", "License :: OSI Approved :: GNU General Public License v3 (GPLv3)"), ("License", "MIT")),
        package(("Classifier", "License :: OSI Approved :: MIT License"), ("Classifier", "License :: Other/Proprietary License")),
        package(("License", "ask us")),
        package(("License", "")),
        package(("Classifier", "License :: OSI Approved")),
        package(),
    ],
)
@pytest.mark.parametrize("name", ["broker", "tester"])
def test_any_other_licence_fails(
    package_metadata: dict[str, Message], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, metadata: Message
) -> None:
    package_metadata[name] = metadata
    assert verdict(tmp_path) == 1
    assert f"licences: {name}: " in capsys.readouterr().err


def test_a_licence_exception_for_development_does_not_apply_to_serving(package_metadata: dict[str, Message], tmp_path: Path) -> None:
    lesser = package(("Classifier", "License :: OSI Approved :: GNU Lesser General Public License v2 or later (LGPLv2+)"))
    package_metadata["crc32c"] = lesser
    assert verdict(tmp_path) == 0
    (tmp_path / "serving.txt").write_text("crc32c==3\n")
    assert verdict(tmp_path) == 1


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only OR (MIT AND Apache-2.0)", True),
        ("(GPL-3.0-only OR MIT) AND Apache-2.0", True),
        ("MIT AND (GPL-3.0-only OR AGPL-3.0-only)", False),
        ("MIT OR Apache-2.0 AND GPL-3.0-only", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("MIT MIT", False),
        ("(MIT", False),
        ("MIT AND", False),
        ("", False),
    ],
)
def test_licence_expressions_are_evaluated(expression: str, allowed: bool) -> None:
    assert licences.allowed(expression) is allowed
