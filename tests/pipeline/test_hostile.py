"""Damaged, hostile or wrong input for the command: a clear line or a count, never a traceback."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import cli
from cli.failure import Exit
from pipeline import inputs
from pipeline.inputs import open_for_reading
from pipeline.report import charts
from pipeline.rows import Commit, Episode, Segment
from pipeline.rows import Record as Row
from pipeline.schema import rows_of
from pipeline.tables import Tables
from protocol.batch import Compression, Record, build
from protocol.messages.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from protocol.records import with_version
from tests.pipeline.segments import EPOCH_MS, batch_of, commit, group_record, marker, next_offset, random_batches, sealed, write_segment

pytestmark = pytest.mark.once

LOG = "__consumer_offsets-0"
RECORD_COUNT = 41  # the number of records in the directory of most tests
# Characters that a terminal or a browser would interpret, or reorder.
ACTIVE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


class CommandResult:
    def __init__(self, code: int, output: str, errors: str) -> None:
        self.code, self.output, self.errors = code, output, errors

    @property
    def numbers(self) -> dict[str, int]:
        return {name: int(value) for name, value in re.findall(r"^(\w+): (\d+)$", self.output, re.MULTILINE)}


class Command:
    """`tenure analyze` in this process; `run` without Spark."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.page = folder / "report.html"
        self._capsys = capsys

    def __call__(self, action: str, *words: object) -> CommandResult:
        code = cli.main(["analyze", action, "--out", str(self.out), *map(str, words)])
        printed = self._capsys.readouterr()
        assert "Traceback" not in printed.err
        assert "defect" not in printed.err
        assert not ACTIVE.search(printed.out), printed.out
        assert not ACTIVE.search(printed.err), printed.err
        return CommandResult(code, printed.out, printed.err)

    def run(self, *sources: object, more: tuple[object, ...] = ()) -> CommandResult:
        return self("run", "--offsets", *sources, "--master", "none", "--report", self.page, *more)

    def refused(self, *sources: object, code: int = Exit.DAMAGED) -> str:
        """Check that the run is refused with one line and writes nothing; returns that line."""
        ended = self.run(*sources)
        assert ended.code == code, ended.errors
        *before, line = ended.errors.splitlines()
        assert all(line.startswith("reading: ") for line in before)
        assert not self.page.exists()
        return line

    def table(self, name: str, row: Any) -> list[Any]:
        return rows_of(row, Tables.open(self.out).read(name))

    def records(self) -> list[Row | Commit]:
        """What was read: offset commits, and all other records."""
        return [*self.table("records", Row), *self.table("commits", Commit)]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_segment(tmp_path / "data" / LOG, random_batches(1, 8))
    return tmp_path / "data"


# Paths that are no data directory


def a_file(path: Path) -> None:
    path.write_text("foreign_files")


def other_topics(path: Path) -> None:
    write_segment(path / "orders-0", random_batches(1, 2))


def link_to_itself(path: Path) -> None:
    path.mkdir()
    (path / LOG).symlink_to(path / LOG)


def link_to_a_missing_folder(path: Path) -> None:
    write_segment(path / LOG, random_batches(1, 2))
    (path / "__consumer_offsets-1").symlink_to(path / "gone")


def a_pipe_for_a_log(path: Path) -> None:
    write_segment(path / LOG, random_batches(1, 2))
    os.mkfifo(path / "__consumer_offsets-1")


def a_pipe_for_a_segment(path: Path) -> None:
    write_segment(path / LOG, random_batches(1, 2))
    os.mkfifo(path / LOG / "00000000000000000999.log")


def a_folder_for_a_segment(path: Path) -> None:
    (path / LOG / "00000000000000000000.log").mkdir(parents=True)


def a_link_for_a_segment(path: Path) -> None:
    (path / LOG).mkdir(parents=True)
    (path / LOG / "00000000000000000000.log").symlink_to(path / LOG / "00000000000000000000.log")


def segment_name_above_the_largest_offset(path: Path) -> None:
    write_segment(path / LOG, b"", base=99_999_999_999_999_999_999)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: None, r"source: No such file or directory$"),
        (Path.mkdir, r"source: is empty; name the data directory of a broker"),
        (a_file, r"source: Not a directory$"),
        (other_topics, r"source: contains no folder __consumer_offsets-N or __coordinator_notes-N; name"),
        (link_to_itself, r"source/__consumer_offsets-0: Too many levels of symbolic links$"),
        (link_to_a_missing_folder, r"source/__consumer_offsets-1: has the name of a log, but is not a folder$"),
        (a_pipe_for_a_log, r"source/__consumer_offsets-1: has the name of a log, but is not a folder$"),
        (a_pipe_for_a_segment, r"source/__consumer_offsets-0/0*999\.log: is not a regular file$"),
        (a_folder_for_a_segment, r"source/__consumer_offsets-0/0*\.log: is not a regular file$"),
        (a_link_for_a_segment, r"source/__consumer_offsets-0/0*\.log: Too many levels of symbolic links$"),
        (segment_name_above_the_largest_offset, r"source/__consumer_offsets-0/9*\.log: its name is not an offset$"),
    ],
)
def test_a_path_that_is_no_data_directory_is_reported_in_one_line(command: Command, tmp_path: Path, make: Callable[[Path], None], problem: str) -> None:
    make(tmp_path / "source")
    assert re.search(problem, command.refused(tmp_path / "source"))


def test_input_errors_are_reported_before_spark_starts(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.analyze.run.open_engine", lambda *_: pytest.fail("Spark is started"))
    ended = command("run", "--offsets", tmp_path / "gone", "--master", "local[2]")
    assert (ended.code, ended.errors) == (Exit.DAMAGED, f"tenure: {tmp_path}/gone: No such file or directory\n")


@pytest.mark.parametrize("hidden", ["data", f"data/{LOG}", f"data/{LOG}/00000000000000000000.log"])
def test_an_unreadable_directory_is_reported_in_one_line(command: Command, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
    """The system's error is simulated, as tests may run as root, which may read every file."""

    def forbidding(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **named: Any) -> Any:
            if str(path) == str(tmp_path / hidden):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return real(path, *arguments, **named)

        return call

    for name in ("scandir", "listdir", "open"):
        monkeypatch.setattr(os, name, forbidding(getattr(os, name)))
    assert command.refused(data) == f"tenure: {tmp_path / hidden}: Permission denied"


def test_named_pipes_in_place_of_checkpoints_and_segments_do_not_block(command: Command, data: Path) -> None:
    (data / "t-0").mkdir()
    for name in ("meta.properties", "cleaner-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        os.mkfifo(data / name)
    for name in ("00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex"):
        os.mkfifo(data / "t-0" / name)
    ended = command.run(data)
    assert ended.code == Exit.DONE
    assert ended.numbers["records"] == RECORD_COUNT


def test_an_ordinary_segment_file_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    os.close(open_for_reading(str(tmp_path / "a")))


def test_a_directory_given_twice_is_read_once(command: Command, data: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(data)
    shutil.copytree(data, tmp_path / "copy")
    ended = command.run(data, data, tmp_path / "link", tmp_path / "copy", data / LOG)
    assert (ended.code, ended.numbers["records"], ended.numbers["diverged"]) == (Exit.DONE, RECORD_COUNT, 0)


def test_replicas_that_differ_are_counted_and_reported(command: Command, tmp_path: Path) -> None:
    for name, seconds in (("one", 0), ("two", 7)):
        batches = [batch_of(offset, commit("g", "t", 0, offset, EPOCH_MS), at_ms=EPOCH_MS + offset + (seconds if offset == 1 else 0)) for offset in range(3)]
        write_segment(tmp_path / name / LOG, batches)
    ended = command.run(tmp_path / "one", tmp_path / "two")
    assert (ended.code, ended.numbers["records"], ended.numbers["diverged"]) == (Exit.DONE, 3, 1)
    assert "1 batches differ between the replicas" in ended.errors


@pytest.mark.parametrize("source", ["kafka://127.0.0.1:1", "kafka://no.such.host.invalid:9092"])
def test_an_unreachable_broker_is_reported_soon(command: Command, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setattr("pipeline.wire.UNKNOWN_S", 0.3)
    assert re.search(r"its metadata: .+ \(tried for 0 s\)", command.refused(source, code=Exit.UNREACHABLE))


# Output folders and files


# As deltalake writes it.
FULL = "Generic LocalFileSystem error\n  \x1b[31m↳\x1b[0m Unable to copy data to file\n    \x1b[31m↳\x1b[0m No space left on device (os error 28)"


def test_an_output_folder_with_foreign_files_is_refused(command: Command, data: Path) -> None:
    foreign_files = {"thesis.txt": "years of work", "bronze/records/run=1/photo.parquet": "a face", ".hidden": "a key"}
    for name, text in foreign_files.items():
        (command.out / name).parent.mkdir(parents=True, exist_ok=True)
        (command.out / name).write_text(text)
    assert "not the folder of an analysis, and not empty" in command.refused(data)
    assert {str(path.relative_to(command.out)): path.read_text() for path in command.out.rglob("*") if path.is_file()} == foreign_files
    command.out = data
    assert "not the folder of an analysis" in command.refused(data)


def test_only_files_of_interrupted_runs_are_removed(command: Command, data: Path) -> None:
    assert command.run(data).code == Exit.DONE
    before = command.table("rebalances", Episode)
    half = [command.out / "bronze/records/chunk=0/half.parquet", command.out / "gold/groups/half.parquet"]
    foreign = [command.out / "notes-of-mine.txt", command.page.rename(command.out / "report.html")]
    for path in (*half, foreign[0]):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("PAR1 and no more")
    ended = command.run(data)
    assert (ended.code, ended.numbers["records"]) == (Exit.DONE, 0)
    assert command.table("rebalances", Episode) == before
    assert command("optimize").code == Exit.DONE
    assert not [path for path in half if path.exists()]
    assert all(path.exists() for path in foreign)
    assert command.table("rebalances", Episode) == before


@pytest.mark.parametrize("place", ["a folder", "in no folder", "in a file"])
def test_an_unwritable_report_path_is_reported_before_reading(command: Command, data: Path, tmp_path: Path, place: str) -> None:
    page = {"a folder": tmp_path, "in no folder": tmp_path / "gone" / "r.html", "in a file": data / LOG / "00000000000000000000.log" / "r.html"}[place]
    for ended in (command("run", "--offsets", data, "--master", "none", "--report", page), command("report", "--html", page)):
        assert ended.code == Exit.OUTPUT
        assert re.fullmatch(r"tenure: \S+: (is a directory|there is no such folder).*\n", ended.errors)
    assert not command.out.exists()


@pytest.mark.parametrize("commits", [False, True], ids=["a file", "a commit"])
def test_a_full_disk_is_reported_in_one_line_that_names_the_place_and_nothing_is_published(
    command: Command, data: Path, monkeypatch: pytest.MonkeyPatch, commits: bool
) -> None:
    room = 0

    def writes(*error: object) -> None:
        nonlocal room
        room -= 1
        if room < 0:
            raise OSError(*error)

    class Writer(pq.ParquetWriter):  # type: ignore[misc]
        def write_table(self, *content: Any, **options: Any) -> None:
            self.file_handle.write(b"PAR1")
            writes(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device")
            super().write_table(*content, **options)

    class Committing(DeltaTable):
        def create_write_transaction(self, *what: Any, **options: Any) -> None:
            writes(FULL)
            super().create_write_transaction(*what, **options)

    if commits:
        monkeypatch.setattr("deltalake.DeltaTable", Committing)
    else:
        monkeypatch.setattr("pipeline.tables.pq.ParquetWriter", Writer)
    for allowed in range(0, 20, 6):
        room = allowed
        ended = command.run(data)
        assert ended.code == Exit.OUTPUT
        assert re.fullmatch(r"tenure: /\S+/out/\S+: No space left on device", ended.errors.splitlines()[-1])
        assert ended.errors.splitlines()[-1].endswith(".parquet: No space left on device") or commits
        assert not [path for path in command.out.rglob("*.parquet") if path.read_bytes() == b"PAR1"]
        assert not command.out.exists()  # a failed first run leaves nothing
    room = 1_000
    assert command.run(data).code == Exit.DONE
    assert len(command.records()) == RECORD_COUNT
    write_segment(data / LOG, batch_of(next_offset(random_batches(1, 8)[-1]), commit("g", "t", 0, 1, EPOCH_MS)))
    monkeypatch.setattr("pipeline.tables._is_alive", lambda claim: False)  # as a process has ended that could not release its claim
    for allowed in range(0, 9, 4):
        room = allowed
        assert command.run(data).code == Exit.OUTPUT
        assert len(command.records()) == RECORD_COUNT
    room = 1_000
    assert command.run(data).code == Exit.DONE
    assert len(command.records()) == RECORD_COUNT + 1


def test_a_full_disk_leaves_no_partial_report(command: Command, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str, **_: Any) -> None:
        path.write_bytes(text[:100].encode())
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", full)
    ended = command.run(data)
    assert ended.code == Exit.OUTPUT
    assert ended.errors.endswith(f"tenure: {command.page}: No space left on device\n")
    assert not list(command.folder.glob("*report*"))


# Damage


def small_log(codec: Compression, g: str = "g", h: str = "h") -> list[bytes]:
    pairs = [commit(g, "t", 0, 7, EPOCH_MS + 1_000), group_record(g, 2, ["a"]), commit(g, "t", 1, 9, EPOCH_MS + 2_000), commit(h, "u", 1, 9, EPOCH_MS + 2_000)]
    return [
        batch_of(0, group_record(g, 1, ["a", "b"]), commit(g, "t", 0, 5, EPOCH_MS), commit(g, "t", 1, 6, EPOCH_MS)),
        build([Record(3 + number, EPOCH_MS + 1_000 * number, *pair) for number, pair in enumerate(pairs)], base_offset=3, leader_epoch=0, compression=codec),
        batch_of(7, commit(g, "t", 0, 8, EPOCH_MS + 9_000), transactional=True, producer=5, at_ms=EPOCH_MS + 9_000),
        marker(8, 5, commits=True, at_ms=EPOCH_MS + 9_100),
        batch_of(9, commit(g, "t", 0, 10, EPOCH_MS + 20_000), group_record(g, 3), at_ms=EPOCH_MS + 20_000),
    ]


RECORDS, HEADER = 11, 61
FALSE_LENGTHS = (b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), bytes(8))


def changed(rng: random.Random, batch: bytes, at: int) -> bytes:
    how = rng.randrange(3)
    if how == 0:
        new = bytes([batch[at] ^ 1 << rng.randrange(8)])
    elif how == 1:
        new = bytes([rng.choice([0, 127, 128, 255])])
    else:
        new = rng.choice(FALSE_LENGTHS)[: len(batch) - at]
    return batch[:at] + new + batch[at + len(new) :]


@pytest.mark.parametrize(
    ("checksummed", "count"), [(False, 60), (True, 60), (True, 10)], ids=["noticed by the checksum", "with a checksum that fits", "and analysed"]
)
def test_a_malformed_batch_is_skipped_and_counted(command: Command, tmp_path: Path, checksummed: bool, count: int) -> None:
    rng = random.Random(count)
    for number in range(count):
        batches = small_log(list(Compression)[number % len(Compression)], f"g{number}", f"h{number}")
        index = rng.randrange(len(batches))
        at = rng.randrange(HEADER if number % 2 else len(batches[index]))
        changed_batch = changed(rng, batches[index], at)
        batches[index] = sealed(bytearray(changed_batch)) if checksummed else changed_batch
        write_segment(tmp_path / "data" / f"__consumer_offsets-{number}", batches, base=0)
    ended = command.run(tmp_path / "data") if count < 20 else command("ingest", "--offsets", tmp_path / "data", "--master", "none")
    assert ended.code == Exit.DONE
    read = Counter(row.partition for row in command.table("records", Row))
    for row in command.table("commits", Commit):
        own = re.fullmatch(r"[gh](\d+)", row.group)
        read[int(own[1]) if own else -1] += 1  # the name may be damaged
    segments = {row.partition: row for row in command.table("segments", Segment)}
    waiting = 0
    for number, row in segments.items():
        assert read[number] == row.records or read[-1]
        if row.records < RECORDS and not row.damaged_batches and not row.torn_bytes and not row.aborted:
            waiting += RECORDS - row.records  # records that wait for the end of a transaction, whose marker is lost
    assert len(segments) == count
    assert sum(read.values()) == sum(row.records for row in segments.values())
    assert ended.numbers["undecided"] >= waiting
    assert ended.numbers["damaged_batches"] == sum(row.damaged_batches for row in segments.values()) > 0
    assert sum(read.values()) > count * RECORDS // 2


def test_records_of_open_transactions_are_counted_and_read_after_their_end(command: Command, tmp_path: Path) -> None:
    batches = small_log(Compression.NONE)
    end = batches.pop(3)
    path = write_segment(tmp_path / "data" / LOG, batches[:3])
    ended = command.run(tmp_path / "data")
    assert (ended.numbers["records"], ended.numbers["undecided"]) == (7, 1)
    assert "1 records are part of an open transaction" in ended.errors
    path.write_bytes(b"".join([*batches[:3], end, *batches[3:]]))
    ended = command.run(tmp_path / "data")
    assert (ended.numbers["records"], ended.numbers["undecided"]) == (4, 0)


def test_a_batch_length_past_the_end_of_file_is_a_torn_end(command: Command, tmp_path: Path) -> None:
    *batches, last = small_log(Compression.NONE)
    huge = last[:8] + (0x7FFF_FFFF).to_bytes(4, "big") + last[12:]
    write_segment(tmp_path / "data" / LOG, [*batches, huge])
    ended = command.run(tmp_path / "data")
    assert (ended.code, ended.numbers["records"], ended.numbers["torn_bytes"]) == (Exit.DONE, 9, len(last))


def test_a_time_beyond_the_calendar_is_shown_as_a_number() -> None:
    assert "1001000016576000000 ms" in str(charts.Axis(0, 1_144_000_000_000_000_000).to_svg(0, 10))


# Names


NAMES = [
    "<script>alert(1)</script>", "</script><script>alert(1)//", "<img src=x onerror=alert(1)>", "\"'&<>`", "\x1b[31mred\x1b]0;title\x07", "\x9b31m",
    "a\u202eb\u2066c\u200f", "\u2028\u2029", "\ufeffbom", "new\nline\r\ttab", "nul\0byte", "x" * 249, "é" * 120, "../../etc/passwd", "a/b\\c", "-rf", "",
    "{{7*7}}{%x%}", "${jndi:ldap://x}", "'; rm -rf / #", "\U0001d518\U0001d52b\U0001d526", "CON",
]  # fmt: skip
INVALID = (b"\xff\xfe\xfa\xfb", b"\xed\xa0\x80z", b"\xc3(\xc3(")  # no UTF-8, as long as the name that they replace


def named(group: str, generation: int, name: str | None, at_ms: int) -> tuple[bytes, bytes]:
    names = [] if name is None else [name, f"{name}2"]
    members = [MemberMetadata(f"{name}-id", name, f"{name}client", f"/{name}", 60_000, 10_000, b"sub", b"got") for name in names]
    value = GroupMetadataValue(f"consumer{name}", generation, f"range{name}", f"{name}-id" if names else None, at_ms - 50, members)
    return with_version(GroupMetadataKey(group), 2), with_version(value, 3)


def hostile_log() -> Iterator[bytes]:
    offset = 0
    for name in NAMES:
        for generation in (1, 2, 3, 4):
            at_ms = EPOCH_MS + generation * 60_000
            pairs = [commit(name, name or "t", 0, generation * 10 + number, at_ms + 1_000 * number, metadata=name) for number in range(3)]
            yield batch_of(offset, named(name, generation, None if generation == 2 else name, at_ms), *pairs, at_ms=at_ms)
            offset += 4
    for wrong in INVALID:
        key, value = named("zzzz", 1, "zzzz", EPOCH_MS)
        at, stored_value = commit("zzzz", "yyyy", 0, 1, EPOCH_MS, metadata="mmmm")
        assert at is not None
        assert stored_value is not None
        pairs = [(key.replace(b"zzzz", wrong), value), (key, value.replace(b"zzzz", wrong))]
        yield batch_of(offset, *pairs, (at.replace(b"yyyy", wrong), stored_value), (at, stored_value.replace(b"mmmm", wrong)))
        offset += 4


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found[tag] += 1
        self.handlers += [name for name, value in attrs if name.startswith("on") or (value or "").startswith("javascript:")]


def test_names_are_escaped_in_every_output(command: Command, tmp_path: Path) -> None:
    write_segment(tmp_path / "data" / LOG, list(hostile_log()))
    assert command.run(tmp_path / "data").code == Exit.DONE
    pages = tmp_path / "pages"
    pages.mkdir()
    assert command("report", "--html", pages / "r.html", "--json", pages / "r.json", "--per-group").code == Exit.DONE
    for page in pages.rglob("*.html"):
        assert re.fullmatch(r"r\.html|\d{4}-[A-Za-z0-9._-]+\.html", page.name)
        text = page.read_text(encoding="utf-8")
        tags = Tags()
        tags.feed(text)
        assert tags.found["script"] == 1
        assert not tags.handlers
        assert not set(tags.found) & {"img", "iframe", "object", "embed", "form"}
        assert not ACTIVE.search(text)
    assert command("reconcile").code == Exit.DONE
    group_names = {group["group"] for group in json.loads((pages / "r.json").read_text(encoding="utf-8"))["groups"]}
    assert group_names >= set(NAMES)
    for name in (*NAMES[::9], "nobody\x1b[0m\u202e"):
        for words in (("advise",), ("whatif", "--static"), ("status",)):
            for more in ((), ("--json",)):
                ended = command(*words, *more, f"--group={name}")
                assert ended.code == (Exit.DONE if name in group_names else Exit.MISSING)
                if more:
                    json.loads(ended.output)
    assert not [path for path in command.out.rglob("*") if not re.fullmatch(r"[\w.=-]+", path.name)]


# A broker writes during the run


def test_a_log_that_grows_and_is_compacted_while_it_is_read_is_read_whole(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record that remains is read once, although segments were replaced and merged during the reads."""
    monkeypatch.setattr(inputs, "LISTINGS_MAX", 1_000)
    folder = tmp_path / "data" / LOG
    write_segment(folder, batch_of(0, commit("g", "t", 0, 0, EPOCH_MS)))
    stopped = threading.Event()
    batches_left: dict[int, bytes] = {0: batch_of(0, commit("g", "t", 0, 0, EPOCH_MS))}

    def work() -> None:
        rng = random.Random(3)
        offset = 1
        while not stopped.wait(0.002):
            base = max(int(path.stem) for path in folder.glob("*.log"))
            batch = batches_left[offset] = batch_of(offset, commit("g", "t", offset % 7, offset, EPOCH_MS + offset), at_ms=EPOCH_MS + offset)
            with (folder / f"{base:020}.log").open("ab") as file:
                for half in (batch[:50], batch[50:]):  # a reader may see a torn end
                    file.write(half)
                    file.flush()
            offset += 1
            if offset % 20 == 0:
                (folder / f"{offset:020}.log").touch()
            if offset % 30 == 0:
                closed = sorted(folder.glob("*.log"))[:-1]
                inside = [base for base in sorted(batches_left) if base < int(closed[-1].stem)]
                for removed in rng.sample(inside, len(inside) // 3):
                    del batches_left[removed]
                draft = folder / f"{int(closed[0].stem):020}.log.swap"
                draft.write_bytes(b"".join(batches_left[base] for base in sorted(batches_left) if base < int(max(folder.glob("*.log")).stem)))
                draft.rename(closed[0])
                for path in closed[1:]:
                    path.unlink()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(4):
            ended = command.run(tmp_path / "data")
            assert ended.code == Exit.DONE, ended.errors
    finally:
        stopped.set()
        worker.join()
    assert command.run(tmp_path / "data").code == Exit.DONE
    read = Counter(row.offset for row in command.records())
    assert set(read) >= set(batches_left)
    assert max(read.values()) == 1
