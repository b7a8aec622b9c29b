"""Long histories of topics (tests/support/histories.py), seed by seed."""

from __future__ import annotations

import contextlib
import io
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.support.histories import TopicWorld

STEPS = 400


def topics_break_promise(histories: int, seed: int, tell: Callable[[str], None]) -> bool:
    """Run random histories, each determined by its seed; returns whether a guarantee was broken."""
    kills = compactions = readable = broken = 0
    for number in range(seed, seed + histories):
        output = io.StringIO()
        world = None
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), tempfile.TemporaryDirectory() as folder:
                world = TopicWorld(Path(folder), number)
                world.run(STEPS)
        except Exception:
            broken += 1
            tell(f"BROKEN history of seed {number}\n{output.getvalue()[-2_000:]}{traceback.format_exc()}")
        if world is not None:
            kills, compactions, readable = kills + world.kills, compactions + world.compactions, readable + world.readable
    tell(f"soak: topics, {histories} histories, seed {seed}: {kills} kills, {compactions} compactions, {readable} records read, {broken} broken")
    return broken > 0
