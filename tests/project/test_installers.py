"""uv and pip as installers: which is chosen, what uv is told of pip's settings, and what happens when one fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from project import installers
from project.installers import LOCKED, Pip, UvOrPip, choose, create, find_uv, pins
from project.pip_settings import OnlyPip, for_uv, settings_of_pip
from project.progress import Failed, Progress, run

FILE = """
[global]
index-url = https://index.example.com/simple
find_links =
    /nowhere
    https://links.example.com/
[install]
index-url = https://of-install.example.com/simple
[list]
format = columns
"""


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_pips_settings_are_read_as_pip_reads_them(tmp_path: Path) -> None:
    """Asks pip itself, for files of the user and of the machine and for variables."""
    written(tmp_path / ".config/pip/pip.conf", FILE)
    written(tmp_path / "machine/pip/pip.conf", "[global]\nretries = 1\ntimeout = 7\n")
    environment = {
        "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / ".config"), "XDG_CONFIG_DIRS": str(tmp_path / "machine"),
        "PIP_TIMEOUT": "9", "PIP_TRUSTED_HOST": "a b", "PIP_NO_INPUT": "", "PATH": os.defpath,
    }
    ours = settings_of_pip(environment, tmp_path)
    listed = subprocess.run([sys.executable, "-I", "-m", "pip", "config", "list"], env=environment, capture_output=True, text=True, check=True).stdout
    for name in ("index-url", "retries", "timeout", "trusted-host"):
        assert f"{name}={ours[name]!r}" in listed
    assert ours["index-url"] == "https://of-install.example.com/simple"
    assert ours["timeout"] == "9"
    assert ours["find-links"].split() == ["/nowhere", "https://links.example.com/"]
    assert not ours.keys() & {"format", "no-input"}


@pytest.mark.parametrize(("named", "index"), [(os.devnull, None), ("own.conf", "https://own.example.com"), ("missing.conf", "https://of-install.example.com/simple")])
def test_a_named_file_replaces_the_users_if_it_is_there(tmp_path: Path, named: str, index: str | None) -> None:
    written(tmp_path / ".config/pip/pip.conf", FILE)
    written(tmp_path / "own.conf", "[global]\nindex-url = https://own.example.com\n")
    environment = {"PIP_CONFIG_FILE": str(tmp_path / named), "XDG_CONFIG_DIRS": str(tmp_path)}
    assert settings_of_pip(environment, tmp_path).get("index-url") == index


def test_uv_is_told_where_packages_come_from_and_whom_to_trust(tmp_path: Path) -> None:
    settings = {
        "cert": "/etc/ca.pem",
        "extra-index-url": "https://a https://b",
        "find-links": f"/nowhere {tmp_path}",
        "index-url": "https://user:word@index.example.com/simple",
        "no-cache-dir": "false",
        "progress-bar": "off",
        "proxy": "http://proxy:3128",
        "timeout": "5",
        "trusted-host": "a\nb",
    }
    told = for_uv(settings, {"PATH": "/bin", "UV_SYSTEM_PYTHON": "1", "UV_HTTP_TIMEOUT": "60"})
    assert told["UV_DEFAULT_INDEX"] == "https://user:word@index.example.com/simple"
    assert (told["UV_INDEX"], told["UV_INDEX_STRATEGY"]) == ("https://a https://b", "unsafe-best-match")
    assert (told["UV_FIND_LINKS"], told["UV_INSECURE_HOST"]) == (str(tmp_path), "a b")
    assert (told["SSL_CERT_FILE"], told["HTTPS_PROXY"]) == ("/etc/ca.pem", "http://proxy:3128")
    assert told["UV_HTTP_TIMEOUT"] == "60", "uv's own variable of the user stays"
    assert not told.keys() & {"UV_SYSTEM_PYTHON", "UV_NO_CACHE", "UV_SYSTEM_CERTS"}
    assert for_uv({}, {})["UV_SYSTEM_CERTS"] == "true"
    assert "UV_DEFAULT_INDEX" not in for_uv(settings, {"UV_INDEX_URL": "https://of-uv"})


@pytest.fixture
def fake_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A uv on PATH that runs, and fails at everything else."""
    path = written(tmp_path / "bin" / "uv", '#!/bin/sh\ntest "$1" = --version || { echo "no such thing" >&2; exit 3; }\n')
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.defpath}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(installers, "CACHE", tmp_path / "cache")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return path


def test_a_uv_on_the_path_is_used_and_one_that_does_not_run_is_not(fake_uv: Path) -> None:
    assert find_uv() == str(fake_uv)
    assert choose(None).name == "uv"
    fake_uv.write_text("#!/bin/sh\nexit 127\n")
    assert find_uv() is None
    assert choose(None).name == "pip"


@pytest.mark.parametrize("setting", ["PIP_CONSTRAINT", "PIP_KEYRING_PROVIDER", "PIP_SOMETHING_NEW"])
def test_pip_does_what_only_pip_is_configured_for(fake_uv: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], setting: str) -> None:
    monkeypatch.setenv(setting, "x")
    assert choose(None).name == "pip"
    name = setting.removeprefix("PIP_").lower().replace("_", "-")
    assert capsys.readouterr().out == f"setup: with pip, since uv has nothing like pip's setting {name}\n"


def test_a_broken_file_of_pip_is_left_to_pip(tmp_path: Path) -> None:
    path = written(tmp_path / "pip.conf", "index-url = https://without.a.section\n")
    with pytest.raises(OnlyPip, match=r"file .*pip\.conf"):
        settings_of_pip({"PIP_CONFIG_FILE": str(path)}, tmp_path)


def test_pip_goes_on_where_uv_fails(fake_uv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    done: list[tuple[str, Path]] = []
    monkeypatch.setattr(Pip, "install", lambda self, folder, lock, *options: done.append(("install", lock)))
    monkeypatch.setattr(Pip, "check", lambda self, folder: done.append(("check", folder)))
    installer = choose(None)
    assert isinstance(installer, UvOrPip)
    lock = written(tmp_path / "lock.txt", "some==1.0\n")
    installer.install(tmp_path, lock)
    assert installer.name == "pip"
    installer.check(tmp_path)
    assert done == [("install", lock), ("check", tmp_path)]
    assert capsys.readouterr().out == "setup: uv failed, so pip does it: no such thing\n"


def test_a_uv_that_cannot_be_fetched_is_done_without(
    fake_uv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_uv.unlink()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    lock = written(tmp_path / "lock.txt", f"uv==0.0.1 --hash=sha256:{'0' * 64}\n")
    assert choose(lock).name == "pip"
    assert capsys.readouterr().out.endswith("setup: it could not be fetched, so pip does it\n")


def test_hashes_are_required_by_both() -> None:
    assert "--require-hashes" in LOCKED


@pytest.mark.install
@pytest.mark.parametrize("bundled", [True, False])
def test_an_environment_has_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundled: bool) -> None:
    if not bundled:
        monkeypatch.setattr(installers, "bundled_pip", lambda: None)
    folder = tmp_path / "with a space"
    (folder / "stale").mkdir(parents=True)
    create(folder)
    assert not (folder / "stale").exists()
    for command in ([folder / "bin/python", "-m", "pip"], [folder / "bin/pip"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert str(folder) in done.stdout


def test_a_lock_is_read_by_package(tmp_path: Path) -> None:
    lock = written(tmp_path / "lock.txt", "# of all\na==1 ; x < 2 \\\n    --hash=sha256:1\n    # via b\na==2 ; x >= 2 \\\n    --hash=sha256:2\nb[c]==3 \\\n    --hash=sha256:3\n")
    assert {name: block.count("--hash") for name, block in pins(lock).items()} == {"a": 2, "b": 1}


# What is shown meanwhile


def test_progress_is_a_line_every_ten_seconds_with_the_packages_that_were_named(capsys: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    progress = Progress(packages=3, now=lambda: now[0])
    progress.show()
    now[0] += 9
    progress.show()
    assert capsys.readouterr().out == ""
    now[0] += 2
    progress.show()
    for _ in range(5):
        progress.package()
    progress.show()
    now[0] += 10
    progress.show()
    assert capsys.readouterr().out == "setup: installing for 11 s\nsetup: 3 of 3 packages, 21 s\n"


def test_a_program_names_packages_in_its_lines() -> None:
    named = Progress(packages=9)
    run([sys.executable, "-c", "print('Collecting a'); print('Using b'); print('Collecting c')"], {}, named, package_line="Collecting ")
    assert named.named == 2


def test_a_failed_program_is_shown_with_all_that_it_printed() -> None:
    with pytest.raises(Failed, match=r"failed \(exit code 3\)") as raised:
        run([sys.executable, "-c", "import sys; print('first'); print('last', file=sys.stderr); sys.exit(3)"], {}, Progress())
    assert sorted(raised.value.output.split()) == ["first", "last"]


def test_a_program_that_takes_longer_than_it_may_is_ended() -> None:
    with pytest.raises(Failed):
        run([sys.executable, "-c", "import time; time.sleep(600)"], {}, Progress(), seconds=0.1)
