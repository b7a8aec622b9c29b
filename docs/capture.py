"""Writes docs/examples.txt, the output of commands about a broker and consumers that it starts: python -m docs.capture

Not part of `make generate`: it takes half a minute, and the output has new times and ids each time.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from docs.commands import EXAMPLES

ROOT = Path(__file__).resolve().parents[1]
PORT = 9092
HERE = f"127.0.0.1:{PORT}"
WAIT_SECONDS = 20

# The commands, in this order. A command that begins with "(" is run, but not shown.
BEFORE = [
    "tenure health 127.0.0.1:9092 --wait 10",
    "tenure cluster",
    "tenure topic create orders --partitions 4 --set retention.ms=86400000",
    "(seq 1 40 | sed 's/.*/&:order &/' | tenure produce orders --key-separator :",
    "printf '41:two apples\\n42:a pear\\n' | tenure produce orders --key-separator :",
]
WHILE_CONSUMED = [
    "tenure topic list",
    "tenure topic describe orders",
    "tenure topic alter orders --partitions 6 --dry-run",
    "tenure topic config show orders retention.ms cleanup.policy",
    "tenure topic config set orders retention.ms=3600000 --dry-run",
    "tenure topic config unset orders retention.ms --dry-run",
    "tenure group list",
    "tenure group describe billing",
    "tenure group members billing",
    "tenure group list --json",
    "tenure group offsets show billing",
    "tenure group remove-member billing --instance billing-2 --dry-run",
    "tenure group offsets reset billing --to-earliest --all-topics",
    "tenure group remove-member billing --instance billing-2 --reason 'scaled in'",
    "(sleep 4",
    "tenure group history billing",
    "tenure group policy set billing registration.timeout.ms=900000 --dry-run",
    "tenure group policy set billing registration.timeout.ms=900000 subscription.change=rebalance",
    "tenure group policy show billing",
    "tenure group policy list",
    "tenure group policy unset billing subscription.change",
    "tenure group rebalance billing --reason 'orders has grown'",
]
AFTERWARDS = [
    "tenure group offsets reset billing --shift-by -5 --topic orders:0 --dry-run",
    "tenure group offsets reset billing --shift-by -5 --topic orders:0 --yes",
    "tenure group offsets delete billing --topic orders:3 --yes",
    "tenure group delete billing --dry-run",
    "tenure consume orders --from -1 --no-follow --long",
    "tenure topic delete-records orders --before -5 --dry-run",
    "tenure consume orders --from-beginning --until 2 --format '%p %o %k %s'",
    "tenure topic delete orders --dry-run",
    "tenure log verify ./data",
    "tenure log dump ./data --group billing --kind offsets --limit 2",
]
OF_STORE = [
    "tenure store export --from ./data --to ./backup",
    "tenure store import --from ./backup --to nats://127.0.0.1 --cluster trial --set store.replicas=1",
    "tenure store export --from nats://127.0.0.1 --cluster trial --to ./backup2 --dry-run",
]
OF_NODES = [
    "(tenure health 127.0.0.1:9094 --wait 10; sleep 2; tenure topic create orders --partitions 12 --yes; sleep 1",
    "tenure cluster",
    "tenure node drain 2",
    "tenure node undrain 2",
]


def environment(folder: Path) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("TENURE_", "PYTHON", "COLUMNS"))}
    return plain | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


def run_shown(command: str, folder: Path, shown: list[str]) -> None:
    """Run a command and add it to `shown` with its output and error output, as on a terminal. One that begins with `(` is only run."""
    hidden = command.startswith("(")
    done = subprocess.run(
        ["bash", "-c", command.removeprefix("(")],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    if not hidden:
        code = f"exit code {done.returncode}\n" if done.returncode else ""
        shown.append(f"$ {command}\n{done.stdout}{code}\n")
        print(shown[-1])


def main() -> int:
    with socket.socket() as asking:
        if asking.connect_ex(("127.0.0.1", PORT)) == 0:
            print(f"capture: something listens on {HERE} already", file=sys.stderr)
            return 1
    shown: list[str] = []
    running: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bin").mkdir()
        tenure = folder / "bin" / "tenure"
        tenure.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -P -m tenure "$@"\n')
        tenure.chmod(0o755)

        def start(*words: str, program: str = "tenure") -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [program, *words], cwd=folder, env=environment(folder), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            running.append(process)
            return process

        def end(process: subprocess.Popen[bytes]) -> None:
            process.send_signal(signal.SIGINT)
            process.wait(WAIT_SECONDS)
            running.remove(process)

        broker = start("serve", "--data", "./data", "--listen", HERE, "--set", "group.initial.rebalance.delay.ms=1000")
        try:
            for command in BEFORE:
                run_shown(command, folder, shown)
            begin = ("consume", "orders", "--group", "billing", "--from-beginning", "--session-timeout", "45")
            consumers = [start(*begin, "--instance", f"billing-{number}") for number in (1, 2)]
            time.sleep(4)
            consumers.append(start(*begin))  # a dynamic one
            time.sleep(6)
            end(consumers[0])
            consumers[0] = start(*begin, "--instance", "billing-1")
            time.sleep(4)
            for command in WHILE_CONSUMED:
                if "--reason" in command:
                    end(consumers.pop(1))  # the process stops before its member is removed
                run_shown(command, folder, shown)
            for consumer in consumers:
                end(consumer)
            run_shown("(tenure group remove-member billing --all --yes", folder, shown)
            for command in AFTERWARDS:
                if "log" in command.split()[1:2] and broker in running:
                    end(broker)
                run_shown(command, folder, shown)
            engine = start("-js", "-sd", "./engine", program=str(Path(sys.executable).with_name("nats-server")))
            time.sleep(1)
            for command in OF_STORE:
                run_shown(command, folder, shown)
            end(engine)
            broker = start("serve", "--nodes", "3", "--data", "./nodes", "--listen", HERE)
            for command in OF_NODES:
                run_shown(command, folder, shown)
            end(broker)
        finally:
            for process in running:
                process.kill()
                process.wait(WAIT_SECONDS)
    EXAMPLES.write_text("\n".join(block.rstrip("\n") + "\n" for block in shown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
