"""`tenure store export` out of a data directory, stopped or in use, and wrong arguments of `tenure store`."""

from __future__ import annotations

import json
import os
import shutil
from itertools import count
from pathlib import Path
from struct import Struct

import pytest

from cli.store import export
from cli.store.directory import DirectorySource
from cli.store.export import Export
from cli.store.journal import JOURNAL, Journal
from cli.store.logs import LogToCopy
from protocol.batch import read_header
from storage import OsDisk
from storage.log_copy import LogCopy, LogEnd
from tests.cli.cluster_folders import CLUSTER_ID, ClusterFolder, contents, topic_ids, topic_key
from tests.cli.committing import Load, check_commits, check_producer_ids
from tests.cli.conftest import Tenure
from tests.cli.log_folders import process
from tests.running import broker, wait_until

pytestmark = pytest.mark.once  # bytes and disks do not depend on the Python version


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterFolder:
    return ClusterFolder(tmp_path / "data")


def exported(tenure: Tenure, source: Path, target: Path, *more: str) -> str:
    result = tenure("store", "export", "--from", str(source), "--to", str(target), *more)
    assert result.code == 0, result.err
    return result.out


def test_every_log_is_the_same_in_the_export(cluster: ClusterFolder, tenure: Tenure, tmp_path: Path) -> None:
    before = contents(cluster.path)
    out = exported(tenure, cluster.path, tmp_path / "copy")
    assert out.splitlines()[0].startswith(f"exported cluster {CLUSTER_ID} from {cluster.path} to {tmp_path / 'copy'}: 14 logs, ")
    after = contents(tmp_path / "copy")
    assert {name: log._replace(next_epoch=0) for name, log in after.items()} == {name: log._replace(next_epoch=0) for name, log in before.items()}
    assert all(after[name].next_epoch == log.next_epoch + 1 for name, log in before.items())
    assert [after["orders-0"].end, len(after["orders-0"].epochs), sorted(after["orders-0"].producers)] == [360, 3, [1000, 1001, 1002]]
    assert (after["late-0"].start, after["late-0"].end, after["emptied-0"].start, after["emptied-0"].end) == (29, 40, 77, 77)
    assert {id for name, id in topic_ids(tmp_path / "copy").items() if name.startswith("orders")} == {"AgICAgICAgICAgICAgICAg"}
    verified = process("verify", tmp_path / "copy", "--json")
    summary = json.loads(verified.stdout.splitlines()[-1])["summary"]
    assert (verified.returncode, summary["problems"], summary["sound_logs"], summary["stopped_in_order"]) == (0, 0, 14, True), verified.stdout


def test_commands_to_paste_have_quoted_paths(cluster: ClusterFolder, tenure: Tenure, tmp_path: Path) -> None:
    target = tmp_path / "my copy"
    out = exported(tenure, cluster.path, target)
    assert f"tenure serve --data '{target}'\n" in out
    assert f"tenure store import --from '{target}' --to nats://" in out
    result = tenure("store", "import", "--from", "my data", "--to", "my copy")
    assert "tenure serve --data 'my data', or tenure store export --from 'my data' --to 'my copy' for a copy" in result.err


def test_segments_are_those_of_the_source(cluster: ClusterFolder, tenure: Tenure, tmp_path: Path) -> None:
    exported(tenure, cluster.path, tmp_path / "copy")
    for folder in cluster.path.glob("*-0"):
        names = sorted(path.name for path in folder.glob("*.log") if path.stat().st_size or folder.name == "emptied-0")
        assert sorted(path.name for path in (tmp_path / "copy" / folder.name).glob("*.log")) == names


def test_an_export_as_json(cluster: ClusterFolder, tenure: Tenure, tmp_path: Path) -> None:
    document = json.loads(exported(tenure, cluster.path, tmp_path / "copy", "--json"))
    assert (document["cluster_id"], document["logs"], document["dry_run"]) == (CLUSTER_ID, 14, False)
    assert document["bytes"] == sum(path.stat().st_size for path in (tmp_path / "copy").rglob("*.log"))


def test_a_dry_run_writes_nothing(cluster: ClusterFolder, tenure: Tenure, tmp_path: Path) -> None:
    out = exported(tenure, cluster.path, tmp_path / "copy", "--dry-run")
    assert out.startswith(f"would export cluster {CLUSTER_ID}")
    assert not (tmp_path / "copy").exists()


class Killed(Exception):
    """Raised where the export is killed."""


@pytest.mark.parametrize("after", [0, 1, 5, 12, 13, 40, 90, 127])
def test_an_interrupted_export_continues(after: int, cluster: ClusterFolder, tenure: Tenure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append, appends_left = LogCopy.append, after

    def append_some(self: LogCopy, *arguments: object) -> None:
        nonlocal appends_left
        if not appends_left:
            raise Killed
        appends_left -= 1
        append(self, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(LogCopy, "append", append_some)
        assert tenure("store", "export", "--from", str(cluster.path), "--to", str(tmp_path / "copy")).code == 70
    complete = Journal(str(tmp_path / "copy" / JOURNAL)).done
    for folder in (tmp_path / "copy").glob("*-*"):  # as after a power failure, cut bytes that had not reached the disk
        for segment in sorted(folder.glob("*.log"))[-1:]:
            if folder.name not in complete:
                os.truncate(segment, segment.stat().st_size // 2)
    refused = tenure("store", "import", "--from", str(tmp_path / "copy"), "--to", "nats://127.0.0.1:1")
    assert refused.code in (65, 66), refused.err
    served = tenure("serve", "--data", str(tmp_path / "copy"), "--listen", "127.0.0.1:0")
    assert served.code == 65
    exported(tenure, cluster.path, tmp_path / "copy")
    exported(tenure, cluster.path, tmp_path / "whole")
    assert contents(tmp_path / "copy") == contents(tmp_path / "whole")


def test_a_continued_export_copies_no_log_again(cluster: ClusterFolder, tenure: Tenure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = Export._copy_once
    names: list[str] = []

    async def copy(self: Export, log: object, end: object) -> object:
        names.append(str(log))
        if len(names) == 13:
            raise Killed
        return await copied(self, log, end)  # type: ignore[arg-type]

    monkeypatch.setattr(Export, "_copy_once", copy)
    assert tenure("store", "export", "--from", str(cluster.path), "--to", str(tmp_path / "copy")).code == 70
    exported(tenure, cluster.path, tmp_path / "copy")
    assert len(names) == 15
    assert names[12] == names[13]


@pytest.mark.parametrize("log", ["orders-0", "__consumer_offsets-1", "state-0", "__tenure_topics-0"])
def test_damage_ends_an_export_and_is_named(log: str, cluster: ClusterFolder, tenure: Tenure, tmp_path: Path) -> None:
    segment = sorted((cluster.path / log).glob("*.log"))[0]
    data = bytearray(segment.read_bytes())
    data[80] ^= 1
    segment.write_bytes(data)
    result = tenure("store", "export", "--from", str(cluster.path), "--to", str(tmp_path / "copy"))
    assert result.code == 65
    assert f"{segment} is damaged at byte 0: a batch's checksum is wrong" in result.err


@pytest.mark.parametrize("segment", [0, -1], ids=["first segment", "last segment"])
@pytest.mark.parametrize(("field", "change"), [(0, 1), (0, 1 << 20), (0, 1 << 40), (8, 3), (8, -3)])
def test_a_batch_with_a_damaged_offset_or_length_is_named(
    field: int, change: int, segment: int, cluster: ClusterFolder, tenure: Tenure, tmp_path: Path
) -> None:
    path = sorted((cluster.path / "orders-0").glob("*.log"))[segment]
    data = bytearray(path.read_bytes())
    second = read_header(data, 0).size
    layout = Struct(">i" if field else ">q")
    layout.pack_into(data, second + field, layout.unpack_from(data, second + field)[0] + change)
    path.write_bytes(data)
    result = tenure("store", "export", "--from", str(cluster.path), "--to", str(tmp_path / "copy"))
    assert (result.code, f"{path} is damaged at byte {second}: " in result.err) == (65, True), result.err


def test_a_shortened_log_is_refused(cluster: ClusterFolder, tenure: Tenure, tmp_path: Path) -> None:
    shutil.rmtree(cluster.path / "orders-1")
    result = tenure("store", "export", "--from", str(cluster.path), "--to", str(tmp_path / "copy"))
    assert (result.code, "orders-1 is damaged" in result.err) == (65, True), result.err


def test_a_target_inside_a_data_directory_is_refused(cluster: ClusterFolder, tenure: Tenure) -> None:
    result = tenure("store", "export", "--from", str(cluster.path), "--to", str(cluster.path / "copy"))
    assert (result.code, f"copy lies inside the data directory {cluster.path}: " in result.err) == (1, True), result.err
    assert not (cluster.path / "copy").exists()


def test_a_nonempty_target_is_refused(cluster: ClusterFolder, tenure: Tenure, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").touch()
    result = tenure("store", "export", "--from", str(cluster.path), "--to", str(tmp_path / "copy"))
    assert (result.code, "is not empty" in result.err) == (1, True)
    shutil.rmtree(tmp_path / "copy")
    exported(tenure, cluster.path, tmp_path / "copy")
    result = tenure("store", "export", "--from", str(cluster.path), "--to", str(tmp_path / "copy"))
    assert (result.code, "has the export of" in result.err) == (1, True)
    assert [path.name for path in (tmp_path / "copy").rglob("*") if path.name == "mine"] == []


@pytest.mark.parametrize(("inside", "reason"), [("", " is no directory"), ("/copy", ": a folder cannot be inside a file")])
def test_a_file_as_the_target_is_refused(cluster: ClusterFolder, tenure: Tenure, tmp_path: Path, inside: str, reason: str) -> None:
    (tmp_path / "file").touch()
    target = f"{tmp_path}/file{inside}"
    result = tenure("store", "export", "--from", str(cluster.path), "--to", target)
    assert (result.code, result.err) == (1, f"tenure: --to {target}{reason}\n")


def test_the_unfinished_export_of_another_cluster_is_refused(cluster: ClusterFolder, tenure: Tenure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(LogCopy, "append", lambda *arguments: (_ for _ in ()).throw(Killed()))
        tenure("store", "export", "--from", str(cluster.path), "--to", str(tmp_path / "copy"))
    second_cluster = ClusterFolder(tmp_path / "other")
    result = tenure("store", "export", "--from", str(second_cluster.path), "--to", str(tmp_path / "copy"))
    assert (result.code, f"has the unfinished export of {cluster.path}" in result.err) == (1, True)


def test_a_directory_that_was_not_stopped_in_order_is_refused(cluster: ClusterFolder, tenure: Tenure, tmp_path: Path) -> None:
    (cluster.path / ".kafka_cleanshutdown").unlink()
    result = tenure("store", "export", "--from", str(cluster.path), "--to", str(tmp_path / "copy"))
    assert (result.code, "it was not stopped in order; start one broker on it" in result.err) == (1, True)


def test_folders_that_prevent_an_orderly_stop_are_named(tenure: Tenure, tmp_path: Path) -> None:
    data = tmp_path / "da ta"
    for name in ("photos-2", "orders-0"):
        (data / name).mkdir(parents=True)
    (data / "orders-0" / "00000000000000000000.log").touch()
    serving = ("--data", str(data), "--set", "offsets.topic.num.partitions=2")
    export = ("store", "export", "--from", str(data), "--to", str(tmp_path / "copy"))
    with broker(*serving) as started:
        assert started.stop() == 0
    warning = next(line for line in started.errors().splitlines() if "the next start checks all logs" in line)
    assert ("orders-0" in warning, "photos-2" in warning) == (True, False)
    result = tenure(*export)
    advice = (
        "it was not stopped in order; move the folders of unknown topics out of it (orders-0), which no broker checks after a crash, "
        f"then start one broker on it (tenure serve --data '{data}'), and stop it"
    )
    assert (result.code, result.err) == (1, f"tenure: --from {data}: {advice}\n")
    (data / "orders-0").rename(tmp_path / "orders-0")
    with broker(*serving) as started:
        assert started.stop() == 0
    assert tenure(*export).code == 0


def test_a_directory_in_use_is_read_up_to_its_last_whole_batch(cluster: ClusterFolder, tenure: Tenure, tmp_path: Path) -> None:
    source_contents = contents(cluster.path)
    (cluster.path / ".kafka_cleanshutdown").unlink()
    for log in ("orders-1", "__consumer_offsets-0"):
        (segment,) = (cluster.path / log).glob("*.log")
        with segment.open("ab") as file:
            file.write(segment.read_bytes()[:69])
    lock = OsDisk().lock(f"{cluster.path}/.lock", "a broker")
    assert not isinstance(lock, str)
    exported(tenure, cluster.path, tmp_path / "copy")
    lock.release()
    assert {name: log.batches for name, log in contents(tmp_path / "copy").items()} == {name: log.batches for name, log in source_contents.items()}


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (("export", "--from", "x"), 64, "--to is missing"),
        (("export", "--from", "x", "--to", "nats://h"), 64, "--to nats://h: an export writes a folder"),
        (("export", "--from", "nowhere", "--to", "y"), 66, "--from nowhere does not exist; name a data directory"),
        (("export", "--from", ".", "--to", "y"), 66, "--from . is no data directory: it has no meta.properties"),
        (("export", "--from", ".", "--cluster", "c", "--to", "y"), 64, "--cluster and --set are for JetStream"),
        (("export", "--from", "nats://127.0.0.1:1", "--to", "y"), 69, "store nats://127.0.0.1:1/tenure: connection refused; start nats-server there"),
        (("export", "--from", "nats://h", "--set", "store.replicas=9", "--to", "y"), 78, "store.replicas=9"),
        (("export", "--from", "nats://h:x", "--to", "y"), 64, "--from: 'h:x' is not HOST:PORT"),
        (("import", "--from", "nats://h", "--to", "nats://h"), 64, "--from nats://h: an import reads a folder"),
        (("import", "--from", "x", "--to", "y"), 64, "--to y: an import writes to JetStream (nats://HOST:PORT); a folder needs no import"),
        (("import", "--from", "nowhere", "--to", "nats://h"), 66, "--from nowhere does not exist"),
    ],
)
def test_wrong_arguments_give_one_line(
    arguments: tuple[str, ...], code: int, line: str, tenure: Tenure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = tenure("store", *arguments)
    assert (result.code, result.out) == (code, ""), result.err
    assert line in result.err
    assert result.err.count("\n") == 1


def test_an_export_during_commits_is_consistent(tenure: Tenure, tmp_path: Path) -> None:
    settings = ("offsets.topic.num.partitions=4", "offsets.topic.segment.bytes=20000", "log.segment.bytes=1048576")
    words = [word for setting in settings for word in ("--set", setting)]
    with broker("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", *words) as running, Load(running.port) as load:
        for number in range(4):
            promised = dict(load.committed)
            exported(tenure, tmp_path / "data", tmp_path / f"copy{number}")
            copied = contents(tmp_path / f"copy{number}")
            check_commits(copied, promised)
            check_producer_ids(copied)
            rounds = load.rounds
            wait_until(lambda rounds=rounds: load.rounds > rounds + 200, 30)  # type: ignore[misc]


def test_groups_are_copied_before_the_ends_of_topics_and_the_registry_after_them(
    cluster: ClusterFolder, tenure: Tenure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So in the copy no commit points past the records, and the registry assigns no producer id that a record has."""
    ends_of, copy = DirectorySource.end_of, Export._copy_once
    ends: dict[str, int] = {}
    copied: dict[str, int] = {}
    moments = count()

    async def end_of(self: DirectorySource, log: LogToCopy) -> LogEnd | None:
        ends[str(log)] = next(moments)
        return await ends_of(self, log)

    async def copy_noted(self: Export, log: LogToCopy, end: LogEnd) -> object:
        copied[str(log)] = next(moments)
        return await copy(self, log, end)

    monkeypatch.setattr(DirectorySource, "end_of", end_of)
    monkeypatch.setattr(Export, "_copy_once", copy_noted)
    exported(tenure, cluster.path, tmp_path / "copy")
    topics = [name for name in copied if not name.startswith("__")]
    groups = [name for name in copied if name.startswith("__consumer_offsets")]
    assert max(copied[name] for name in groups) < min(ends[name] for name in topics)
    assert max(ends[name] for name in topics) < copied["__tenure_topics-0"] < min(copied[name] for name in topics)


def test_a_topic_deleted_during_the_export_is_not_copied(cluster: ClusterFolder, tenure: Tenure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copied logs of groups still have offsets of the topic. These would be wrong for a new topic of its name, so the logs are copied again."""
    ends_of = DirectorySource.end_of
    planned: list[LogToCopy] = []
    copied: list[str] = []
    copy = Export._copy_once

    async def end_of(self: DirectorySource, log: LogToCopy) -> LogEnd | None:
        if str(log) == "late-0" and not planned:
            planned.append(log)
            cluster.append("__tenure_topics", 0, [(topic_key("late"), None)])
            shutil.rmtree(cluster.path / "late-0")
        return await ends_of(self, log)

    async def copy_named(self: Export, log: LogToCopy, end: LogEnd) -> object:
        copied.append(str(log))
        return await copy(self, log, end)

    monkeypatch.setattr(DirectorySource, "end_of", end_of)
    monkeypatch.setattr(Export, "_copy_once", copy_named)
    exported(tenure, cluster.path, tmp_path / "copy")
    assert [copied.count("__consumer_offsets-0"), copied.count("orders-0")] == [2, 1]
    assert "late-0" not in contents(tmp_path / "copy")


def test_a_log_emptied_during_the_export_keeps_its_end_offset(
    cluster: ClusterFolder, tenure: Tenure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Export._copy_once

    async def copy_after_deletion(self: Export, log: LogToCopy, end: LogEnd) -> object:
        if str(log) == "orders-0" and (cluster.path / "orders-0").exists():
            shutil.rmtree(cluster.path / "orders-0")
        return await copy(self, log, end)

    monkeypatch.setattr(Export, "_copy_once", copy_after_deletion)
    monkeypatch.setattr(export, "PAUSE_SECONDS", 0)
    lock = OsDisk().lock(f"{cluster.path}/.lock", "a broker")
    assert not isinstance(lock, str)
    exported(tenure, cluster.path, tmp_path / "copy")
    lock.release()
    copied = contents(tmp_path / "copy")["orders-0"]
    assert (copied.start, copied.end, copied.batches) == (360, 360, b"")
