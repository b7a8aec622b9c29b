"""Our codec compared with kio's: the same messages, in the same process, in alternating rounds.

    python -m bench.codec [--json] [--rounds N]

kio writes in Python and reads in native code. Times are the best of all rounds, in nanoseconds per message; the targets
are those for plain Python and, for compiled code, "reads at least as fast".
"""

from __future__ import annotations

import argparse
import datetime
import gc
import io
import json
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4 import request as heartbeat_request
from kio.schema.heartbeat.v4 import response as heartbeat_response
from kio.schema.join_group.v9 import request as join_request
from kio.schema.join_group.v9 import response as join_response
from kio.schema.offset_commit.v9 import request as commit_request
from kio.schema.offset_commit.v9 import response as commit_response
from kio.schema.sync_group.v5 import request as sync_request
from kio.schema.sync_group.v5 import response as sync_response
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.wire import COMPILED

ENCODE_TIMES_FASTER = 8.0  # how many times faster than kio's writer plain Python must encode
DECODE_TIMES_SLOWER = 1.0 if COMPILED else 4.5  # how many times slower than kio's native reader decoding may be
ROUND_NS = 2_000_000  # how long one function runs in a round

GROUP = "orders-service"
INSTANCE = "orders-service-7"
MEMBER = "orders-service-7-6d9d5c5e-7f0f-4b0e-9d3a-5b1f0c6e2a77"
SUBSCRIPTION = b"\0\1\0\0\0\1\0\6orders\xff\xff\xff\xff\0\0\0\0"
ASSIGNMENT = b"\0\1\0\0\0\1\0\6orders\0\0\0\2\0\0\0\1\0\0\0\2\xff\xff\xff\xff"


def instance_of(cls: Any, **fields: Any) -> Any:
    """An instance of a kio class, from plain ints and strings."""
    return cls(**fields)


def milliseconds(n: int) -> Any:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=n))


def messages() -> list[tuple[str, int, Any, Any]]:
    """Name, version, kio's instance, our class. The first six have targets."""
    none = ErrorCode.none
    identity = {"group_id": GROUP, "member_id": MEMBER, "group_instance_id": INSTANCE}
    heartbeat = instance_of(heartbeat_request.HeartbeatRequest, generation_id=7, **identity)
    join = instance_of(
        join_request.JoinGroupRequest,
        session_timeout=milliseconds(45_000),
        rebalance_timeout=milliseconds(300_000),
        protocol_type="consumer",
        protocols=tuple(
            instance_of(join_request.JoinGroupRequestProtocol, name=name, metadata=SUBSCRIPTION) for name in ("range", "cooperative-sticky")
        ),
        reason="",
        **identity,
    )
    sync = instance_of(
        sync_request.SyncGroupRequest,
        generation_id=7,
        protocol_type="consumer",
        protocol_name="range",
        assignments=tuple(
            instance_of(sync_request.SyncGroupRequestAssignment, member_id=f"{MEMBER[:-1]}{n}", assignment=ASSIGNMENT) for n in range(10)
        ),
        **identity,
    )
    rows: list[tuple[str, int, Any, Any]] = [
        ("HeartbeatRequest", 4, heartbeat, HeartbeatRequest),
        ("JoinGroupRequest, 2 protocols", 9, join, JoinGroupRequest),
        ("SyncGroupRequest, 10 assignments", 5, sync, SyncGroupRequest),
    ]
    rows += [(f"OffsetCommitRequest, {n} partitions", 9, commit(n, identity), OffsetCommitRequest) for n in (1, 10, 100)]
    joined = instance_of(
        join_response.JoinGroupResponse,
        throttle_time=milliseconds(0),
        error_code=none,
        generation_id=7,
        protocol_type="consumer",
        protocol_name="range",
        leader=MEMBER,
        skip_assignment=False,
        member_id=MEMBER,
        members=tuple(
            instance_of(join_response.JoinGroupResponseMember, member_id=f"{MEMBER[:-1]}{n}", group_instance_id=INSTANCE, metadata=SUBSCRIPTION)
            for n in range(10)
        ),
    )
    synced = instance_of(
        sync_response.SyncGroupResponse,
        throttle_time=milliseconds(0),
        error_code=none,
        protocol_type="consumer",
        protocol_name="range",
        assignment=ASSIGNMENT,
    )
    beaten = instance_of(heartbeat_response.HeartbeatResponse, throttle_time=milliseconds(0), error_code=none)
    rows += [
        ("HeartbeatResponse", 4, beaten, HeartbeatResponse),
        ("JoinGroupResponse, 10 members", 9, joined, JoinGroupResponse),
        ("SyncGroupResponse", 5, synced, SyncGroupResponse),
    ]
    return rows + [(f"OffsetCommitResponse, {n} partitions", 9, committed(n), OffsetCommitResponse) for n in (1, 10, 100)]


def commit(partitions: int, identity: dict[str, str]) -> Any:
    listed = tuple(
        instance_of(
            commit_request.OffsetCommitRequestPartition,
            partition_index=n,
            committed_offset=1_000_000 + n,
            committed_leader_epoch=3,
            committed_metadata="",
        )
        for n in range(partitions)
    )
    topic = instance_of(commit_request.OffsetCommitRequestTopic, name="orders", partitions=listed)
    return instance_of(commit_request.OffsetCommitRequest, generation_id_or_member_epoch=7, topics=(topic,), **identity)


def committed(partitions: int) -> Any:
    none = ErrorCode.none
    listed = tuple(instance_of(commit_response.OffsetCommitResponsePartition, partition_index=n, error_code=none) for n in range(partitions))
    topic = instance_of(commit_response.OffsetCommitResponseTopic, name="orders", partitions=listed)
    return instance_of(commit_response.OffsetCommitResponse, throttle_time=milliseconds(0), topics=(topic,))


def timed(function: Callable[[], object], times: int) -> float:
    loop = range(times)
    before = perf_counter_ns()
    for _ in loop:
        function()
    return (perf_counter_ns() - before) / times


def measure(name: str, version: int, instance: Any, cls: Any, rounds: int) -> dict[str, Any]:
    write, read = entity_writer(type(instance)), entity_reader(type(instance))

    def kio_encode() -> bytes:
        buffer = io.BytesIO()
        write(buffer, instance)
        return buffer.getvalue()

    data = kio_encode()
    decode = cls.decode
    message, end = decode(data, 0, version)
    assert end == len(data)
    assert message.encode(version) == data
    encode = message.encode
    functions: dict[str, Callable[[], object]] = {
        "encode_ns": lambda: encode(version),
        "kio_encode_ns": kio_encode,
        "decode_ns": lambda: decode(data, 0, version),
        "kio_decode_ns": lambda: read(data, 0),
    }
    times = {key: max(1, int(ROUND_NS / timed(function, 20))) for key, function in functions.items()}
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for key, function in functions.items():
            best[key] = min(best[key], timed(function, times[key]))
    row: dict[str, Any] = {"message": name, "version": version, "bytes": len(data)}
    row |= {key: round(value) for key, value in best.items()}
    row["encode_times_faster"] = round(best["kio_encode_ns"] / best["encode_ns"], 2)
    row["decode_times_slower"] = round(best["decode_ns"] / best["kio_decode_ns"], 2)
    return row


def results(rounds: int) -> dict[str, Any]:
    gc.disable()
    rows = [measure(name, version, instance, cls, rounds) for name, version, instance, cls in messages()]
    gc.enable()
    for n, row in enumerate(rows):
        row["judged"] = n < 6
        row["met"] = row["encode_times_faster"] >= ENCODE_TIMES_FASTER and row["decode_times_slower"] <= DECODE_TIMES_SLOWER
    return {
        "compiled": COMPILED,
        "python": sys.version.split()[0],
        "targets": {"encode_times_faster": ENCODE_TIMES_FASTER, "decode_times_slower": DECODE_TIMES_SLOWER},
        "rows": rows,
    }


def table(measured: dict[str, Any]) -> str:
    head = f"{'message':36}{'bytes':>6}{'encode':>9}{'kio':>9}{'faster':>8}{'decode':>9}{'kio':>9}{'slower':>8}"
    targets = measured["targets"]
    lines = [f"codec, {'compiled' if measured['compiled'] else 'interpreted'}, Python {measured['python']}, ns per message", head]
    for row in measured["rows"]:
        mark = "" if not row["judged"] else "  ok" if row["met"] else "  MISSED"
        lines.append(
            f"{row['message']:36}{row['bytes']:>6}{row['encode_ns']:>9}{row['kio_encode_ns']:>9}{row['encode_times_faster']:>8}"
            f"{row['decode_ns']:>9}{row['kio_decode_ns']:>9}{row['decode_times_slower']:>8}{mark}"
        )
    lines.append(
        f"targets: encode {targets['encode_times_faster']} times faster, decode at most {targets['decode_times_slower']} times slower"
    )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.codec", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args(arguments)
    measured = results(options.rounds)
    print(json.dumps(measured, indent=1) if options.json else table(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
