"""Random faults: kills, stops in order, freezes, drains, and damage in one offsets partition."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.nodes.torture.nodes import COMMAND_SECONDS, TorturedNodes, node_command, thaw

FROZEN_SECONDS = 1.0, 40.0

DAMAGED_BYTE = 30  # in the first batch: whole batches follow, so it does not look like a torn end


class Faults:
    def __init__(self, nodes: TorturedNodes, random: Random, until: float, controller: Callable[[], int | None], damage: Callable[[], bool], tell: Callable[[str], None]) -> None:
        """`damage` damages a file, and returns whether it was damaged now."""
        self._nodes = nodes
        self._random = random
        self._until = until
        self._controller = controller
        self._damage = damage
        self._tell = tell
        self._frozen: tuple[int, int, float] | None = None  # node, process id, and when it continues
        self._commands: list[subprocess.Popen[bytes]] = []
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        began = time.monotonic()
        damage_at = began + 0.25 * (self._until - began)
        while time.monotonic() < self._until:
            self._thaw_if_due()
            if damage_at and time.monotonic() >= damage_at and self._damage():
                damage_at = 0.0
                self.counts["damaged partition"] += 1
            else:
                self._strike()
            self._pause(self._random.uniform(0.5, 4.0))

    def end(self) -> None:
        """End all faults."""
        if self._frozen is not None:
            thaw(self._frozen[1])
            self._frozen = None
        for command in self._commands:
            with suppress(subprocess.TimeoutExpired):
                command.wait(2 * COMMAND_SECONDS)
            command.kill()
            command.wait()

    def _pause(self, seconds: float) -> None:
        until = min(time.monotonic() + seconds, self._until)
        while time.monotonic() < until:
            self._thaw_if_due()
            time.sleep(0.05)

    def _thaw_if_due(self) -> None:
        if self._frozen is not None and time.monotonic() >= self._frozen[2]:
            thaw(self._frozen[1])
            self._frozen = None

    def _strike(self) -> None:
        what = self._random.choices(
            ("kill", "stop", "freeze", "end the controller while a node is frozen", "drain", "kill two", "end all"), (4, 4, 3, 6, 2, 1, 0.5)
        )[0]
        awake = [id for id in self._nodes.ids if self._frozen is None or id != self._frozen[0]]
        number = self._random.choice((signal.SIGKILL, signal.SIGTERM))
        match what:
            case "kill":
                self._end(self._random.choice(awake), signal.SIGKILL)
            case "stop":
                self._end(self._random.choice(awake), signal.SIGTERM)
            case "freeze":
                self._freeze(self._random.choice(awake))
            case "end the controller while a node is frozen":
                controller = self._controller()
                if controller is None or controller not in awake:
                    return
                self._freeze(self._random.choice([id for id in awake if id != controller]))
                self._pause(self._random.uniform(0.5, 3.0))
                self._end(controller, number)
            case "drain":
                id = self._random.choice(awake)
                self._commands.append(node_command(self._nodes, self._random.choice(("drain", "drain", "undrain")), id, COMMAND_SECONDS))
            case "kill two":
                for id in self._random.sample(awake, min(2, len(awake))):
                    self._end(id, signal.SIGKILL)
            case "end all":
                self._thaw_now()
                self._nodes.end_all()
        self.counts[what] += 1

    def _end(self, id: int, number: signal.Signals) -> None:
        self._tell(f"{number.name} to node {id}")
        self._nodes.end(id, number)

    def _thaw_now(self) -> None:
        if self._frozen is not None:
            thaw(self._frozen[1])
            self._frozen = None

    def _freeze(self, id: int) -> None:
        if self._frozen is not None:
            return
        low, high = FROZEN_SECONDS
        seconds = min(self._random.choice((self._random.uniform(low, 8.0), self._random.uniform(low, 8.0), self._random.uniform(low, high))), max(1.0, self._until - time.monotonic()))
        with suppress(ProcessLookupError, KeyError):
            pid = self._nodes.pid(id)
            os.kill(pid, signal.SIGSTOP)
            self._frozen = id, pid, time.monotonic() + seconds
            self._tell(f"node {id} is frozen for {seconds:.1f} s")


def damage_partition(data: Path, partition: int) -> bool:
    """Flip a bit in the first batch of an offsets partition; returns whether it has at least two batches to damage."""
    file = data / f"__consumer_offsets-{partition}" / f"{0:020d}.log"
    if not file.exists() or file.stat().st_size < 300:
        return False
    with file.open("r+b") as opened:
        opened.seek(DAMAGED_BYTE)
        byte = opened.read(1)[0]
        opened.seek(DAMAGED_BYTE)
        opened.write(bytes([byte ^ 1]))
    return True
