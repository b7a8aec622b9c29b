"""`tenure log verify` on logs whose start moved across leader epochs: logs left by a broker are sound, contradictions are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.batch import Record, build
from storage import DataDirectory, Handles, Log, OsDisk
from storage.epochs import EPOCHS
from tests.cli.log_folders import Command

pytestmark = pytest.mark.once  # no dependence on the Python version

RECORDS = 10  # of each epoch, two in a batch


class ReopenedLog:
    """A data directory with one log, which is reopened for each leader epoch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start = 0

    def run(self, delete_to: int = 0, drop: bool = False, append: bool = True, clean: bool = True) -> None:
        directory = DataDirectory.open(OsDisk(), str(self.path), 1, "", "a test", lambda: "id")
        was_clean = directory.clean
        directory.remove_clean_marker()
        point = directory.recovery_points.get(("orders", 0), 0)
        folder = directory.log_folder("orders", 0)
        log, _ = Log.open(Handles(OsDisk()), folder, 600, point, was_clean, deferred=True, start_offset=directory.log_starts.get(("orders", 0), 0))
        for number in range(0, RECORDS if append else 0, 2):
            log.append(build([Record(at, 1_000 + number, b"k", bytes(100), []) for at in range(2)]), log.epoch)
        log.delete_before(delete_to)
        directory.checkpoint_starts({("orders", 0): log.start_offset})
        if drop:
            for base in log.apply_retention(0, 0, -1, -1):
                (Path(folder) / f"{base:020}.log.deleted").unlink()
        if clean:
            log.flush()
            log.close()
            directory.checkpoint({("orders", 0): log.next_offset})
            directory.mark_clean()
        directory.close()


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("delete_to", [1, 9, 10, 11, 19, 20])
def test_any_log_start_within_earlier_epochs_is_sound(tmp_path: Path, command: Command, delete_to: int, drop: bool) -> None:
    log = ReopenedLog(tmp_path)
    log.run()
    log.run(delete_to, drop)
    for append, clean in ((False, True), (True, True), (True, False)):
        log.run(append=append, clean=clean)
        code, problems, _ = command.verify(tmp_path)
        assert (code, problems) == (0, [])


def epochs(path: Path, *lines: str) -> None:
    (path / "orders-0" / EPOCHS).write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def test_kafka_raises_the_first_entry_into_a_batch_that_holds_the_log_start(tmp_path: Path, command: Command) -> None:
    log = ReopenedLog(tmp_path)
    log.run()
    log.run(13)
    epochs(tmp_path, "1 13")
    assert command.verify(tmp_path)[:2] == (0, [])
    epochs(tmp_path, "0 13", "1 14")
    code, (problem,), _ = command.verify(tmp_path)
    assert (code, problem["problem"]) == (65, "epochs-wrong")
    assert problem["what"] == "offsets 10 to 18 have epoch 1, but it has epoch 0 for them"


def test_readable_records_without_an_epoch_entry_are_a_harmless_gap(tmp_path: Path, command: Command) -> None:
    log = ReopenedLog(tmp_path)
    log.run()
    log.run(4)
    epochs(tmp_path, "1 10")
    code, (problem,), _ = command.verify(tmp_path)
    assert (code, problem["problem"], problem["level"]) == (0, "epochs-behind", "warning")
    assert problem["what"] == "it begins at offset 10, after offsets 0 to 9 of epoch 0"


def test_an_epoch_entry_contradicting_a_batch_after_the_log_start_is_found(tmp_path: Path, command: Command) -> None:
    log = ReopenedLog(tmp_path)
    for delete_to in (0, 15, 0):
        log.run(delete_to)
    epochs(tmp_path, "1 15", "2 22")
    code, (problem,), _ = command.verify(tmp_path)
    assert (code, problem["problem"]) == (65, "epochs-wrong")


def test_a_log_start_past_the_last_batch_is_no_loss(tmp_path: Path, command: Command) -> None:
    """After a power failure a log may end below its checkpointed start offset."""
    log = ReopenedLog(tmp_path)
    log.run()
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 500\n")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    for append in (False, True):
        log.run(append=append)
        assert command.verify(tmp_path)[:2] == (0, [])
