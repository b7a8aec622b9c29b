"""Problems of every kind, planted in a sound data directory: what `tenure log verify` must find."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import google_crc32c

from protocol.batch import Record, build, iterate, stamp
from storage import OsDisk
from storage.turn_format import FILE_BYTES, file_header
from storage.turn_log import TurnLog
from tests.cli.log_folders import NOTES, OFFSETS, PARTITIONS, TOPICS, Folder, change, cut, groups_of, image, member, offset, topic

# Each plants one problem and returns the file that must be named.


def torn_end(folder: Folder) -> Path:
    folder.crashed()
    cut(folder.segment(OFFSETS), -3)
    return folder.segment(OFFSETS)


def torn_end_of_zeros(folder: Folder) -> Path:
    folder.crashed()
    with folder.segment(OFFSETS).open("ab") as file:
        file.write(bytes(5_000))
    return folder.segment(OFFSETS)


def damaged_in_the_last_segment(folder: Folder) -> Path:
    folder.crashed()
    change(folder.segment(OFFSETS), 70, b"!")
    return folder.segment(OFFSETS)


def damaged_in_the_last_batch(folder: Folder) -> Path:
    folder.crashed()
    change(folder.segment(OFFSETS), -1, b"!")
    return folder.segment(OFFSETS)


def turns_of(folder: Folder) -> Path:
    """A log of turns with one batch that the log has, and one that it lacks; in two turns."""
    folder.crashed()
    data = folder.segment(OFFSETS).read_bytes()
    has = list(iterate(data, 0, len(data)))[-1]
    lacks = bytearray(build([Record(0, 1_000, b"key", b"value", [])]))
    stamp(lacks, 0, has.next_offset, 0)
    turns = TurnLog(OsDisk(), str(folder.path), 3)
    name = f"{OFFSETS}-0"
    turns.write([(name, data[len(data) - has.size :], has.base_offset, has.next_offset)])
    turns.write([(name, lacks, has.next_offset, has.next_offset + 1)])
    turns.close()
    return folder.path / "turns.3"


def a_turn_that_is_damaged(folder: Folder) -> Path:
    turns = turns_of(folder)
    change(turns, FILE_BYTES, b"!")
    return turns


def a_turn_that_is_damaged_and_needed(folder: Folder) -> Path:
    turns = turns_of(folder)
    change(turns, -1, b"!")
    return turns


def turns_of_a_newer_version(folder: Folder) -> Path:
    header = bytearray(file_header(0, 0)[:-4])
    header[5] += 1
    (folder.path / "turns.3").write_bytes(bytes(header) + google_crc32c.value(bytes(header)).to_bytes(4, "big"))
    return folder.path


def damaged_in_an_older_segment(folder: Folder) -> Path:
    change(folder.segment("orders"), 100, b"!")
    return folder.segment("orders")


def damaged_length(folder: Folder) -> Path:
    change(folder.segment("orders"), 8, b"\x7f\xff\xff\xff")
    return folder.segment("orders")


def damaged_magic(folder: Folder) -> Path:
    change(folder.segment("orders"), 16, b"\x01")
    return folder.segment("orders")


def damaged_at_the_end_of_an_older_segment(folder: Folder) -> Path:
    cut(folder.segment("orders"), -10)
    return folder.segment("orders")


def flushed_once_and_gone(folder: Folder) -> Path:
    (folder.path / ".kafka_cleanshutdown").unlink()
    cut(folder.segment(OFFSETS), -3)
    return folder.segment(OFFSETS)


def torn_after_an_orderly_stop(folder: Folder) -> Path:
    (folder.path / "recovery-point-offset-checkpoint").unlink()
    cut(folder.segment(OFFSETS), -3)
    return folder.segment(OFFSETS)


def a_batch_twice(folder: Folder) -> Path:
    segment = folder.segment("orders")
    data = segment.read_bytes()
    first = next(iterate(data, 0, len(data))).size
    segment.write_bytes(data[:first] + data)
    remove_indexes(segment)
    return segment


def remove_indexes(segment: Path) -> None:
    for ending in (".index", ".timeindex"):
        segment.with_suffix(ending).write_bytes(b"")


def segments_that_overlap(folder: Folder) -> Path:
    first, second = folder.segment("orders"), folder.segment("orders", 0, 1)
    data = bytearray(second.read_bytes())
    header = next(iterate(bytes(data), 0, len(data)))
    with first.open("ab") as file:
        file.write(data[: header.size])
    return first


def an_offset_that_no_index_could_name(folder: Folder) -> Path:
    """Not covered by the checksum, and nothing comes behind it that would not fit."""
    change(folder.segment(NOTES), 0, (1 << 40).to_bytes(8, "big"))
    return folder.segment(NOTES)


def remains_of_an_interrupted_repair(folder: Folder) -> Path:
    folder.crashed()
    segment = folder.segment("orders", 0, -2)
    with segment.open("ab") as file:
        file.write(folder.segment("orders", 0, -1).read_bytes()[:100])
    return segment


def a_segment_that_is_gone(folder: Folder) -> Path:
    segment = folder.segment("orders", 0, 1)
    for ending in (".log", ".index", ".timeindex"):
        segment.with_suffix(ending).unlink()
    return folder.segment("orders", 0, 1)


def a_batch_that_is_gone(folder: Folder) -> Path:
    segment = folder.segment("orders")
    data = segment.read_bytes()
    sizes = [header.size for header in iterate(data, 0, len(data))]
    segment.write_bytes(data[: sizes[0]] + data[sizes[0] + sizes[1] :])
    remove_indexes(segment)
    return segment


def a_batch_that_is_gone_where_nothing_was_compacted(folder: Folder) -> Path:
    segment = folder.segment(OFFSETS)
    data = segment.read_bytes()
    sizes = [header.size for header in iterate(data, 0, len(data))]
    segment.write_bytes(data[: sizes[0]] + data[sizes[0] + sizes[1] :])
    return segment


def offsets_skipped_in_a_log_that_nobody_knows(folder: Folder) -> Path:
    shutil.rmtree(folder.path / f"{TOPICS}-0")
    return a_batch_that_is_gone(folder)


def an_index_that_leads_nowhere(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".index")
    assert index.stat().st_size
    change(index, 7, bytes([index.read_bytes()[7] ^ 1]))
    return index


def an_index_with_a_wrong_offset(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".index")
    change(index, 3, bytes([index.read_bytes()[3] - 1]))
    return index


def an_index_behind_the_end(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".index")
    with index.open("ab") as file:
        file.write(b"\0\0\7\0\0\1\0\0")
    return index


def an_index_out_of_order(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".index")
    index.write_bytes(index.read_bytes() + index.read_bytes()[-8:])
    return index


def an_index_of_half_an_entry(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".index")
    with index.open("ab") as file:
        file.write(b"123")
    return index


def a_time_index_with_a_wrong_time(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".timeindex")
    change(index, 7, bytes([index.read_bytes()[7] - 1]))
    return index


def a_time_index_behind_the_end(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".timeindex")
    change(index, -2, b"\7\0")
    return index


def an_index_that_is_missing(folder: Folder) -> Path:
    index = folder.segment("orders").with_suffix(".index")
    index.unlink()
    return index


def epochs_of_another_log(folder: Folder) -> Path:
    path = folder.path / f"{OFFSETS}-0/leader-epoch-checkpoint"
    path.write_text("0\n3\n0 0\n1 2\n2 4\n")
    return path


def an_epoch_that_no_batch_has(folder: Folder) -> Path:
    path = folder.path / "orders-0/leader-epoch-checkpoint"
    path.write_text("0\n2\n0 0\n1 50\n")
    return path


def epochs_that_make_no_sense(folder: Folder) -> Path:
    path = folder.path / f"{OFFSETS}-0/leader-epoch-checkpoint"
    path.write_text("0\n2\n3 0\n1 9\n")
    return path


def epochs_that_did_not_survive(folder: Folder) -> Path:
    path = folder.path / f"{OFFSETS}-0/leader-epoch-checkpoint"
    path.write_text("0\n1\n0 0\n")
    return path


def no_epochs_at_all(folder: Folder) -> Path:
    path = folder.path / f"{OFFSETS}-0/leader-epoch-checkpoint"
    path.unlink()
    return path


def epochs_out_of_order(folder: Folder) -> Path:
    segment = folder.segment(OFFSETS)
    data = bytearray(segment.read_bytes())
    stamp(data, 0, 0, 9)  # outside of the checksum
    segment.write_bytes(data)
    return segment


def a_meta_file_of_nobody(folder: Folder) -> Path:
    (folder.path / "meta.properties").write_text("node.id=1\nversion=1\n")
    return folder.path / "meta.properties"


def no_meta_file(folder: Folder) -> Path:
    (folder.path / "meta.properties").unlink()
    return folder.path / "meta.properties"


def a_newer_format(folder: Folder) -> Path:
    (folder.path / "tenure.format").write_text("2\n")
    return folder.path / "tenure.format"


def a_checkpoint_that_makes_no_sense(folder: Folder) -> Path:
    (folder.path / "recovery-point-offset-checkpoint").write_text("0\n2\norders 0 5\n")
    return folder.path / "recovery-point-offset-checkpoint"


def a_log_that_lost_its_last_segment(folder: Folder) -> Path:
    segment = folder.segment("orders", 0, -1)
    for ending in (".log", ".index", ".timeindex"):
        segment.with_suffix(ending).unlink()
    return folder.path / "recovery-point-offset-checkpoint"


def a_log_that_is_missing(folder: Folder) -> Path:
    shutil.rmtree(folder.path / f"{OFFSETS}-0")
    return folder.path / "recovery-point-offset-checkpoint"


def a_folder_of_no_topic(folder: Folder) -> Path:
    (folder.path / "orders-2").mkdir()
    return folder.path / "orders-2"


def the_id_of_another_topic(folder: Folder) -> Path:
    path = folder.path / "orders-1" / "partition.metadata"
    path.parent.mkdir(exist_ok=True)
    path.write_text("version: 0\ntopic_id: 8oQpMFGBTQ6hYdgbpeSPsg")
    return path


def an_id_with_a_flipped_bit(folder: Folder) -> Path:
    path = folder.path / "orders-1" / "partition.metadata"
    path.parent.mkdir(exist_ok=True)
    path.write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODg")
    return path


def an_interrupted_repair(folder: Folder) -> Path:
    path = folder.path / "orders-0/00000000000000000010.log.rewriting"
    path.write_bytes(b"half")
    return path


def a_segment_of_no_name(folder: Folder) -> Path:
    path = folder.path / "orders-0/copy of it.log"
    path.write_bytes(b"")
    return path


def records_that_are_none(folder: Folder) -> Path:
    log = folder.open("orders", 0)
    batch = bytearray(build([Record(0, 1, b"key", b"value")]))
    batch[57:61] = (1).to_bytes(4, "big")
    batch[61] = 126  # the record's length: longer than the batch
    log.append(with_checksum(batch), log.epoch)
    folder.close("orders", 0, log)
    return folder.segment("orders", 0, -1)


def with_checksum(batch: bytearray) -> bytes:
    import google_crc32c

    batch[17:21] = google_crc32c.value(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def a_value_that_is_cut_short(folder: Folder) -> Path:
    key, value = offset(folder.group, 0, 1)
    assert value is not None
    folder.append(OFFSETS, 0, [(key, value[:-4])])
    return folder.segment(OFFSETS)


def a_value_of_a_newer_version(folder: Folder) -> Path:
    key, value = offset(folder.group, 0, 1)
    assert value is not None
    folder.append(OFFSETS, 0, [(key, b"\0\5" + value[2:])])
    return folder.segment(OFFSETS)


def a_topic_of_a_newer_version(folder: Folder) -> Path:
    folder.append(TOPICS, 0, [(b"\0\3" + topic("later", 1)[0][2:], b"\0\0")])
    return folder.segment(TOPICS)


def a_kind_of_record_that_nobody_knows(folder: Folder) -> Path:
    folder.append(OFFSETS, 0, [(b"\0\7key", b"\0\0")])
    return folder.segment(OFFSETS)


def a_group_in_the_wrong_partition(folder: Folder) -> Path:
    folder.append(OFFSETS, 0, [offset(groups_of(1, 1)[0], 0, 1)])
    return folder.segment(OFFSETS)


def an_instance_twice(folder: Folder) -> Path:
    folder.append(OFFSETS, 0, [image(folder.third, [member("a", "i"), member("b"), member("c", "i")])])
    return folder.segment(OFFSETS)


def a_file_that_nobody_may_read(folder: Folder) -> Path:
    segment = folder.segment("orders")
    segment.unlink()
    segment.symlink_to(folder.path / "nowhere")
    return segment


PLANTED: list[tuple[str, Callable[[Folder], Path], str]] = [
    ("torn-end", torn_end, r"a batch of \d+ bytes is cut short after \d+ \(\d+ bytes\)"),
    ("torn-end", torn_end_of_zeros, r"zeros where a batch must be \(5000 bytes\)"),
    ("turns-damaged", a_turn_that_is_damaged, r"no turn begins there \(\d+ bytes\)"),
    ("turns-damaged", a_turn_that_is_damaged_and_needed, rf"a batch of {OFFSETS}-0, offsets 6 to 6, is not what was written"),
    ("turns-needed", a_turn_that_is_damaged_and_needed, rf"{OFFSETS}-0 had a batch here that ends before offset 7, and what is left of the log ends before 6"),
    ("turns-newer", turns_of_a_newer_version, r"it has version 2 and this version reads up to 1"),
    ("damaged-end", damaged_in_the_last_batch, r"checksum is wrong \(\d+ bytes to the end, not what an interrupted write leaves\)"),
    ("damaged-end", damaged_in_the_last_segment, r"checksum is wrong \(\d+ bytes, sound batches follow\)"),
    ("damaged", damaged_in_an_older_segment, r"checksum is wrong \(\d+ bytes, sound batches follow\)"),
    ("damaged", damaged_length, r"a batch of 2147483659 bytes, more than a request can bring \(\d+ bytes, sound batches follow\)"),
    ("damaged", damaged_magic, r"a batch of magic 1 \(\d+ bytes, sound batches follow\)"),
    ("damaged", damaged_at_the_end_of_an_older_segment, r"is cut short after \d+ \(\d+ bytes to the end of the segment, which is not the last\)"),
    ("damaged", flushed_once_and_gone, r"everything before offset 6 was on the disk once, and from 4 on it is not"),
    ("damaged", torn_after_an_orderly_stop, r"the broker had stopped in order, so this came later"),
    ("damaged", a_batch_twice, r"offset 0 where at least 2 must be"),
    ("damaged", an_offset_that_no_index_could_name, r"offset 1099511627777 is too far from the segment's first, 0"),
    ("segment-overlap", segments_that_overlap, r"offset \d+, but 0{18}\d\d\.log begins at \d+"),
    ("segment-overlap", remains_of_an_interrupted_repair, r"is cut short .*; 0{17}\d{3}\.log goes on where the sound part ends"),
    ("offsets-missing", a_segment_that_is_gone, r"offsets \d+ to \d+ are not there"),
    ("offsets-missing", a_batch_that_is_gone, r"offsets 2 to 3 are not there"),
    ("offsets-missing", a_batch_that_is_gone_where_nothing_was_compacted, r"offsets 1 to 3 are not there, and this segment was never compacted"),
    ("offsets-skipped", offsets_skipped_in_a_log_that_nobody_knows, r"offsets 2 to 3 are not there"),
    ("index-wrong", an_index_that_leads_nowhere, r"it leads to byte \d+, where no batch begins"),
    ("index-wrong", an_index_with_a_wrong_offset, r"it names offset \d+, but the batch that it leads to ends in \d+"),
    ("index-wrong", an_index_behind_the_end, r"behind the end of the segment|which the segment does not have"),
    ("index-wrong", an_index_out_of_order, r"out of order"),
    ("index-wrong", an_index_of_half_an_entry, r"it ends in 3 bytes that are no entry"),
    ("index-wrong", a_time_index_with_a_wrong_time, r"it has \d+ as the largest time up to offset \d+, where the batch has \d+"),
    ("index-wrong", a_time_index_behind_the_end, r"it names offset \d+, which the segment does not have"),
    ("index-missing", an_index_that_is_missing, r"there is no such file"),
    ("epochs-wrong", epochs_of_another_log, r"offsets 1 to 1 are of epoch 1, and it says epoch 0 there"),
    ("epochs-wrong", an_epoch_that_no_batch_has, r"offsets 0 to 118 are of epoch 0, and it says epoch 1 there"),
    ("epochs-damaged", epochs_that_make_no_sense, r"epochs and offsets do not grow"),
    ("epochs-behind", epochs_that_did_not_survive, r"it does not have epoch 1, which begins at offset 1"),
    ("epochs-behind", no_epochs_at_all, r"there is no such file"),
    ("epoch-order", epochs_out_of_order, r"offset 1 is of epoch 1, written behind epoch 9"),
    ("meta-damaged", a_meta_file_of_nobody, r"it has no cluster\.id"),
    ("meta-missing", no_meta_file, r"there is no such file"),
    ("format-newer", a_newer_format, r"has format 2 and this version reads up to 1"),
    ("checkpoint-damaged", a_checkpoint_that_makes_no_sense, r"it does not have as many lines as it says"),
    ("checkpoint-ahead", a_log_that_lost_its_last_segment, r"orders-0 reached offset 120 and now ends at \d+"),
    ("log-missing", a_log_that_is_missing, rf"{OFFSETS}-0 reached offset 6 and has no folder"),
    ("folder-unknown", a_folder_of_no_topic, r"the registry of topics does not have this partition"),
    (
        "topic-id-wrong",
        the_id_of_another_topic,
        r"has topic id 8oQpMFGBTQ6hYdgbpeSPsg, and the registry of topics has AAECAwQFBgcICQoLDA0ODw",
    ),
    ("topic-id-damaged", an_id_with_a_flipped_bit, r"it does not have the topic's id, AAECAwQFBgcICQoLDA0ODw"),
    ("leftover", an_interrupted_repair, r"left behind by work that was interrupted"),
    ("unknown-name", a_segment_of_no_name, r"a segment is named by twenty digits"),
    ("batch-unreadable", records_that_are_none, r"offsets 120 to 120: "),
    ("record-unreadable", a_value_that_is_cut_short, r"offset 6: cannot be read: OffsetCommitValue v3 is cut short"),
    ("record-newer", a_value_of_a_newer_version, r"offset 6: a value of version 5, newer than version 4"),
    ("record-newer", a_topic_of_a_newer_version, r"offset 4: a key of version 3, newer than version 2"),
    ("record-unknown", a_kind_of_record_that_nobody_knows, r"offset 6: a key of version 7"),
    ("wrong-partition", a_group_in_the_wrong_partition, rf"offset 6: group group-\d+ belongs to partition 1 of {PARTITIONS}"),
    ("instance-twice", an_instance_twice, r"offset 6: members a and c of group group-\d+ both are instance i"),
    ("read-failed", a_file_that_nobody_may_read, r"No such file or directory"),
]
