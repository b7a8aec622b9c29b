"""The longest names: topics have up to 249 characters, files 255, and every derived name must fit."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from simulator.disk import SimDisk
from storage import AppendFailed, Handles, Log, Producers
from storage.disk import OsFile
from storage.opening import probe_path
from storage.removal import STRAY, folders_set_aside, remove_folder, set_folder_aside
from tests.storage.conftest import DataFolder
from tests.storage.logs import batch, clean, names, recover

TOPIC = "t" * 249
TOKEN = "0" * 32


def opened(data_folder: DataFolder, folder: str, stopped: bool = False) -> Log:
    producers = Producers()
    log, _ = Log.open(Handles(data_folder.disk), folder, 400, 0, stopped, "iRZ7lAlfQrWo7gLtEdup9A", deferred=True, producers=producers)
    return log


def fail_next_sync(data_folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(data_folder.disk, SimDisk):
        data_folder.disk.fail_syncs = 1
        return
    sync = OsFile.sync

    def refuse(self: Any) -> None:
        monkeypatch.setattr(OsFile, "sync", sync)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(OsFile, "sync", refuse)


@pytest.mark.parametrize("length", [1, 248, 249])
@pytest.mark.parametrize("partition", [0, 99_999])
def test_a_log_with_the_longest_name_supports_every_operation(
    data_folder: DataFolder, length: int, partition: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = f"{data_folder.path}/{TOPIC[:length]}-{partition}"
    log = opened(data_folder, folder)
    for number in range(8):
        log.append(batch(f"k{number % 2}", padding=100), 0)
    assert len(log.closed_segments) > 2
    log.flush()
    clean(data_folder.disk, log)
    names_before = names(log)
    log.append(batch("more"), 0)
    fail_next_sync(data_folder, monkeypatch)
    with pytest.raises(AppendFailed):
        log.flush()
    assert not log.usable
    recover(log, True)
    assert names(log) == [*names_before, "more.0"]
    log.append(batch("again"), 0)
    log.close()
    for stopped in (False, True):
        log = opened(data_folder, folder, stopped)
        assert names(log) == [*names_before, "more.0", "again.0"]
        log.close()
    assert data_folder.disk.list(data_folder.path) == [folder.rpartition("/")[2]]
    moved = log.set_folder_aside(TOKEN)
    log = opened(data_folder, folder)
    log.append(batch("new"), log.epoch)
    log.close()
    assert names(opened(data_folder, folder)) == ["new.0"]
    assert folders_set_aside(data_folder.disk, data_folder.path) == [moved]
    remove_folder(data_folder.disk, moved)
    set_folder_aside(data_folder.disk, folder, TOKEN, STRAY)
    assert folders_set_aside(data_folder.disk, data_folder.path) == []


def test_logs_whose_names_differ_at_their_end_have_probes_of_their_own() -> None:
    paths = {probe_path(f"/data/{TOPIC}-{partition}") for partition in range(1000)}
    assert len(paths) == 1000
    assert {len(path.rpartition("/")[2]) for path in paths} == {len("01234567.probe")}


def test_a_repair_of_a_log_without_a_folder_leaves_nothing(data_folder: DataFolder) -> None:
    log, _ = Log.open(Handles(data_folder.disk), f"{data_folder.path}/{TOPIC}-0", 400, 0, False)
    recover(log, True)
    assert log.usable
    assert data_folder.disk.list(data_folder.path) == []


def test_no_folder_is_removed_that_was_not_set_aside(data_folder: DataFolder) -> None:
    folder = f"{data_folder.path}/orders-0"
    data_folder.disk.make_folder(folder)
    with pytest.raises(AssertionError):
        remove_folder(data_folder.disk, folder)
    assert data_folder.disk.exists(folder)
