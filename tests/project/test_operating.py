"""docs/operating.md documents every logged warning and error, and its commands and systemd unit work."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.runtime.start import ExitCode
from broker.settings.sources import Given
from cli import USAGE
from protocol.batch import Record, build
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kafka_process import free_ports
from tests.project.listings import listings, table
from tests.running import ROOT, Client, environment
from tests.support.restartable import create_topic

pytestmark = pytest.mark.once  # a page of this checkout does not depend on the Python version

PAGE = ROOT / "docs/operating.md"
LEVELS = {"warning": "warning", "error": "error", "critical": "error", "exception": "error"}


def logged(folder: Path) -> Iterator[tuple[str, str, set[str]]]:
    """The message, level and fields of each log call in the broker with level warning or higher."""
    for path in sorted([*folder.glob("broker/**/*.py"), folder / "cli/serve.py"]):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name("log") | ast.Call(), attr=level), args=[ast.Constant(str(line)), *_]) if level in LEVELS:
                    yield line, LEVELS[level], {keyword.arg or "" for keyword in node.keywords}
                case ast.Call(func=ast.Name("report_defect" | "report_broken"), args=[ast.Constant(str(line)), *_] | [_, ast.Constant(str(line)), *_]):  # broker/runtime/contain.py
                    yield line, "error", {keyword.arg or "" for keyword in node.keywords}
                case ast.Call(func=ast.Name("Notice"), args=[ast.Constant(str(line)), ast.Dict(keys=[ast.Constant(str(name))])]):  # of a setting, at start
                    yield line, "warning", {name}
                case ast.Call(func=ast.Name("Notice"), args=[ast.Constant(str(line)), ast.Attribute(attr="fields")]):
                    yield line, "warning", set(Given("num.partitions", "1", "--set").fields)
                case ast.Dict(keys=[ast.Constant("event"), *others], values=[ast.Constant(str(line)), *_]):
                    yield line, "warning", {str(literal.value) for literal in others if isinstance(literal, ast.Constant)}


def test_the_page_lists_exactly_the_logged_warnings_and_errors() -> None:
    levels: dict[str, tuple[str, set[str]]] = {}
    for line, level, fields in logged(ROOT):
        assert levels.setdefault(line, (level, set()))[0] == level, f"{line!r} has two levels"
        levels[line][1].update(fields)
    assert len(levels) > 30
    explained = table(PAGE, "line | level | with | what it means | what to do")
    assert {line: (level, set(re.findall(r"`(\w+)`", fields))) for line, level, fields, _, _ in explained} == levels
    assert [row[0] for row in explained] == sorted(levels)
    assert all(means and do for _, _, _, means, do in explained)


def test_an_undocumented_log_line_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "cli").mkdir()
    (tmp_path / "broker/some.py").write_text('log.warning("quite new", log=1, why=2)\nget_logger().exception("newer")\nreport_defect("newest", error, by=1)\nlog.info("fine")\n')
    (tmp_path / "cli/serve.py").write_text('render(None, "warning", {"event": "lost", "lines": 3})\n')
    assert list(logged(tmp_path)) == [("quite new", "warning", {"log", "why"}), ("newer", "error", set()), ("newest", "error", {"by"}), ("lost", "warning", {"lines"})]


def test_an_event_is_a_name_and_its_data_are_fields() -> None:
    """Events that are not literals: what a caller passes, a frame's direction, a setting's notice, and a library's warning."""
    others = set()
    for path in sorted((*(ROOT / "broker").rglob("*.py"), *(ROOT / "cli").rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name("log"), attr="debug" | "info" | "warning" | "error" | "exception"), args=[event, *_]):
                    choices = [event.body, event.orelse] if isinstance(event, ast.IfExp) else [event]
                    others |= {ast.unparse(choice) for choice in choices if not isinstance(choice, ast.Constant)}
    assert others == {"direction", "event", "notice.event", "str(message)"}


def test_every_exit_code_of_a_failed_start_is_documented() -> None:
    codes = [int(row[0]) for row in table(PAGE, "code | the line says | what to do")]
    assert codes == sorted({*ExitCode, USAGE} - {ExitCode.OK})


def unit() -> str:
    (listing,) = listings(PAGE, "ini")
    return listing.text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: systemd)")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    tenure = tmp_path / "tenure"
    tenure.write_text("#!/bin/sh\n")
    tenure.chmod(0o755)
    file = tmp_path / "tenure.service"
    file.write_text(unit().replace("/opt/tenure/bin/tenure", str(tenure)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, check=False)
    # Ignore complaints about other units of this machine.
    assert not [line for line in (done.stdout + done.stderr).splitlines() if "tenure" in line]
    file.write_text(unit() + "\nNoSuchWord=yes\n")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, check=False)
    assert "NoSuchWord" in done.stdout + done.stderr


def test_the_unit_does_not_restart_after_a_permanent_failure() -> None:
    (codes,) = re.findall(r"^RestartPreventExitStatus=(.*)$", unit(), re.MULTILINE)
    assert set(map(int, codes.split())) == {USAGE, ExitCode.DATA, ExitCode.PLATFORM, ExitCode.DIRECTORY, ExitCode.CONFIG}


# Backup, restore and damage, with the commands of the page.

SYSTEMCTL = """\
#!/bin/sh
# What systemd would do with our unit, for one broker in one folder.
case "$1" in
start)
    {tenure} serve --data {data} --listen 127.0.0.1:{port} 2>>{folder}/log >/dev/null &
    echo $! >{folder}/pid
    {tenure} health 127.0.0.1:{port} --wait 20 >/dev/null ;;
stop)
    kill "$(cat {folder}/pid)" && while kill -0 "$(cat {folder}/pid)" 2>/dev/null; do sleep 0.02; done ;;
esac
"""


class Machine:
    """The paths and commands that the page names, in a folder of this test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "var/lib/tenure/data"
        (self.port,) = free_ports(1)
        commands = folder / "bin"
        for directory in (commands, self.data.parent, folder / "backup", folder / "tmp"):
            directory.mkdir(parents=True)
        tenure = f"'{sys.executable}' -P -m tenure"
        self._command(commands / "tenure", f'#!/bin/sh\nexec {tenure} "$@"\n')
        self._command(commands / "systemctl", SYSTEMCTL.format(tenure=commands / "tenure", data=self.data, port=self.port, folder=folder))
        self._environment = environment(PATH=f"{commands}:{os.environ['PATH']}", PYTHONWARNINGS="default", TENURE_BOOTSTRAP=f"127.0.0.1:{self.port}")

    def _command(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def do(self, text: str, *, code: int = 0) -> str:
        """Run a listing in a shell that stops at the first failure; returns its output."""
        here = text.replace("127.0.0.1:9092", f"127.0.0.1:{self.port}")
        for path in ("/var/lib/tenure", "/backup", "/tmp/tried"):
            here = here.replace(path, f"{self.folder}{path}")
        with (self.folder / "said").open("w+") as output_file:
            done = subprocess.run(["sh", "-ec", here], cwd=self.folder, env=self._environment, stdout=output_file, stderr=output_file, timeout=60, check=False)
            output_file.seek(0)
            output = output_file.read()
        assert done.returncode == code, f"{here}\n{output}"
        return output

    def close(self) -> None:
        if (self.folder / "pid").exists():
            subprocess.run(["sh", "-c", f"kill -9 $(cat {self.folder}/pid)"], capture_output=True, check=False)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    try:
        yield machine
    finally:
        machine.close()


def section(heading: str) -> list[str]:
    """The shell listings below a heading, in order."""
    text = PAGE.read_text()
    begin = text.count("\n", 0, text.index(f"\n## {heading}\n"))
    after = text.find("\n## ", text.index(f"\n## {heading}\n") + 4)
    end = text.count("\n", 0, after)
    return [listing.text for listing in listings(PAGE, "") if begin < listing.line < end]


def produce(port: int, value: bytes) -> int:
    with Client(port) as client:
        batch = build([Record(0, 0, None, value)])
        request = ProduceRequest(None, -1, 5_000, [TopicProduceData("orders", [PartitionProduceData(0, batch)])])
        (part,) = client.ask(request, 9).responses[0].partition_responses
        assert part.error_code == 0
        return int(part.base_offset)


@pytest.mark.clients
def test_the_commands_of_the_page_make_and_restore_a_backup(machine: Machine) -> None:
    machine.do("systemctl start tenure")
    create_topic(machine.port, "orders", 1)
    assert produce(machine.port, b"before") == 0
    backup, restore, *_ = section("How do I back up and restore?")
    machine.do(backup)
    assert produce(machine.port, b"after") == 1
    machine.do(restore)
    assert produce(machine.port, b"again") == 1, "records written after the backup are gone"


@pytest.mark.clients
def test_the_commands_of_the_page_handle_a_damaged_log(machine: Machine) -> None:
    machine.do("systemctl start tenure")
    create_topic(machine.port, "orders", 1)
    for number in range(3):
        assert produce(machine.port, b"%d" % number * 100) == number
    machine.do(section("How do I back up and restore?")[0])
    segment = machine.data / "orders-0" / f"{0:020}.log"
    look, restore, dump, _, _, move_away, save, *_ = section("What do I do with a damaged log?")

    def damage() -> None:
        with segment.open("r+b") as file:
            file.seek(250)
            file.write(b"X")

    damage()
    first, *remaining = look.splitlines(keepends=True)
    assert "a batch's checksum is wrong" in machine.do(first, code=65)
    machine.do("".join(remaining))
    assert "1" * 100 not in machine.do(dump, code=65)
    machine.do(restore)
    assert produce(machine.port, b"after the restore") == 3

    damage()
    assert "2 records written" in machine.do(save.replace("113", "2"))
    machine.do("systemctl stop tenure")
    machine.do(move_away)
    assert produce(machine.port, b"after moving away") == 0
