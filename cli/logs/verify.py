"""`tenure log verify`: checks a data directory or one log, and prints a line for each problem."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, dataclass

from cli.logs.check import COMPACTED, CONTIGUOUS, UNKNOWN, CheckResult, Expected, LogCheck
from cli.logs.derived_files import read_checkpoint
from cli.logs.directory import format_problem, meta_problem, nodes_of, user_of
from cli.logs.files import (
    InputError,
    LogFolder,
    directory_around,
    is_data_directory,
    is_log,
    log_folder,
    logs_of,
    nothing_to_read,
)
from cli.logs.nodes import NodesDirectory
from cli.logs.problems import REMEDIES, Problem, Problems
from cli.logs.records import NOTES_LOG, OFFSETS_LOG, REGISTRY_LOG
from cli.logs.run import DAMAGED, DISK, Output
from cli.logs.text import shown
from cli.shown import counted
from storage.checkpoints import CLEANER_POINTS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, TopicPartition
from storage.directory import CLEAN_SHUTDOWN_FILE, FORMAT_FILE, META_FILE, OWNERS_FILE
from storage.disk import OsDisk
from storage.errors import DamagedTurns
from storage.flush import METADATA, belongs_to_other_topic, read_topic_id
from storage.turn_format import LostTurns, NewerTurns
from storage.turn_log import TurnLogContents, is_turn_log, number_of

# The cleanup policies of internal topics, for those that the registry of topics does not contain.
POLICIES = {
    OFFSETS_LOG: COMPACTED,
    REGISTRY_LOG: COMPACTED,
    NOTES_LOG: CONTIGUOUS,
    "__transaction_state": COMPACTED,
    "__share_group_state": COMPACTED,
    "__cluster_metadata": CONTIGUOUS,
}
CHECKS_WHILE_IN_USE_MAX = 8


@dataclass(slots=True)
class Totals:
    logs: int = 0
    sound_logs: int = 0
    segments: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    problems: int = 0
    warnings: int = 0


def run(options: argparse.Namespace, output: Output) -> None:
    path = options.directory
    if not os.path.lexists(path):
        raise InputError(f"{path} does not exist")
    if not os.path.isdir(path):
        raise InputError(f"{path} is a file; verify accepts a data directory or the folder of one log")
    verify = Verify(path, options.json, output)
    if is_log(path):
        verify.verify_log()
    elif is_data_directory(path):
        verify.verify_directory()
    else:
        raise nothing_to_read(path)


class Verify:
    def __init__(self, path: str, as_json: bool, output: Output) -> None:
        self.path = path
        self.json = as_json
        self.output = output
        self.totals = Totals()
        self.used_by: str | None = None
        self.nodes: NodesDirectory | None = None  # of a directory of several nodes
        self.clean = False
        self.in_directory = True
        self._checkpoint_offsets: dict[str, dict[TopicPartition, int]] = {}
        self._end_offsets: dict[TopicPartition, int] = {}

    def verify_log(self) -> None:
        directory = directory_around(self.path)
        self.in_directory = bool(directory)
        self.nodes = nodes_of(directory)
        self.used_by = user_of(directory, self.nodes) if directory else None
        log = log_folder(self.path)
        self.clean = self._is_clean(directory, [log])
        self._report_use()
        if directory and (problem := format_problem(directory)):
            problems = Problems()
            problems.add("format-newer", os.path.join(directory, FORMAT_FILE), None, problem)
            self._report(problems)
        else:
            self._check_log(log, Expected(self.used_by is not None, self.clean, policy=POLICIES.get(log.name, UNKNOWN)))
        self._print_summary()

    def verify_directory(self) -> None:
        self.nodes = nodes_of(self.path)
        self.used_by = user_of(self.path, self.nodes)
        problems = Problems()
        logs = logs_of(self.path)
        self.clean = self._is_clean(self.path, logs)
        self._report_use()
        if self._check_directory_files(problems, bool(logs)):
            self._report(problems)
            topics = self._check_registry(logs)
            for log in logs:
                if log.name != REGISTRY_LOG:
                    self._check_log(log, self._expected(log, topics, logs))
            problems = Problems()
            self._check_folders(problems, topics, logs)
            for folder in self._folders():
                self._check_turn_logs(problems, folder)
        self._report(problems)
        self._print_summary()

    # The directory itself

    def _is_clean(self, directory: str, logs: list[LogFolder]) -> bool:
        """Whether the brokers that wrote the logs last stopped in order, so that nothing can be missing at the ends of the logs."""
        if self.nodes is not None:
            return all(map(self.nodes.is_clean, logs))
        return os.path.lexists(os.path.join(directory, CLEAN_SHUTDOWN_FILE))

    def _folders(self) -> list[str]:
        """The folders with checkpoints and turn logs (`turns.N`): the directory itself, or the folder of each node."""
        return [self.path] if self.nodes is None else list(map(self.nodes.folder, self.nodes.names))

    def _is_writer(self, folder: str, id: TopicPartition) -> bool:
        """Whether the log's last writer has this folder: then only its checkpoints and turn logs apply to the log."""
        return self.nodes is None or self.nodes.is_writer(os.path.basename(folder), id)

    def _check_directory_files(self, problems: Problems, has_logs: bool) -> bool:
        """Check the files outside of logs; return False if the directory has a newer format, which cannot be read."""
        if problem := format_problem(self.path):
            problems.add("format-newer", os.path.join(self.path, FORMAT_FILE), None, problem)
            return False
        meta = os.path.join(self.path, META_FILE)
        if not os.path.lexists(meta):
            if has_logs:
                problems.add("meta-missing", meta, None, "there is no such file")
        elif problem := meta_problem(meta):
            problems.add("meta-damaged", meta, None, problem)
        if self.nodes is not None and (problem := self.nodes.table_problem()):
            text = f"{problem}: the last writer of each log is unknown, so the nodes' checkpoints and turn logs are not compared with the logs"
            problems.add("owners-damaged", os.path.join(self.path, OWNERS_FILE), None, text)
        for folder in self._folders():
            self._read_checkpoints(problems, folder)
        for folder in dict.fromkeys((self.path, *self._folders())):
            for name in sorted(os.listdir(folder)):
                if name.endswith((".probe", ".new")) and self.used_by is None:
                    problems.add("leftover", os.path.join(folder, name), None, "left by interrupted work")
        return True

    def _read_checkpoints(self, problems: Problems, folder: str) -> None:
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_POINTS):
            path = os.path.join(folder, name)
            if not os.path.lexists(path):
                continue
            lines = read_checkpoint(path, 3)
            if isinstance(lines, str):
                problems.add("checkpoint-damaged", path, None, lines)
                continue
            known = self._checkpoint_offsets.setdefault(name, {})
            for topic, partition, text in lines:
                id, offset = (topic, int(partition)), int(text)
                if name == CLEANER_POINTS:  # any node may have compacted the log: the highest offset counts
                    known[id] = max(offset, known.get(id, -1))
                elif self._is_writer(folder, id):
                    known[id] = offset

    def _check_registry(self, logs: list[LogFolder]) -> dict[str, tuple[int, str, str]]:
        """Check the topic registry. Returns its topics, with which the other logs are compared."""
        topics: dict[str, tuple[int, str, str]] = {}
        for log in logs:
            if log.name == REGISTRY_LOG:
                topics |= self._check_log(log, self._expected(log, {}, logs)).topics
        return topics

    def _expected(self, log: LogFolder, topics: dict[str, tuple[int, str, str]], logs: list[LogFolder]) -> Expected:
        id = (log.name, log.partition)
        clean = self.clean if self.nodes is None else self.nodes.is_clean(log)
        return Expected(
            in_use=self.used_by is not None,
            clean=clean,
            partitions=self._group_partitions(topics, logs) if log.name in (OFFSETS_LOG, NOTES_LOG) else 0,
            policy=POLICIES.get(log.name) or topics.get(log.name, (0, UNKNOWN, ""))[1],
            recovery_point=self._checkpoint_offsets.get(RECOVERY_POINTS, {}).get(id, 0),
            log_start=self._checkpoint_offsets.get(LOG_STARTS, {}).get(id, 0) if clean else -1,
            cleaned_to=self._checkpoint_offsets.get(CLEANER_POINTS, {}).get(id, -1),
        )

    def _group_partitions(self, topics: dict[str, tuple[int, str, str]], logs: list[LogFolder]) -> int:
        """The number of partitions of __consumer_offsets: from the registry, or without a registry from the folders if none is missing; 0 if unknown."""
        if OFFSETS_LOG in topics:
            return topics[OFFSETS_LOG][0]
        if any(log.name == REGISTRY_LOG for log in logs):
            return 0
        numbers = [log.partition for log in logs if log.name == OFFSETS_LOG]
        return len(numbers) if numbers == list(range(len(numbers))) else 0

    def _check_folders(self, problems: Problems, topics: dict[str, tuple[int, str, str]], logs: list[LogFolder]) -> None:
        """Report missing or shortened logs, and unknown folders."""
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS):  # not LOG_STARTS: a log may start after its last batch
            for id, offset in self._checkpoint_offsets.get(name, {}).items():
                path = os.path.join(next((folder for folder in self._folders() if self._is_writer(folder, id)), self.path), name)
                if id in self._end_offsets and offset > self._end_offsets[id] and self.used_by is None:
                    problems.add("checkpoint-ahead", path, None, f"{shown(id[0])}-{id[1]} reached offset {offset} and now ends at {self._end_offsets[id]}")
                elif id not in self._end_offsets and offset > 0 and name == RECOVERY_POINTS:
                    problems.add("log-missing", path, None, f"{shown(id[0])}-{id[1]} reached offset {offset} and has no folder")
        if not any(log.name == REGISTRY_LOG for log in logs):
            return
        for log in logs:
            if log.name not in (REGISTRY_LOG, NOTES_LOG) and log.partition >= topics.get(log.name, (0, "", ""))[0]:
                problems.add("folder-unknown", log.path, None, "the registry of topics does not have this partition")
            elif log.name not in POLICIES and self.used_by is None:
                self._check_topic_id(problems, log.path, topics[log.name][2])

    def _check_topic_id(self, problems: Problems, folder: str, expected: str) -> None:
        disk, path = OsDisk(), os.path.join(folder, METADATA)
        id_found = read_topic_id(disk, folder)
        if id_found == expected or not os.path.lexists(path):
            return
        if belongs_to_other_topic(disk, folder, expected):
            problems.add("topic-id-wrong", path, None, f"it has topic id {id_found}, and the registry of topics has {expected}")
        else:
            problems.add("topic-id-damaged", path, None, f"it does not have the topic's id, {expected}")

    def _check_turn_logs(self, problems: Problems, folder: str) -> None:
        """Check the turn logs (`turns.N`) in the folder, and whether they can complete each log that ends too early."""
        names = sorted((name for name in os.listdir(folder) if is_turn_log(name)), key=number_of)
        files = [(os.path.join(folder, name), read_or_empty(os.path.join(folder, name))) for name in names]
        try:
            turns = TurnLogContents(files)
        except NewerTurns as error:
            problems.add("turns-newer", folder, None, str(error))
            return
        for path, piece in turns.damage:
            if isinstance(piece, LostTurns):
                text = f"{piece.reason} ({piece.size} bytes)"
            else:
                text = f"a batch of {shown(piece.name)}, offsets {piece.base} to {piece.end - 1}, differs from the batch that was written"
            problems.add("turns-damaged", path, piece.position, text)
        if self.used_by is not None:
            return
        for (name, partition), end in self._end_offsets.items():
            if name in (OFFSETS_LOG, REGISTRY_LOG) and self._is_writer(folder, (name, partition)):
                try:
                    turns.missing_batches(f"{name}-{partition}", end)
                except DamagedTurns as damaged:
                    problems.add("turns-needed", damaged.path, damaged.position, damaged.reason)

    # The logs

    def _check_log(self, log: LogFolder, expected: Expected) -> CheckResult:
        for number in range(CHECKS_WHILE_IN_USE_MAX):
            before = files_of(log.path)
            try:
                result = LogCheck(log, expected).run()
            except FileNotFoundError:  # the folder, or a file in it, was removed meanwhile
                result = CheckResult()
            # A running broker may have removed or replaced segments during the check: check again.
            if not expected.in_use or number + 1 == CHECKS_WHILE_IN_USE_MAX or before == files_of(log.path):
                break
        id = (log.name, log.partition)
        # A log without segments continues at its log start.
        self._end_offsets[id] = result.next_offset if result.segments else self._checkpoint_offsets.get(LOG_STARTS, {}).get(id, 0)
        totals = self.totals
        totals.logs += 1
        totals.sound_logs += not result.problems.has(warning=False)
        totals.segments += result.segments
        totals.bytes += result.bytes
        totals.batches += result.batches
        totals.records += result.records
        self._report(result.problems)
        return result

    # Output

    def _report(self, problems: Problems) -> None:
        for problem in problems.shown:
            self._print_problem(problem)
        for kind, file, more in problems.over_limit():
            if not self.json:
                self.output.line(f"and {more} more {kind} in {file}")
            else:
                self.output.line(json.dumps({"more": more, "problem": kind, "file": file}))
        self.totals.problems += problems.number(warnings=False)
        self.totals.warnings += problems.number(warnings=True)
        if problems.has(warning=False):
            only_reading = all(problem.kind == "read-failed" or problem.is_warning for problem in problems.shown)
            first = next(problem for problem in problems.shown if not problem.is_warning)
            self.output.fail(DISK if only_reading else DAMAGED, f"{first.kind}: {first.file}: {first.text}", REMEDIES[first.kind])

    def _print_problem(self, problem: Problem) -> None:
        level = "warning" if problem.is_warning else "problem"
        if self.json:
            fields = {"level": level, "problem": problem.kind, "file": problem.file, "position": problem.position, "what": problem.text}
            self.output.line(json.dumps({**fields, "go_on": REMEDIES[problem.kind]}, ensure_ascii=False))
            return
        place = f" at byte {problem.position}" if problem.position is not None else ""
        self.output.line(f"{level} {problem.kind}: {problem.file}{place}: {problem.text}. To go on: {REMEDIES[problem.kind]}.")

    def _report_use(self) -> None:
        if self.used_by is not None and not self.json:
            self.output.line(f"{self.path} is in use by {self.used_by}: the ends of its logs are still being written and are not checked")

    def _print_summary(self) -> None:
        totals = self.totals
        if self.json:
            summary = {"directory": self.path, "in_use_by": self.used_by, "stopped_in_order": self.clean, **asdict(totals)}
            self.output.line(json.dumps({"summary": summary} | self.output.error(), ensure_ascii=False))
            return
        quiet = self.used_by is not None or self.clean or not self.in_directory
        stopped = "" if quiet else f"; it was not stopped in order, so the next start reads the end of each log{self._turn_logs_text()}"
        self.output.line(
            f"{totals.sound_logs} of {counted(totals.logs, 'log')} sound: {counted(totals.segments, 'segment')} with {totals.bytes} bytes, "
            f"{counted(totals.batches, 'batch')}, {counted(totals.records, 'record')} read; {counted(totals.problems, 'problem')}, {counted(totals.warnings, 'warning')}{stopped}"
        )

    def _turn_logs_text(self) -> str:
        """A text that names the turn logs from which the next start of the broker completes logs; "" if there are none."""
        names = sorted(os.path.relpath(os.path.join(folder, name), self.path) for folder in self._folders() for name in os.listdir(folder) if is_turn_log(name))
        return f", and completes logs from {' and '.join(names)}" if names else ""


def read_or_empty(path: str) -> bytes:
    """The bytes of a file; b"" if it was removed meanwhile."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def files_of(folder: str) -> list[tuple[str, int]]:
    """The names and inodes of a log's segments."""
    try:
        return sorted((entry.name, entry.inode()) for entry in os.scandir(folder) if entry.name.endswith(".log"))
    except FileNotFoundError:
        return []
