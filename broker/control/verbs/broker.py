"""The broker's life, its connections and its clock."""

from __future__ import annotations

from typing import Any

from broker.control.fields import MS_MAX, OBJECT, TEXT, WHOLE, Field, Refused
from broker.control.verb import Call, Verb
from broker.control.verbs.clusters import shown
from broker.control.versions import advertised, read_limits

AWAY_MS_MAX = 600_000


async def restart(call: Call) -> Any:
    cluster = call.of
    if call.fields["how"] == "kill":
        cluster.kill()
        await cluster.ended()
    else:
        await cluster.stop()
    await call.host.sleep(call.fields["away_ms"])
    await cluster.start()
    return shown(cluster)


async def pause(call: Call) -> Any:
    cluster = call.of
    cluster.running_or_refuse()
    cluster.stand_still(call.fields["ms"])
    return {"paused_ms": call.fields["ms"]}


async def refuse(call: Call) -> Any:
    cluster = call.of
    cluster.running_or_refuse()
    cluster.refuse_connections()
    call.host.later(call.fields["ms"], cluster.accept_connections)
    return {"refused_ms": call.fields["ms"]}


async def versions(call: Call) -> Any:
    call.of.running_or_refuse()
    return {"versions": advertised(call.of.broker.dispatch.routes)}


async def limit_versions(call: Call) -> Any:
    limits = read_limits(call.fields["apis"])
    call.of.running_or_refuse()
    await call.of.limit_versions(limits)
    return await versions(call)


async def connections(call: Call) -> Any:
    return {"connections": call.of.open_clients()}


async def close(call: Call) -> Any:
    wanted = call.fields["client_id"]
    chosen = [tap for tap in call.of.traffic.taps if wanted is None or tap.client_id == wanted]
    for tap in chosen:
        tap.cut()
    return {"closed": len(chosen)}


async def time(call: Call) -> Any:
    clock = call.of.clock
    return {"wall_ms": clock.wall_ns() // 1_000_000, "advanced_ms": clock.advanced_ns // 1_000_000}


async def advance(call: Call) -> Any:
    cluster = call.of
    cluster.running_or_refuse()
    if cluster.standing_still:
        raise Refused(409, "the cluster is paused, or its disk hangs", "advance its clock afterwards")
    if cluster.advancing:
        raise Refused(409, "the clock is being advanced already")
    before = cluster.census()
    await cluster.advance(call.fields["ms"])
    after = cluster.census()
    gone = [member for member in before.members if member not in after.members]
    return {
        "wall_ms": cluster.clock.wall_ns() // 1_000_000,
        "expired": [{"group": group, "member": member} for group, member in gone],
        "rebalances": {group: generation for group, generation in after.generations.items() if generation != before.generations.get(group, generation)},
        "offsets_removed": max(0, before.offsets - after.offsets),
        "records_deleted": {name: end for name, end in after.starts.items() if end > before.starts.get(name, 0)},
    }


async def requests(call: Call) -> Any:
    chosen = [
        done
        for done in call.of.traffic.done
        if call.fields["api"] in (None, done.api) and call.fields["client_id"] in (None, done.client_id)
    ]
    return {"requests": [done._asdict() for done in chosen[-call.fields["last"] :]]}


async def warnings(call: Call) -> Any:
    return {"lines": list(call.of.lines)}


PATH = "/v1/clusters/{cluster}"
MS = Field("ms", WHOLE, "for how many milliseconds", required=True, least=0, most=AWAY_MS_MAX)
VERBS = (
    Verb(
        "POST", PATH + "/broker/restart", "restart on the same port, with everything that was acknowledged", restart,
        (
            Field("how", TEXT, "stop: in order; kill: at once, as kill -9", "stop", choices=("stop", "kill")),
            Field("away_ms", WHOLE, "how long connections are refused meanwhile", 0, least=0, most=AWAY_MS_MAX),
        ),
        {"how": "kill", "away_ms": 2000},
    ),
    Verb("POST", PATH + "/broker/pause", "accept connections, and read and answer nothing, as a frozen process", pause, (MS,), {"ms": 3000}),
    Verb("POST", PATH + "/broker/refuse", "refuse new connections", refuse, (MS,), {"ms": 3000}),
    Verb("GET", PATH + "/versions", "the versions of each API", versions),
    Verb(
        "POST", PATH + "/versions", "serve only these versions, as an older broker; clients connect again; {} ends it", limit_versions,
        (Field("apis", OBJECT, "by name of the API: the newest version, [oldest, newest], or null: the API is not served", required=True),),
        {"apis": {"OffsetCommit": 7, "Heartbeat": [0, 3]}},
    ),
    Verb("GET", PATH + "/connections", "list the open connections of clients", connections),
    Verb("POST", PATH + "/connections/close", "cut the connections of a client, or all", close, (Field("client_id", TEXT, "whose; absent: all"),), {"client_id": "billing-1"}),
    Verb("GET", PATH + "/time", "the cluster's clock", time),
    Verb(
        "POST", PATH + "/time/advance", "let time pass for the broker: each deadline comes in order; clients notice nothing", advance,
        (Field("ms", WHOLE, "how many milliseconds", required=True, least=0, most=MS_MAX),), {"ms": 60000},
    ),
    Verb(
        "GET", PATH + "/requests", "the last requests and their answers", requests,
        (
            Field("last", WHOLE, "how many", 50, least=1, most=200),
            Field("api", TEXT, "only of this API"),
            Field("client_id", TEXT, "only of this client"),
        ),
    ),
    Verb("GET", PATH + "/log", "the broker's last warnings and errors", warnings),
)  # fmt: skip
