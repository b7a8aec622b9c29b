"""A compose file without Docker: its services as processes of this machine, each with the command, environment and files of its
image, and all addresses on the loopback.

`python -m tests.docker.standing_in compose -f FILE up --exit-code-from SERVICE` stands in for `docker` in a CI job without it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.docker.files import FOLDER, Dockerfile, compose_file
from tests.kafka_process import free_ports
from tests.running import ROOT, environment

HEALTHY_SECONDS = 30
STOP_SECONDS = 10  # Docker's stop timeout
BROKER = Dockerfile(FOLDER / "Dockerfile")


class LocalServices:
    """The services of one compose file; `folder` has their files and output."""

    def __init__(self, file: Path, folder: Path, **more: str) -> None:
        self.services: dict[str, dict[str, Any]] = compose_file(file)["services"]
        self.file = file
        self.folder = folder
        self._more = more  # further environment variables for all services
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, int] = {}  # a port of a container -> the port of this machine

    def up(self, service: str, *, with_others: bool = True) -> None:
        """Start a service, after the services that it depends on."""
        for dependency, condition in self.services[service].get("depends_on", {}).items() if with_others else ():
            if dependency not in self._processes:
                self.up(dependency)
            assert condition == {"condition": "service_healthy"}
            self._await_health(dependency)
        with (self.folder / f"{service}.log").open("ab") as log_file:
            self._processes[service] = subprocess.Popen(
                self._command(service), cwd=self._files(service), env=self._environment(service), stdout=log_file, stderr=log_file, stdin=subprocess.DEVNULL
            )

    def stop(self, service: str) -> int:
        """Send SIGTERM, and wait for at most Docker's stop timeout; returns the exit code."""
        process = self._processes[service]
        process.send_signal(signal.SIGTERM)
        return process.wait(STOP_SECONDS)

    def restart(self, service: str) -> None:
        assert self.stop(service) == 0
        self.up(service, with_others=False)

    def wait(self, service: str) -> int:
        return self._processes[service].wait()

    def lines(self, service: str) -> list[str]:
        """The output of the service since its first start."""
        return (self.folder / f"{service}.log").read_text().splitlines()

    def down(self) -> None:
        for process in reversed(self._processes.values()):
            process.kill()
            process.wait()

    def address(self, text: str) -> str:
        """The text with every HOST:PORT replaced by an address of this machine; all services share one mapping of ports."""
        hosts = "|".join(["0.0.0.0", "localhost", "127.0.0.1", *map(re.escape, self.services)])

        def here(match: re.Match[str]) -> str:
            port = self._ports.get(match[2]) or self._ports.setdefault(match[2], free_ports(1)[0])
            return f"127.0.0.1:{port}"

        return re.sub(rf"\b({hosts}):(\d+)\b", here, text)

    def _dockerfile(self, service: str) -> Dockerfile:
        """The Dockerfile of the service's image. A service without `build` must use the image of the broker."""
        build = self.services[service].get("build")
        if build is None:
            assert self.services[service]["image"] == "tenure"
            return BROKER
        context = (self.file.parent / build["context"]).resolve()
        assert context == ROOT
        return Dockerfile(context / build["dockerfile"])

    def _command(self, service: str) -> list[str]:
        says = self.services[service].get("command")
        if self._dockerfile(service).path == BROKER.path:
            return [sys.executable, "-P", "-m", "tenure", *(says or BROKER.words("CMD"))]
        assert says
        program, *arguments = says
        return [sys.executable, *(arguments if program == "python3" else ["-m", program, *arguments])]

    def _environment(self, service: str) -> dict[str, str]:
        """The environment of the image, overridden by that of the compose file. PATH and the data folder are those of this machine."""
        defaults = self._dockerfile(service).environment() | self.services[service].get("environment", {})
        del defaults["PATH"]
        data = self.folder / f"{service}-data"
        mapped = {name: str(data) if value == "/data" else self.address(value) for name, value in defaults.items()}
        return environment(PYTHONWARNINGS="", **mapped, **self._more)

    def _files(self, service: str) -> Path:
        """The working directory, with the files that the Dockerfile copies there."""
        folder = self.folder / f"{service}-files"
        if not folder.exists():
            folder.mkdir()
            *sources, target = self._dockerfile(service).last("COPY").split()
            if target == "./":
                for source in sources:
                    copy(ROOT / source, folder)
        return folder

    def _await_health(self, service: str) -> None:
        _, *check = BROKER.words("HEALTHCHECK")
        until = time.monotonic() + HEALTHY_SECONDS
        while subprocess.run(
            [sys.executable, "-P", "-m", "tenure", *check], env=self._environment(service), cwd=self.folder, capture_output=True, check=False
        ).returncode:
            assert self._processes[service].poll() is None, self.lines(service)
            assert time.monotonic() < until, self.lines(service)
            time.sleep(0.1)


def copy(source: Path, folder: Path) -> None:
    """Copy as COPY of a Dockerfile does: of a folder, its contents."""
    if source.is_dir():
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    elif source.exists():
        shutil.copy(source, folder)


def main(words: list[str]) -> int:
    match words:
        case ["build", *options]:
            context, file = Path(options[-1]), Path(options[options.index("-f") + 1])
            return 0 if context.is_dir() and Dockerfile(file).words("ENTRYPOINT") else 1
        case ["compose", "-f", file, "up", "--build", "--exit-code-from", service]:
            return run(Path(file), service)
        case ["compose", "-f", file, ("logs" | "down"), *_] if Path(file).exists():
            return 0
    print(f"docker: not what a stand-in knows: {shlex.join(words)}", file=sys.stderr)
    return 64


def run(file: Path, service: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        here = LocalServices(file, Path(folder))
        try:
            here.up(service)
            code = here.wait(service)
        finally:
            here.down()
        print(*here.lines(service), sep=os.linesep)
        return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
