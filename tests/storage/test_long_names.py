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
from tests.storage.conftest import Place
from tests.storage.logs import batch, clean, names, recover

TOPIC = "t" * 249
TOKEN = "0" * 32


def opened(place: Place, folder: str, stopped: bool = False) -> Log:
    producers = Producers()
    log, _ = Log.open(Handles(place.disk), folder, 400, 0, stopped, "iRZ7lAlfQrWo7gLtEdup9A", deferred=True, producers=producers)
    return log


def fail_next_sync(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(place.disk, SimDisk):
        place.disk.fail_syncs = 1
        return
    sync = OsFile.sync

    def refuse(self: Any) -> None:
        monkeypatch.setattr(OsFile, "sync", sync)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(OsFile, "sync", refuse)


@pytest.mark.parametrize("length", [1, 248, 249])
@pytest.mark.parametrize("partition", [0, 99_999])
def test_a_log_with_the_longest_name_supports_every_operation(
    place: Place, length: int, partition: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = f"{place.path}/{TOPIC[:length]}-{partition}"
    log = opened(place, folder)
    for number in range(8):
        log.append(batch(f"k{number % 2}", padding=100), 0)
    assert len(log.closed) > 2
    log.flush()
    clean(place.disk, log)
    names_before = names(log)
    log.append(batch("more"), 0)
    fail_next_sync(place, monkeypatch)
    with pytest.raises(AppendFailed):
        log.flush()
    assert not log.usable
    recover(log, True)
    assert names(log) == [*names_before, "more.0"]
    log.append(batch("again"), 0)
    log.close()
    for stopped in (False, True):
        log = opened(place, folder, stopped)
        assert names(log) == [*names_before, "more.0", "again.0"]
        log.close()
    assert place.disk.list(place.path) == [folder.rpartition("/")[2]]
    moved = log.set_folder_aside(TOKEN)
    log = opened(place, folder)
    log.append(batch("new"), log.epoch)
    log.close()
    assert names(opened(place, folder)) == ["new.0"]
    assert folders_set_aside(place.disk, place.path) == [moved]
    remove_folder(place.disk, moved)
    set_folder_aside(place.disk, folder, TOKEN, STRAY)
    assert folders_set_aside(place.disk, place.path) == []


def test_logs_whose_names_differ_at_their_end_have_probes_of_their_own() -> None:
    paths = {probe_path(f"/data/{TOPIC}-{partition}") for partition in range(1000)}
    assert len(paths) == 1000
    assert {len(path.rpartition("/")[2]) for path in paths} == {len("01234567.probe")}


def test_a_repair_of_a_log_without_a_folder_leaves_nothing(place: Place) -> None:
    log, _ = Log.open(Handles(place.disk), f"{place.path}/{TOPIC}-0", 400, 0, False)
    recover(log, True)
    assert log.usable
    assert place.disk.list(place.path) == []


def test_no_folder_is_removed_that_was_not_set_aside(place: Place) -> None:
    folder = f"{place.path}/orders-0"
    place.disk.make_folder(folder)
    with pytest.raises(AssertionError):
        remove_folder(place.disk, folder)
    assert place.disk.exists(folder)
