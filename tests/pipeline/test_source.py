"""The data source `koffsets` in Spark: batch queries and streams read the rows of the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.rows import TABLES
from tests.pipeline.fake_cluster import FakeCluster
from tests.pipeline.limits import limit
from tests.pipeline.segments import batch_of, commit, marker, note, random_batches, reference, rows_of_spark, write_segment

pytestmark = pytest.mark.spark


def test_a_query_equals_the_reference(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-3"
    write_segment(folder, random_batches(1, 300))
    frame = spark.read.format("koffsets").option("cluster", "c").load(str(tmp_path))
    assert frame.columns == list(TABLES["records"].row._fields)  # type: ignore[attr-defined]
    assert rows_of_spark(frame) == reference(folder, cluster="c")
    assert frame.groupBy("kind").count().count() > 3


def test_filters_exclude_logs_before_reading(spark: Any, tmp_path: Path) -> None:
    for partition in range(3):
        write_segment(tmp_path / f"__consumer_offsets-{partition}", random_batches(partition, 30))
    frame = spark.read.format("koffsets").option("pushdown", "true").load(str(tmp_path)).where("partition = 1 and offset >= 20")
    assert rows_of_spark(frame) == [row for row in reference(tmp_path / "__consumer_offsets-1") if row.offset >= 20]
    assert frame.rdd.getNumPartitions() == 1


def test_a_stream_reads_new_records_once(spark: Any, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    folder = data / "__consumer_offsets-0"
    batches = random_batches(7, 200, 5)

    def run(**options: object) -> None:
        stream = spark.readStream.format("koffsets").options(**options).load(str(data))
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(out))
        assert query.awaitTermination(120)
        assert query.exception() is None

    for count, options in ((60, {}), (60, {}), (150, limit(100)), (200, {})):
        for number in range(0, count, 40):
            write_segment(folder, batches[number : min(number + 40, count)])
        write_segment(data / "__coordinator_notes-0", [batch_of(at, note("g")) for at in range(count)])
        run(**options)
        expected = [*(reference(data / "__coordinator_notes-0", "notes")), *reference(folder)]
        assert rows_of_spark(spark.read.parquet(str(out))) == expected
    assert not any(path.name.endswith(".lock") for path in data.rglob("*"))


def test_a_stream_continues_while_a_log_grows_and_waits_for_transactions(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "__consumer_offsets-0"
    open_transaction = batch_of(1, commit("g", "t", 0, 2, 3), transactional=True, producer=1)
    write_segment(folder, [batch_of(0, commit("g", "t", 0, 1, 2)), open_transaction])
    offsets_read: list[int] = []

    def take(frame: Any, number: int) -> None:
        offsets_read.extend(row.offset for row in rows_of_spark(frame))

    stream = spark.readStream.format("koffsets").load(str(tmp_path / "data"))
    query = stream.writeStream.foreachBatch(take).trigger(processingTime="200 milliseconds").start()
    try:
        query.processAllAvailable()
        assert offsets_read == [0]
        (segment,) = folder.iterdir()
        with segment.open("ab") as file:
            file.write(marker(2, 1, commits=True) + batch_of(3, commit("g", "t", 0, 1, 2)))
        query.processAllAvailable()
        assert offsets_read == [0, 1, 2, 3]
    finally:
        query.stop()


def test_batches_are_bounded_or_the_bound_is_refused(spark: Any, tmp_path: Path) -> None:
    from pipeline.stream import HAS_LIMITS

    write_segment(tmp_path / "data" / "__consumer_offsets-0", [batch_of(at, commit("g", "t", 0, at, at)) for at in range(30)])
    sizes: list[int] = []
    stream = spark.readStream.format("koffsets").option("maxRecordsPerTrigger", 10).load(str(tmp_path / "data"))
    query = stream.writeStream.foreachBatch(lambda frame, number: sizes.append(frame.count())).trigger(availableNow=True).start()
    if HAS_LIMITS:
        assert query.awaitTermination(120)
        assert sizes == [10, 10, 10]
    else:
        with pytest.raises(Exception, match=r"BadInput: koffsets: maxRecordsPerTrigger needs PySpark 4\.2 or newer\n"):
            query.awaitTermination(120)


def test_a_log_that_is_away_for_a_restart_is_not_read_twice(spark: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    batches = {partition: random_batches(partition, 40) for partition in range(2)}

    def run() -> None:
        writer = spark.readStream.format("koffsets").load(str(data)).writeStream.format("parquet")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start(str(tmp_path / "out"))
        assert query.awaitTermination(120)

    for partition in range(2):
        write_segment(data / f"__consumer_offsets-{partition}", batches[partition][:20])
    run()
    (data / "__consumer_offsets-1").rename(tmp_path / "away")
    write_segment(data / "__consumer_offsets-0", batches[0])
    run()
    (tmp_path / "away").rename(data / "__consumer_offsets-1")
    write_segment(data / "__consumer_offsets-1", batches[1])
    run()
    expected = [row for partition in range(2) for row in reference(data / f"__consumer_offsets-{partition}")]
    assert rows_of_spark(spark.read.parquet(str(tmp_path / "out"))) == expected


def test_a_live_log_is_streamed_from_its_checkpoint_on(spark: Any, tmp_path: Path) -> None:
    batches = random_batches(3, 60, 5)
    cluster = FakeCluster(batches[:20])
    try:
        for count in (20, 45, 60):
            cluster.batches = batches[:count]
            cluster.leader = count % 2
            source = f"kafka://127.0.0.1:{cluster.ports[0]},127.0.0.1:{cluster.ports[1]}"
            stream = spark.readStream.format("koffsets").options(**limit(50)).load(source)
            writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
            assert query.awaitTermination(200)
            write_segment(tmp_path / "__consumer_offsets-0", batches[:count])
            read = rows_of_spark(spark.read.parquet(str(tmp_path / "out")))
            assert [row[1:-2] for row in read] == [row[1:-2] for row in reference(tmp_path / "__consumer_offsets-0")]
    finally:
        cluster.close()


def test_a_missing_directory_is_named_in_the_error(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="is empty; name the data directory of a broker"):
        spark.read.format("koffsets").load(str(tmp_path)).count()
