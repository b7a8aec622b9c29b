from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from project import compiled
from setup import PACKAGES, compiled_modules

BUILT = "storage/log.cpython-311-x86_64-linux-gnu.so"


def test_only_a_build_as_new_as_its_source_may_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "storage").mkdir()
    source, module = tmp_path / "storage/log.py", tmp_path / BUILT
    source.touch()
    assert compiled.refuse_stale(tmp_path) == 0
    module.touch()
    os.utime(source, (100, 100))
    os.utime(module, (100, 100))
    assert compiled.refuse_stale(tmp_path) == 0
    os.utime(source, (101, 101))
    assert compiled.refuse_stale(tmp_path) == 1
    assert BUILT in capsys.readouterr().err
    source.unlink()
    assert compiled.refuse_stale(tmp_path) == 1


def test_a_copy_follows_its_source_and_skips_unchanged_files(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    (source / "deep").mkdir(parents=True)
    for name in ("kept.py", "changed.py", "gone.py", "gone.css", "deep/schema.toml", "deep/page.html", "deep/left.so"):
        (source / name).write_text(name)
    compiled.mirror(source, copy)
    os.utime(copy / "kept.py", (100, 100))
    (copy / "built.so").touch()
    (source / "changed.py").write_text("anew")
    (source / "gone.py").unlink()
    (source / "gone.css").unlink()
    compiled.mirror(source, copy)
    files = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert files == {"kept.py", "changed.py", "deep/schema.toml", "deep/page.html", "built.so"}
    assert (copy / "kept.py").stat().st_mtime == 100
    assert (copy / "changed.py").read_text() == "anew"


def test_a_copy_has_every_installed_file() -> None:
    assert set(compiled.PACKAGES) == {*PACKAGES, "tenure", "pyspark_koffsets"}
    assert all((compiled.ROOT / name).exists() for name in (*compiled.PACKAGES, *compiled.OTHER_WHEEL_FILES))


def test_a_wheel_has_no_file_that_was_removed_since_its_build(tmp_path: Path) -> None:
    lib = tmp_path / "build/lib.linux/tenure/_inside"
    for folder in (tmp_path, lib):
        (folder / "storage").mkdir(parents=True)
    for name in ("kept.py", "kept.cpython-311-x86_64-linux-gnu.so", "gone.py", "gone.cpython-311-x86_64-linux-gnu.so"):
        (lib / "storage" / name).touch()
    (lib / "tenure__mypyc.cpython-311-x86_64-linux-gnu.so").touch()
    (tmp_path / "storage/kept.py").touch()
    compiled.forget_removed(tmp_path)
    files = {path.name.split(".")[0] for path in lib.rglob("*.*") if path.is_file()}
    assert files == {"kept", "tenure__mypyc"}


def test_a_missing_compiler_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CC", "no-such-compiler --fast")
    monkeypatch.setattr("sys.argv", ["compiled"])
    assert compiled.main() == 1
    err = capsys.readouterr().err
    assert "needs a C compiler, and there is no no-such-compiler" in err
    assert err.count("\n") == 1


def test_only_pure_packages_are_compiled() -> None:
    modules = compiled_modules(compiled.ROOT)
    assert {"protocol/wire.py", "protocol/messages/heartbeat.py", "coordinator/hold.py", "storage/log.py", "broker/net/connection.py"} <= set(modules)
    assert not {"storage/disk.py", "protocol/generate.py", "protocol/__init__.py"} & set(modules)
    assert not [name for name in modules if name.startswith(("protocol/generator", "cli"))]


def test_no_interpreted_class_inherits_from_a_compiled_one() -> None:
    modules = set(compiled_modules(compiled.ROOT))
    for path in sorted(compiled.ROOT.glob("broker/**/*.py")):
        if str(path.relative_to(compiled.ROOT)) in modules:
            continue
        tree = ast.parse(path.read_text())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and f"{str(node.module).replace('.', '/')}.py" in modules]
        native = {name.asname or name.name for node in imports for name in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                assert not native & {ast.unparse(base) for base in node.bases}, (path, node.name)
