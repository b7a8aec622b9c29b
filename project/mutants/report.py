"""Print the result: a table of files, and every survivor."""

from __future__ import annotations

import time
from collections import Counter

from project.mutants.mutations import Mutation
from project.mutants.running import KILLED, SURVIVED, TIMEOUT, UNTOUCHED, Verdict


class Report:
    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}
        self._survivors: list[tuple[Mutation, Verdict]] = []
        self._began = self._progress_shown = time.monotonic()

    def add(self, mutation: Mutation, verdict: Verdict) -> None:
        self._counts.setdefault(mutation.key.file, Counter())[verdict.outcome] += 1
        if verdict.outcome in (SURVIVED, UNTOUCHED):
            self._survivors.append((mutation, verdict))
        if time.monotonic() - self._progress_shown > 30:
            self._progress_shown = time.monotonic()
            total = sum(sum(counts.values()) for counts in self._counts.values())
            print(f"... {total} mutations, {len(self._survivors)} survivors, in {mutation.key.file}", flush=True)

    def end(self, share_min: float, fast_paths: tuple[str, ...]) -> int:
        """Print the table and the survivors. Return 1 if too many survive."""
        for mutation, verdict in sorted(self._survivors, key=lambda survivor: (survivor[0].key.file, survivor[0].number)):
            key = mutation.key
            touched = ", touched by no test" if verdict.outcome == UNTOUCHED else ""
            print(f"{key.file}:{mutation.number} {key.function} [{key.id}]{touched}\n    {key.line}\n    {key.change}")
        print(f"\n{'':36}{'mutations':>10}{'killed':>8}{'survived':>10}{'share':>8}")
        judged = [file for file in sorted(self._counts) if file not in fast_paths]
        fast = [file for file in sorted(self._counts) if file in fast_paths]
        for file in judged:
            self._line(file, self._counts[file])
        share = self._line("all judged files", sum([self._counts[file] for file in judged], Counter()))
        for file in fast:
            self._line(file, self._counts[file])
        if fast:
            self._line("fast paths", sum([self._counts[file] for file in fast], Counter()))
        print(f"{time.monotonic() - self._began:.0f} s")
        if share < share_min:
            print(f"mutants: {share:.1%} killed, less than {share_min:.0%}")
        return int(share < share_min)

    def _line(self, name: str, counts: Counter[str]) -> float:
        killed = counts[KILLED] + counts[TIMEOUT]
        survived = counts[SURVIVED] + counts[UNTOUCHED]
        share = killed / (killed + survived) if killed + survived else 1.0
        print(f"{name:36}{counts.total():>10}{killed:>8}{survived:>10}{share:>8.1%}")
        return share
