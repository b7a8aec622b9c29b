"""Problems of every kind, planted in a sound data directory, which `tenure log verify` must find."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from protocol.batch import Record, build, iterate_headers, stamp
from storage import OsDisk
from storage.directory import OWNERS_FILE, SHARED_FORMAT
from storage.turn_format import FILE_BYTES, file_header
from storage.turn_log import TurnLog
from tests.cli.log_folders import NOTES, OFFSETS, PARTITIONS, TOPICS, Folder, change, cut, group_record, groups_of, member, offset, topic

Plant = Callable[[Folder], Path]  # plants a problem, and returns the file that must be named

CLEAN, RECOVERY_POINT = ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"
EPOCHS = "leader-epoch-checkpoint"


class Planted(NamedTuple):
    kind: str
    name: str
    plant: Plant
    what: str  # a pattern of the printed reason


# Changes of a single file


def overwritten(log: str, at: int, data: bytes, ending: str = ".log", crashed: bool = False) -> Plant:
    def plant(folder: Folder) -> Path:
        if crashed:
            folder.crashed()
        file = folder.segment(log).with_suffix(ending)
        change(file, at, data)
        return file

    return plant


def cut_short(log: str, bytes_cut: int, *without: str) -> Plant:
    """Cut bytes off the end of the first segment, and remove the files `without` from the directory."""

    def plant(folder: Folder) -> Path:
        for name in without:
            (folder.path / name).unlink()
        cut(folder.segment(log), -bytes_cut)
        return folder.segment(log)

    return plant


def continued(log: str, data: bytes, ending: str = ".log", crashed: bool = False) -> Plant:
    def plant(folder: Folder) -> Path:
        if crashed:
            folder.crashed()
        file = folder.segment(log).with_suffix(ending)
        file.write_bytes(file.read_bytes() + data)
        return file

    return plant


def index_entry(ending: str, at: int, changed: Callable[[int], int]) -> Plant:
    """Change one byte of an index file."""

    def plant(folder: Folder) -> Path:
        file = folder.segment("orders").with_suffix(ending)
        change(file, at, bytes([changed(file.read_bytes()[at])]))
        return file

    return plant


def nodes_without_owners(folder: Folder) -> Path:
    (folder.path / "tenure.format").write_text(f"{SHARED_FORMAT}\n")
    return folder.path / OWNERS_FILE


def written(file: str, content: str) -> Plant:
    def plant(folder: Folder) -> Path:
        path = folder.path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        return path

    return plant


def removed(file: str) -> Plant:
    def plant(folder: Folder) -> Path:
        (folder.path / file).unlink()
        return folder.path / file

    return plant


def remove_segment(folder: Folder, number: int) -> None:
    segment = folder.segment("orders", 0, number)
    for ending in (".log", ".index", ".timeindex"):
        segment.with_suffix(ending).unlink()


def remove_indexes(segment: Path) -> None:
    for ending in (".index", ".timeindex"):
        segment.with_suffix(ending).write_bytes(b"")


def sizes_of(data: bytes) -> list[int]:
    return [header.size for header in iterate_headers(data, 0, len(data))]


def sealed(batch: bytearray) -> bytes:
    batch[17:21] = google_crc32c.value(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


# Plants of several steps


torn_end = cut_short(OFFSETS, 3, CLEAN, RECOVERY_POINT)
damage_in_an_older_segment = overwritten("orders", 100, b"!")


def damaged_turns(at: int, folder: Folder) -> Path:
    """A turn log (`storage/turn_log.py`) with one changed byte. The log of offsets has the batch of the first turn, and lacks that of the second."""
    folder.crashed()
    data = folder.segment(OFFSETS).read_bytes()
    present = list(iterate_headers(data, 0, len(data)))[-1]
    missing = bytearray(build([Record(0, 1_000, b"key", b"value", [])]))
    stamp(missing, 0, present.next_offset, 0)
    turns = TurnLog(OsDisk(), str(folder.path), 3)
    name = f"{OFFSETS}-0"
    turns.write([(name, data[len(data) - present.size :], present.base_offset, present.next_offset)])
    turns.write([(name, missing, present.next_offset, present.next_offset + 1)])
    turns.close()
    change(folder.path / "turns.3", at, b"!")
    return folder.path / "turns.3"


def turns_of_a_newer_version(folder: Folder) -> Path:
    write_newer_turns(folder.path)
    return folder.path


def write_newer_turns(folder: Path) -> None:
    header = bytearray(file_header(0, 0)[:-4])
    header[5] += 1
    (folder / "turns.3").write_bytes(bytes(header) + google_crc32c.value(bytes(header)).to_bytes(4, "big"))


def a_batch_twice(folder: Folder) -> Path:
    segment = folder.segment("orders")
    data = segment.read_bytes()
    segment.write_bytes(data[: sizes_of(data)[0]] + data)
    remove_indexes(segment)
    return segment


def segments_that_overlap(folder: Folder) -> Path:
    following = folder.segment("orders", 0, 1).read_bytes()
    return continued("orders", following[: sizes_of(following)[0]])(folder)


def one_offset_that_overlaps(folder: Folder) -> Path:
    base = int(folder.segment("orders", 0, 1).stem)
    return continued("orders", build([Record(base, 1, None, b"value")], base_offset=base, leader_epoch=0))(folder)


def remains_of_an_interrupted_repair(folder: Folder) -> Path:
    folder.crashed()
    segment = folder.segment("orders", 0, -2)
    segment.write_bytes(segment.read_bytes() + folder.segment("orders", 0, -1).read_bytes()[:100])
    return segment


def removed_segment(folder: Folder) -> Path:
    remove_segment(folder, 1)
    return folder.segment("orders", 0, 1)


def second_batch_gone(log: str, folder: Folder) -> Path:
    segment = folder.segment(log)
    data = segment.read_bytes()
    first, second, *_ = sizes_of(data)
    segment.write_bytes(data[:first] + data[first + second :])
    if log != OFFSETS:
        remove_indexes(segment)
    return segment


def offsets_skipped_in_a_log_of_no_known_topic(folder: Folder) -> Path:
    shutil.rmtree(folder.path / f"{TOPICS}-0")
    return second_batch_gone("orders", folder)


def an_index_out_of_order(folder: Folder) -> Path:
    return continued("orders", folder.segment("orders").with_suffix(".index").read_bytes()[-8:], ".index")(folder)


def removed_index(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".index")
    index.unlink()
    return index


def epochs_out_of_order(folder: Folder) -> Path:
    segment = folder.segment(OFFSETS)
    data = bytearray(segment.read_bytes())
    stamp(data, 0, 0, 9)  # the leader epoch, which the checksum does not cover
    segment.write_bytes(data)
    return segment


def a_log_that_lost_its_last_segment(folder: Folder) -> Path:
    remove_segment(folder, -1)
    return folder.path / RECOVERY_POINT


def removed_log(folder: Folder) -> Path:
    shutil.rmtree(folder.path / f"{OFFSETS}-0")
    return folder.path / RECOVERY_POINT


def folder_of_an_unknown_topic(folder: Folder) -> Path:
    (folder.path / "orders-2").mkdir()
    return folder.path / "orders-2"


def records_that_do_not_parse(folder: Folder) -> Path:
    log = folder.open("orders", 0)
    batch = bytearray(build([Record(0, 1, b"key", b"value")]))
    batch[57:61] = (1).to_bytes(4, "big")
    batch[61] = 126  # the record's length: longer than the batch
    log.append(sealed(batch), log.epoch)
    folder.close("orders", 0, log)
    return folder.segment("orders", 0, -1)


def changed_value(changed: Callable[[bytes], bytes], folder: Folder) -> Path:
    key, value = offset(folder.group, 0, 1)
    assert value is not None
    folder.append(OFFSETS, 0, [(key, changed(value))])
    return folder.segment(OFFSETS)


def a_topic_of_a_newer_version(folder: Folder) -> Path:
    folder.append(TOPICS, 0, [(b"\0\4" + topic("later", 1)[0][2:], b"\0\0")])
    return folder.segment(TOPICS)


def a_record_of_an_unknown_kind(folder: Folder) -> Path:
    folder.append(OFFSETS, 0, [(b"\0\x0bkey", b"\0\0")])
    return folder.segment(OFFSETS)


def a_group_in_the_wrong_partition(folder: Folder) -> Path:
    folder.append(OFFSETS, 0, [offset(groups_of(1, 1)[0], 0, 1)])
    return folder.segment(OFFSETS)


def an_instance_twice(folder: Folder) -> Path:
    folder.append(OFFSETS, 0, [group_record(folder.third, [member("a", "i"), member("b"), member("c", "i")])])
    return folder.segment(OFFSETS)


def an_unreadable_file(folder: Folder) -> Path:
    segment = folder.segment("orders")
    segment.unlink()
    segment.symlink_to(folder.path / "nowhere")
    return segment


SOUND_AFTER = r"checksum is wrong \(\d+ bytes, sound batches follow\)"
# An offset too large for an index entry; neither the checksum nor a later batch contradicts it.
OFFSET_TOO_FAR = overwritten(NOTES, 0, (1 << 40).to_bytes(8, "big"))
ROWS: list[tuple[str, str, Plant, str]] = [
    ("torn-end", "torn end", torn_end, r"a batch of \d+ bytes is cut short after \d+ \(\d+ bytes\)"),
    ("torn-end", "zeros at the end", continued(OFFSETS, bytes(5_000), crashed=True), r"zeros instead of a batch \(5000 bytes\)"),
    ("turns-damaged", "turn", partial(damaged_turns, FILE_BYTES), r"no turn begins there \(\d+ bytes\)"),
    ("turns-damaged", "needed turn", partial(damaged_turns, -1), rf"a batch of {OFFSETS}-0, offsets 6 to 6, differs from the batch that was written"),
    ("turns-needed", "needed turn", partial(damaged_turns, -1), rf"{OFFSETS}-0 had a batch here that ends before offset 7, but the log now ends before 6"),
    ("turns-newer", "newer turns", turns_of_a_newer_version, r"it has version 2 and this version reads up to 1"),
    ("damaged-end", "last batch", overwritten(OFFSETS, -1, b"!", crashed=True), r"checksum is wrong \(\d+ bytes to the end, which is not the remainder of an interrupted write\)"),
    ("damaged-end", "last segment", overwritten(OFFSETS, 70, b"!", crashed=True), SOUND_AFTER),
    ("damaged", "older segment", damage_in_an_older_segment, SOUND_AFTER),
    ("damaged", "length", overwritten("orders", 8, b"\x7f\xff\xff\xff"), r"a batch of 2147483659 bytes, more than a request can contain \(\d+ bytes, sound batches follow\)"),
    ("damaged", "magic", overwritten("orders", 16, b"\x01"), r"a batch has magic 1, not 2 \(\d+ bytes, sound batches follow\)"),
    ("damaged", "end of an older segment", cut_short("orders", 10), r"is cut short after \d+ \(\d+ bytes to the end of the segment, which is not the last\)"),
    ("damaged", "flushed once", cut_short(OFFSETS, 3, CLEAN), r"everything before offset 6 had been flushed, but the log is damaged from 4 on"),
    ("damaged", "after an orderly stop", cut_short(OFFSETS, 3, RECOVERY_POINT), r"the broker had stopped in order, so this happened later"),
    ("damaged", "a batch twice", a_batch_twice, r"offset 0 is below 2, the lowest possible"),
    ("damaged", "offset that no index can name", OFFSET_TOO_FAR, r"offset 1099511627777 is too far from the segment's first, 0"),
    ("segment-overlap", "overlap", segments_that_overlap, r"offset \d+, but 0{18}\d\d\.log begins at \d+"),
    ("segment-overlap", "one offset", one_offset_that_overlaps, r"offset \d+, but 0{18}\d\d\.log begins at \d+"),
    ("segment-overlap", "interrupted repair", remains_of_an_interrupted_repair, r"is cut short .*; 0{17}\d{3}\.log continues after the sound part"),
    ("offsets-missing", "segment", removed_segment, r"offsets \d+ to \d+ are missing"),
    ("offsets-missing", "batch", partial(second_batch_gone, "orders"), r"offsets 2 to 3 are missing"),
    ("offsets-missing", "batch of a log that is not compacted", partial(second_batch_gone, OFFSETS), r"offsets 1 to 3 are missing, and this segment was never compacted"),
    ("offsets-skipped", "log of no known topic", offsets_skipped_in_a_log_of_no_known_topic, r"offsets 2 to 3 are missing"),
    ("index-wrong", "position", index_entry(".index", 7, lambda byte: byte ^ 1), r"it points to byte \d+, where no batch begins"),
    ("index-wrong", "offset", index_entry(".index", 3, lambda byte: byte - 1), r"it has offset \d+, but its batch ends at \d+"),
    ("index-wrong", "end", continued("orders", b"\0\0\7\0\0\1\0\0", ".index"), r"after the end of the segment|which the segment does not contain"),
    ("index-wrong", "order", an_index_out_of_order, r"out of order"),
    ("index-wrong", "half an entry", continued("orders", b"123", ".index"), r"it ends in 3 bytes that are no entry"),
    ("index-wrong", "time", index_entry(".timeindex", 7, lambda byte: byte - 1), r"it has \d+ as the largest timestamp up to offset \d+, but the batch has \d+"),
    ("index-wrong", "end of the time index", overwritten("orders", -2, b"\7\0", ".timeindex"), r"it has offset \d+, which the segment does not contain"),
    ("index-missing", "index", removed_index, r"there is no such file"),
    ("epochs-wrong", "of another log", written(f"{OFFSETS}-0/{EPOCHS}", "0\n3\n0 0\n1 2\n2 4\n"), r"offsets 1 to 1 have epoch 1, but it has epoch 0 for them"),
    ("epochs-wrong", "epoch of no batch", written(f"orders-0/{EPOCHS}", "0\n2\n0 0\n1 50\n"), r"offsets 0 to 118 have epoch 0, but it has epoch 1 for them"),
    ("epochs-damaged", "order", written(f"{OFFSETS}-0/{EPOCHS}", "0\n2\n3 0\n1 9\n"), r"epochs and offsets are not ascending"),
    ("epochs-behind", "epoch", written(f"{OFFSETS}-0/{EPOCHS}", "0\n1\n0 0\n"), r"it lacks epoch 1, which begins at offset 1"),
    ("epochs-behind", "file", removed(f"{OFFSETS}-0/{EPOCHS}"), r"there is no such file"),
    ("epoch-order", "batches", epochs_out_of_order, r"offset 1 has epoch 1, but follows epoch 9"),
    ("meta-damaged", "cluster id", written("meta.properties", "node.id=1\nversion=1\n"), r"it has no cluster\.id"),
    ("meta-missing", "file", removed("meta.properties"), r"there is no such file"),
    ("format-newer", "format", written("tenure.format", "4\n"), r"has format 4 and this version reads up to 3"),
    ("owners-damaged", OWNERS_FILE, nodes_without_owners, r"there is no such file: the last writer of each log is unknown"),
    ("checkpoint-damaged", "lines", written(RECOVERY_POINT, "0\n2\norders 0 5\n"), r"its number of lines is not the declared one"),
    ("checkpoint-ahead", "last segment", a_log_that_lost_its_last_segment, r"orders-0 reached offset 120 and now ends at \d+"),
    ("log-missing", "folder", removed_log, rf"{OFFSETS}-0 reached offset 6 and has no folder"),
    ("folder-unknown", "folder", folder_of_an_unknown_topic, r"the registry of topics does not have this partition"),
    (
        "topic-id-wrong", "id", written("orders-1/partition.metadata", "version: 0\ntopic_id: 8oQpMFGBTQ6hYdgbpeSPsg"),
        r"has topic id 8oQpMFGBTQ6hYdgbpeSPsg, and the registry of topics has AAECAwQFBgcICQoLDA0ODw",
    ),
    (
        "topic-id-damaged", "flipped bit", written("orders-1/partition.metadata", "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODg"),
        r"it does not have the topic's id, AAECAwQFBgcICQoLDA0ODw",
    ),
    ("leftover", "interrupted repair", written("orders-0/00000000000000000010.log.rewriting", "half"), r"left by interrupted work"),
    ("unknown-name", "segment", written("orders-0/copy of it.log", ""), r"the name of a segment has twenty digits"),
    ("batch-unreadable", "length of a record", records_that_do_not_parse, r"offsets 120 to 120: "),
    ("record-unreadable", "value", partial(changed_value, lambda value: value[:-4]), r"offset 6: cannot be read: OffsetCommitValue v3 is cut short"),
    ("record-newer", "value", partial(changed_value, lambda value: b"\0\5" + value[2:]), r"offset 6: a value of version 5; this version of Tenure reads up to version 4"),
    ("record-newer", "topic", a_topic_of_a_newer_version, r"offset 4: a key of version 4; this version of Tenure reads up to version 3"),
    ("record-unknown", "key", a_record_of_an_unknown_kind, r"offset 6: a key of version 11"),
    ("wrong-partition", "group", a_group_in_the_wrong_partition, rf"offset 6: group group-\d+ belongs to partition 1 of {PARTITIONS}"),
    ("instance-twice", "instance", an_instance_twice, r"offset 6: members a and c of group group-\d+ both have instance i"),
    ("read-failed", "segment", an_unreadable_file, r"No such file or directory"),
]  # fmt: skip
PLANTED = [Planted(*row) for row in ROWS]
