"""`tenure log` beside a running broker and after a kill, and `tenure serve` on a newer directory."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.cli.log_folders import OFFSETS, TOPICS, Folder, cut, process, snapshot
from tests.running import Broker, Client, broker, environment

pytestmark = pytest.mark.once  # processes and directories do not depend on the Python version


def verify(folder: Path) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    done = process("verify", folder, "--json")
    assert done.stderr == ""
    *problems, last = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, problems, last["summary"]


def create(serving: Broker, *names: str) -> None:
    with Client(serving.port) as client:
        reply = client.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1, [], []) for name in names], 5_000, False), 5)
        assert [topic.error_code for topic in reply.topics] == [0] * len(names)


def test_verify_works_beside_a_broker_and_after_its_kill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker("--listen", "127.0.0.1:0", "--data", str(data)) as serving:
        create(serving, "orders", "payments")
        code, problems, summary = verify(data)
        assert (code, problems) == (0, [])
        assert summary["in_use_by"].startswith(f"process {serving.pid} since ")
        lines = process("verify", data).stdout.splitlines()
        assert lines[0] == f"{data} is in use by {summary['in_use_by']}: the ends of its logs are still being written and are not checked"
        dumped = process("dump", data, "--kind", "topics", "--json")
        assert (dumped.returncode, dumped.stderr) == (0, "")
        assert {json.loads(line)["key"]["name"] for line in dumped.stdout.splitlines()} >= {"orders", "payments"}
        # Append a half-written batch, as a crash may leave it.
        segment = next((data / f"{TOPICS}-0").glob("*.log"))
        size = segment.stat().st_size
        with segment.open("ab") as file:
            file.write(segment.read_bytes()[:70])
        code, problems, _ = verify(data)
        assert (code, [(problem["problem"], problem["level"], problem["position"]) for problem in problems]) == (
            0,
            [("being-written", "warning", size)],
        )
        dumped = process("dump", data, "--kind", "topics")
        assert (dumped.returncode, dumped.stderr) == (0, f"tenure: {segment}: from byte {size} on the broker is writing; run it again for newer records\n")
        serving.kill()
    code, problems, summary = verify(data)
    assert (code, [problem["problem"] for problem in problems]) == (65, ["torn-end"])
    assert (summary["in_use_by"], summary["stopped_in_order"]) == (None, False)
    assert process("dump", data, "--kind", "topics").returncode == 65
    with broker("--listen", "127.0.0.1:0", "--data", str(data)) as serving:  # a start cuts the torn end off, as the printed line says
        serving.await_line("torn end of a log cut off")
        assert serving.stop() == 0
    code, problems, summary = verify(data)
    assert (code, problems, summary["stopped_in_order"]) == (0, [], True)


def test_a_broker_can_start_while_its_logs_are_read(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker("--listen", "127.0.0.1:0", "--data", str(data)) as serving:
        serving.stop()
    looking = threading.Event()
    ended = threading.Event()

    def look() -> None:
        code = "import sys\nfrom cli.logs.files import lock_holder\nprint(flush=True)\nwhile True: lock_holder(sys.argv[1])"
        command = [sys.executable, "-P", "-c", code, str(data)]
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            looking.set()
            ended.wait(30)
            process.kill()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        assert looking.wait(20)
        for _ in range(3):
            with broker("--listen", "127.0.0.1:0", "--data", str(data)) as serving:
                assert serving.stop() == 0
    finally:
        ended.set()
        thread.join(10)


WRITER = """
import sys
from protocol.batch import Record, build
from storage import DataDirectory, Handles, Log, OsDisk

disk = OsDisk()
directory = DataDirectory.open(disk, sys.argv[1], 1, "", "the writer", lambda: "id")
log, _ = Log.open(Handles(disk), f"{sys.argv[1]}/orders-0", 200_000, 0, False)
print(flush=True)
number = 0
while True:
    log.append(build([Record(n, 1000 + number, b"key", bytes(500 * (number % 50))) for n in range(3)]), log.epoch)
    number += 1
    segments = sorted(name for name in disk.list(f"{sys.argv[1]}/orders-0") if name.endswith(".log"))
    if len(segments) > 5:  # as retention does
        for ending in ("log", "index", "timeindex"):
            disk.remove(f"{sys.argv[1]}/orders-0/{segments[0][:-3]}{ending}")
"""


def test_a_log_growing_and_losing_segments_is_read_consistently(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [sys.executable, "-P", "-c", WRITER, str(data)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        try:
            for _ in range(4):
                code, problems, summary = verify(data)
                assert (code, {problem["problem"] for problem in problems} - {"being-written"}) == (0, set())
                assert summary["in_use_by"] == "the writer"
                dumped = process("dump", data, "--json")
                assert dumped.returncode == 0, dumped.stderr
                offsets = [json.loads(line)["offset"] for line in dumped.stdout.splitlines()]
                assert offsets == sorted(set(offsets))
        finally:
            assert writer.poll() is None
            writer.kill()


def test_groups_in_a_wrong_partition_are_reported_at_the_start(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    (folder.path / f"{OFFSETS}-0").rename(folder.path / f"{OFFSETS}-1")
    with broker("--listen", "127.0.0.1:0", "--data", str(folder.path)) as serving:
        line = json.loads(serving.await_line("groups are in a wrong partition"))
        assert (line["level"], line["log"], line["groups"], line["examples"], line["partitions"]) == ("warning", f"{OFFSETS}-1", 1, [folder.group], 4)
        command = [sys.executable, "-P", "-m", "tenure", "group", "describe", folder.group, "--bootstrap", f"127.0.0.1:{serving.port}"]
        described = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=30, check=False)
    assert described.returncode == 66
    assert described.stderr.startswith(f"tenure: there is no group {folder.group}, but a broker lists it: perhaps it is in a partition that")


@pytest.mark.parametrize(("text", "version_text"), [("4\n", "4"), ("soon\n", "soon"), ("", "nothing")])
def test_serve_refuses_a_newer_format_and_leaves_it_untouched(text: str, version_text: str, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    (folder.path / "tenure.format").write_text(text)
    before = snapshot(folder.path)
    command = [sys.executable, "-P", "-m", "tenure", "serve", "--data", str(folder.path), "--listen", "127.0.0.1:0", "--set", "log.level=error"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (65, "")
    assert done.stderr == (
        f"tenure: data directory {folder.path} has format {version_text} and this version reads up to 3; start the version that wrote it\n"
    )
    assert snapshot(folder.path) == before


def test_serve_does_not_start_on_damage_found_by_verify(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "data")
    cut(folder.segment(TOPICS), -3)
    code, problems, _ = verify(folder.path)
    assert (code, problems[0]["problem"]) == (65, "damaged")
    before = folder.segment(TOPICS).read_bytes()
    command = [sys.executable, "-P", "-m", "tenure", "serve", "--data", str(folder.path), "--listen", "127.0.0.1:0", "--set", "log.level=error"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 65
    assert f"{folder.segment(TOPICS)} is damaged at byte {problems[0]['position']}" in done.stderr
    assert folder.segment(TOPICS).read_bytes() == before
