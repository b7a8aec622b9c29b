"""Members of `tenure consume --group` start, stop and are killed while records are produced: each record must be printed once.

Members stopped by a signal commit the printed records: they lose none and print none twice. A killed member may have printed records
that it had not committed: only those may be printed again.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cli.client import Cluster
from cli.records.commits import committed_offsets
from protocol.messages.describe_groups import DescribeGroupsRequest
from tests.running import ROOT, broker, environment

TOPIC = GROUP = "numbers"
PARTITIONS = 6
MEMBERS_MAX = 4
LINES = 200  # records produced between two events
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
SECONDS = 60
ARGUMENTS = (TOPIC, "--group", GROUP, "--from-beginning", "--heartbeat", "0.1", "--session-timeout", "6")


class Running(NamedTuple):
    process: subprocess.Popen[bytes]
    printed: Path


class Consumers:
    def __init__(self, folder: Path, bootstrap: str, seed: int) -> None:
        self.violations: list[str] = []
        self.produced = 0
        self.kills = 0
        self._folder = folder
        self._bootstrap = bootstrap
        self._chance = random.Random(seed)
        self._members: list[Running] = []
        self._ended: list[tuple[Path, bool]] = []  # (the output, whether the member was killed) of each ended member

    def run(self, actions: int, *, kills: bool) -> None:
        host, _, port = self._bootstrap.rpartition(":")
        with Cluster([(host, int(port))], 10) as cluster:
            self._tenure("topic", "create", TOPIC, "--partitions", str(PARTITIONS))
            try:
                self._start()
                for _ in range(actions):
                    self._produce(LINES)
                    self._do(kills)
                    # The next event happens during a rebalance, or while the group is stable.
                    if self._chance.random() < 0.6:
                        self._await_members(cluster)
                if not self._members:
                    self._start()
                self._await_committed(cluster)
                while self._members:
                    self._stop()
            finally:
                for member in self._members:
                    member.process.kill()
                    member.process.wait()
        self._judge()

    def _do(self, kills: bool) -> None:
        if not self._members or (len(self._members) < MEMBERS_MAX and self._chance.random() < 0.5):
            self._start()
        elif kills and self._chance.random() < 0.3:
            self._kill()
        else:
            self._stop()

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-P", "-m", "tenure", *words, "--bootstrap", self._bootstrap]

    def _tenure(self, *words: str, lines: str = "") -> None:
        subprocess.run(self._command(*words), input=lines.encode(), check=True, env=environment(), cwd=ROOT, stdout=subprocess.DEVNULL)

    def _produce(self, lines: int) -> None:
        numbered = "".join(f"{number}:{number}\n" for number in range(self.produced, self.produced + lines))
        self._tenure("produce", TOPIC, "--key-separator", ":", lines=numbered)
        self.produced += lines

    # Members

    def _start(self) -> None:
        printed = self._folder / f"printed-{len(self._ended) + len(self._members)}"
        with printed.open("wb") as out:
            process = subprocess.Popen(self._command("consume", *ARGUMENTS), env=environment(), cwd=ROOT, stdout=out)
        self._members.append(Running(process, printed))

    def _pop_member(self) -> Running:
        return self._members.pop(self._chance.randrange(len(self._members)))

    def _stop(self) -> None:
        member = self._pop_member()
        number = self._chance.choice(SIGNALS)
        member.process.send_signal(number)
        code = member.process.wait(SECONDS)
        # 128 + number: the signal came before the command consumed; -number: before Python had installed its handlers.
        if code not in (0, 128 + number, -number):
            self.violations.append(f"a member ended with {code} after {number.name}")
        self._ended.append((member.printed, False))

    def _kill(self) -> None:
        member = self._pop_member()
        member.process.kill()
        member.process.wait(SECONDS)
        self._ended.append((member.printed, True))
        self.kills += 1

    # Waiting

    def _await_members(self, cluster: Cluster) -> None:
        """Wait until the group is stable; a killed member is in it until its session ends."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            group = cluster.send_to_coordinator(GROUP, DescribeGroupsRequest([GROUP])).groups[0]
            if group.group_state in ("Stable", "Empty", "Dead") and len(group.members) == len(self._members):
                return
            time.sleep(0.05)
        self.violations.append(f"the group is {group.group_state} with {len(group.members)} members, not {len(self._members)}")

    def _await_committed(self, cluster: Cluster) -> None:
        until = time.monotonic() + SECONDS
        while True:
            committed = sum(committed_offsets(cluster, GROUP, [(TOPIC, number) for number in range(PARTITIONS)]).values())
            if committed == self.produced:
                return
            if time.monotonic() > until:
                self.violations.append(f"{committed} of {self.produced} records are committed")
                return
            time.sleep(0.05)

    # Results

    def _judge(self) -> None:
        times: Counter[int] = Counter()
        by_killed: Counter[int] = Counter()
        for printed, killed in self._ended:
            numbers = Counter(map(int, printed.read_text().split()))
            times += numbers
            if killed:
                by_killed += numbers
        lost = [number for number in range(self.produced) if not times[number]]
        if lost:
            self.violations.append(f"{len(lost)} records were printed by no member, the first is {lost[0]}")
        twice = [number for number, count in times.items() if count > 1 + by_killed[number]]
        twice += [number for number, count in times.items() if count > 1 and not by_killed[number]]
        if twice:
            self.violations.append(f"{len(set(twice))} records were printed more often than killed members explain, the first is {min(twice)}")


def consumed(actions: int, seed: int, *, kills: bool) -> Consumers:
    """Run a group on a separate broker, from its first member to its last."""
    with tempfile.TemporaryDirectory(prefix="tenure-soak-consume-") as folder, broker("--profile", "test") as started:
        consumers = Consumers(Path(folder), f"127.0.0.1:{started.port}", seed)
        consumers.run(actions, kills=kills)
        return consumers


def consumers_break_promise(actions: int, seed: int, tell: Callable[[str], None]) -> bool:
    """Run without kills and with kills; returns whether a guarantee was broken."""
    broken = 0
    for number, kills in ((seed, False), (seed + 1, True)):
        result = consumed(actions, number, kills=kills)
        for wrong in result.violations:
            tell(f"BROKEN {wrong}, seed {number}")
        broken += len(result.violations)
        tell(f"soak: consume, {actions} actions, {result.kills} kills, {result.produced} records, seed {number}: {len(result.violations)} broken promises")
    return broken > 0
