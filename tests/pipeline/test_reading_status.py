"""`analyze status` and the report read only the rows that they show, and find the same as if they read the whole table."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import cli
from pipeline.report.stretches import merged_intervals
from pipeline.report.tables import ReportTables
from pipeline.rows import Status
from pipeline.schema import in_order, joined, rows_of, schema_of, table_of
from pipeline.status_rules import VERDICTS
from pipeline.tables import File, Tables
from tests.pipeline.report_rows import group_row, part_of, publish
from tests.running import ROOT

pytestmark = pytest.mark.once  # no dependence on the Python version

CLUSTERS, GROUPS, TOPICS = ("c", "d"), ("g", "h", "i"), ("t", "u")
NOW = 1_000
ROWS_MANY = 3_000_000
PEAK_MIB_MAX = 300


def history(draw: random.Random, cluster: str, group: str) -> list[Status]:
    rows = []
    for topic, partition, ruleset in ((topic, partition, ruleset) for topic in TOPICS for partition in range(2) for ruleset in ("burrow", "tenure")):
        at = draw.randrange(NOW // 2)
        while at < NOW and draw.random() < 0.95:
            until = min(at + draw.randrange(1, 200), NOW)
            status, rule = draw.choice(VERDICTS)
            rows.append(Status(cluster, group, topic, partition, ruleset, at, until, status, rule, draw.choice([None, 7]), 0.5, draw.choice([None, "m"]), until < NOW))
            at = until + draw.choice([0, 0, 0, 5])  # a gap where the offset was removed
    return rows


def written(folder: Path, rows: list[Status]) -> Tables:
    """The tables, in files as rounds write them: the rows of one chunk that end before a settling time, and the newest ones."""
    made = Tables.open(folder, create=True)
    files: list[File] = []
    for cluster in CLUSTERS:
        for chunk, group in enumerate(GROUPS):
            table = table_of("groups", [group_row(group)._replace(cluster=cluster)])
            files.append(made.store.write("groups", part_of("groups", cluster, chunk), table))
            for since, until in ((0, 600), (600, 900), (900, NOW + 1)):
                part = [row for row in rows if (row.cluster, row.group) == (cluster, group) and since <= row.to_ms < until]
                files.append(made.store.write("status", part_of("status", cluster, chunk, until < NOW), in_order("status", table_of("status", part))))
    publish(made, files, dict.fromkeys(CLUSTERS, NOW))
    return made


@pytest.mark.parametrize("seed", range(10))
def test_the_rows_read_equal_those_of_the_whole_table(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(seed)
    rows = [row for cluster in CLUSTERS for group in GROUPS for row in history(draw, cluster, group)]
    made = written(tmp_path / "out", rows)
    for cluster, group, ruleset in ((None, None, "tenure"), ("d", None, "burrow"), (None, "h", "tenure"), ("c", "i", "burrow")):
        wanted = [row for row in rows if row.cluster == (cluster or row.cluster) and row.group == (group or row.group)]
        words = ["--ruleset", ruleset, *(["--cluster", cluster] if cluster else []), *(["--group", group] if group else [])]
        assert cli.main(["analyze", "status", "--out", str(tmp_path / "out"), "--json", *words]) == 0
        partitions = json.loads(capsys.readouterr().out)["partitions"]
        expected = [row for row in wanted if row.ruleset == ruleset and not row.final]
        assert sorted(map(str, partitions)) == sorted(str(row._asdict()) for row in expected)
        tables = ReportTables(made, None if group is None else [group], cluster)
        of_tenure = in_order("status", table_of("status", [row for row in wanted if row.ruleset == "tenure"]))
        assert [row for rows_of_group in tables.status.values() for row in rows_of_group] == rows_of(Status, merged_intervals(of_tenure))


def many_rows(final: bool, count: int) -> pa.Table:
    """`count` rows of one partition; the last one is open, unless `final`."""
    at = np.arange(count)
    texts = {"cluster": "c", "group": "g", "topic": "t" * 40, "ruleset": "tenure", "owner": "consumer-of-one-host-" + "x" * 40}
    zeros = pa.array(np.zeros(count, np.int32))
    columns: dict[str, pa.Array] = {name: pa.DictionaryArray.from_arrays(zeros, [text]) for name, text in texts.items()}
    statuses, rules = ([verdict[part] for verdict in VERDICTS] for part in (0, 1))
    verdict = pa.array((at % 2 * 6).astype(np.int32))
    columns |= {"status": pa.DictionaryArray.from_arrays(verdict, statuses), "rule": pa.DictionaryArray.from_arrays(verdict, rules)}
    columns |= {"topic_partition": pa.array(at * 0), "from_ms": pa.array(at), "to_ms": pa.array(at + 1), "lag": pa.array(at % 1_000)}
    columns |= {"complete": pa.array(at * 0.0), "final": pa.array((at < count - 1) | final)}
    return pa.table([columns[name] for name in schema_of("status").names], names=schema_of("status").names)


def test_the_memory_of_status_does_not_grow_with_the_history(tmp_path: Path) -> None:
    made = Tables.open(tmp_path / "out", create=True)
    settled = made.store.write("status", part_of("status", "c", settled=True), many_rows(True, ROWS_MANY))
    newest = made.store.write("status", part_of("status", "c", chunk=1), many_rows(False, ROWS_MANY // 3))
    groups = made.store.write("groups", part_of("groups", "c"), table_of("groups", [group_row("g")]))
    publish(made, [groups, settled, newest], {"c": NOW})
    # VmHWM is the peak of this program; ru_maxrss would include that of the process that started it.
    program = "import sys, cli; code = cli.main(sys.argv[1:]); print(open('/proc/self/status').read(), file=sys.stderr); sys.exit(code)"
    words = ["analyze", "status", "--out", str(tmp_path / "out"), "--json"]
    ended = subprocess.run([sys.executable, "-P", "-c", program, *words], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
    assert len(json.loads(ended.stdout)["partitions"]) == 1
    peak = re.search(r"VmHWM:\s+(\d+) kB", ended.stderr)
    assert peak is not None
    assert int(peak[1]) / 1024 < PEAK_MIB_MAX


def test_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    draw = random.Random(3)
    made = written(tmp_path / "out", [row for cluster in CLUSTERS for group in GROUPS for row in history(draw, cluster, group)])
    whole = made.read("status")
    assert whole.equals(in_order("status", joined("status", [whole])))
    assert made.read("status", columns=["lag", "group"]).equals(whole.select(["lag", "group"]))
