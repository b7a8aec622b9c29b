"""The committed code equals the output of the generator."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol import generate
from protocol.generator import from_toml

pytestmark = pytest.mark.once  # files of this checkout do not depend on the Python version


def test_the_committed_messages_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0
    assert capsys.readouterr().err == ""


def test_stale_missing_and_left_over_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "MESSAGES", tmp_path)
    rendered = generate.rendered()
    monkeypatch.setattr(generate, "rendered", lambda: rendered)
    for name, text in rendered.items():
        (tmp_path / name).write_text(text + "#" if name == "fetch.py" else text)
    (tmp_path / "heartbeat.py").unlink()
    (tmp_path / "gone.py").write_text("")
    assert generate.main(["--check"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [Path(line.split(":")[0]).name for line in lines] == ["fetch.py", "gone.py", "heartbeat.py"]
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    assert not (tmp_path / "gone.py").exists()


def test_nothing_that_serves_imports_the_generator() -> None:
    for path in Path(generate.__file__).parent.rglob("*.py"):
        if path.name != "generate.py" and path.parent.name != "generator":
            text = path.read_text()
            assert "import kio" not in text
            assert "from kio" not in text
            assert "protocol.generator" not in text


def test_a_version_that_kio_lacks_is_refused_until_its_fields_are_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    join_group = {"key": 11, "name": "JoinGroup", "advertised": [0, 10]}
    monkeypatch.setattr(from_toml, "apis", lambda: [join_group])
    with pytest.raises(ValueError, match="JoinGroup version 10"):
        from_toml.api_modules()
    rack = {"in": "JoinGroupRequest", "after": "reason", "name": "rack_id", "type": "string", "nullable": True, "versions": "10+"}
    join_group["new"] = [rack]
    (module,) = from_toml.api_modules()
    fields = module.messages[0].struct.fields
    assert [(field.name, field.versions) for field in fields[-2:]] == [("reason", (8, 10)), ("rack_id", (10, 10))]
    join_group["ended"] = [{"in": "JoinGroupRequest", "name": "reason", "last": 9}]
    join_group["arguments_last"] = ["protocol_type"]
    (module,) = from_toml.api_modules()
    struct = module.messages[0].struct
    assert [(field.name, field.versions) for field in struct.fields[-2:]] == [("reason", (8, 9)), ("rack_id", (10, 10))]
    assert [field.name for field in struct.arguments[-3:]] == ["reason", "rack_id", "protocol_type"]
    join_group["new"] = [rack | {"in": "JoinGrupRequest"}]
    with pytest.raises(ValueError, match="JoinGrupRequest"):
        from_toml.api_modules()
