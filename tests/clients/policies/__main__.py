"""`make policies-demo`: static members of real clients restart, scale and crash, without policies and with the policy for it, side by side."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.clients.members import JAVA_CLIENT, KINDS, ClientKind, MemberProcess, compiled_probe, java_host
from tests.clients.membership import Group
from tests.clients.policies.scenarios import BROKER_SETTINGS, MEMBERS, REJOIN_SECONDS, SCENARIOS, SESSION_MS, Result, Run, Scenario
from tests.oracle import find_jars

Key = tuple[str, str, bool]  # client, scenario, with policies


class Java:
    """The JVM of members by Kafka's Java client; `missing` is the reason why there is none."""

    def __init__(self, folder: Path) -> None:
        jars = find_jars()
        self.missing = jars if isinstance(jars, str) else "" if shutil.which("javac") else "javac is not on PATH"
        self._folder = folder
        self._jars = jars
        self._shared: MemberProcess | None = None

    def start(self) -> None:
        self._shared = self._host("shared")

    def _host(self, name: str) -> MemberProcess:
        assert isinstance(self._jars, Path)
        return java_host(self._jars, compiled_probe(self._jars), self._folder / f"{name}.errors")

    def jvm(self, alone: bool) -> MemberProcess:
        if alone:
            return self._host("alone")
        assert self._shared is not None
        return self._shared

    def close(self) -> None:
        if self._shared is not None:
            self._shared.kill()


def run_one(scenario: Scenario, kind: ClientKind, with_policies: bool, jvm: Callable[[bool], MemberProcess], say: Callable[[str], None]) -> Result | str:
    """The measurements, or why there are none."""
    column = "with" if with_policies else "without"
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="policies-") as folder, ExitStack() as ends:
        try:
            group = Group(Path(folder), jvm, **BROKER_SETTINGS)
            ends.callback(group.close)
            result: Result | str = Run(scenario, kind, group, with_policies).measure()
        except (AssertionError, OSError) as error:
            result = f"failed: {str(error)[:2000]}"
    say(f"{kind}, {scenario.name} {column} policies: {result if isinstance(result, str) else cells(result)} ({time.monotonic() - begin:.0f} s)")
    return result


def cells(result: Result) -> str:
    noun = "generation" if result.generations == 1 else "generations"
    return f"{result.generations} new {noun}, {result.worst_seconds:.1f} s (mean {result.mean_seconds:.1f} s)"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make policies-demo", description=__doc__)
    parser.add_argument("--client", action="append", choices=[str(kind) for kind in KINDS], help="only this client; may be repeated")
    parser.add_argument("--scenario", action="append", choices=[scenario.name for scenario in SCENARIOS], help="only this scenario; may be repeated")
    parser.add_argument("--jobs", type=int, default=3, help="runs at the same time; default: 3")
    options = parser.parse_args(arguments)
    kinds = [kind for kind in KINDS if options.client is None or str(kind) in options.client]
    scenarios = [scenario for scenario in SCENARIOS if options.scenario is None or scenario.name in options.scenario]
    baselines = {scenario.without: next(candidate for candidate in SCENARIOS if candidate.name == scenario.without) for scenario in scenarios}

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="policies-java-") as folder, ExitStack() as ends:
        java = Java(Path(folder))
        ends.callback(java.close)
        if JAVA_CLIENT in kinds:
            if java.missing:
                print(f"{JAVA_CLIENT}: skipped: {java.missing}")
                kinds.remove(JAVA_CLIENT)
            else:
                java.start()
        pool = ends.enter_context(ThreadPoolExecutor(options.jobs))
        futures: dict[Key, Future[Result | str]] = {}
        for kind in kinds:
            for scenario in baselines.values():
                futures[str(kind), scenario.name, False] = pool.submit(run_one, scenario, kind, False, java.jvm, say)
            for scenario in scenarios:
                futures[str(kind), scenario.name, True] = pool.submit(run_one, scenario, kind, True, java.jvm, say)
        results = {key: future.result() for key, future in futures.items()}
    print(table(kinds, scenarios, results))
    wrong = list(exceeded(kinds, scenarios, results))
    for line in wrong:
        print(line)
    return 1 if wrong else 0


def table(kinds: Sequence[ClientKind], scenarios: Sequence[Scenario], results: dict[Key, Result | str]) -> str:
    lines = [
        f"{MEMBERS} static members, {MEMBERS} partitions, session timeout {SESSION_MS / 1000:.0f} s; restarts take {REJOIN_SECONDS:.0f} s.",
        "New generations; seconds without progress of the worst partition, and of all in the mean.",
        "",
        "| client | scenario | without policies | with policies | policies |",
        "|---|---|---|---|---|",
    ]
    for kind in kinds:
        for scenario in scenarios:
            columns = [results[str(kind), scenario.without, False], results[str(kind), scenario.name, True]]
            texts = ["failed" if isinstance(column, str) else f"{column.generations}; {column.worst_seconds:.1f} s ({column.mean_seconds:.1f} s)" for column in columns]
            policies = ", ".join(f"`{name}`" for name in scenario.policies)
            lines.append(f"| {kind} | {scenario.name} | {texts[0]} | {texts[1]} | {policies} |")
    return "\n".join(lines)


def exceeded(kinds: Sequence[ClientKind], scenarios: Sequence[Scenario], results: dict[Key, Result | str]) -> list[str]:
    """Runs with policies that failed, or took more generations than allowed."""
    wrong = []
    for kind in kinds:
        for scenario in scenarios:
            result = results[str(kind), scenario.name, True]
            if isinstance(result, str):
                wrong.append(f"{kind}, {scenario.name}: {result}")
            elif result.generations > scenario.generations_max:
                wrong.append(f"{kind}, {scenario.name}: {result.generations} new generations with policies, allowed {scenario.generations_max}")
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
