"""The groups of the simulated cluster, and their events during the week."""

from __future__ import annotations

from typing import Any, Final

from coordinator import Commit
from pipeline.demo.cluster import MINUTE_MS, Cluster, Service
from pipeline.demo.topics import DAY_MS
from pipeline.virtual import Client
from protocol.messages.offset_commit import OffsetCommitRequestPartition

# Hostile names, to test the report; only in a cluster that is hostile.
HOSTILE_GROUP: Final = '<script>alert("group")</script>\x1b[31m\n\'&"; --'
HOSTILE_CLIENT: Final = "<img src=x onerror=alert('client')>\x00\t{{7*7}}"
HOSTILE_HOST: Final = "/</td></table><b>host</b>\u202e\u2028"
HOSTILE_TOPIC: Final = "../../<topic>&amp;\x07"
LONG_GROUP: Final = "long-" + "group-" * 500
MIRROR: Final = "mirror-offsets"
DEAD: Final = "legacy-billing"

MONDAY, TUESDAY, WEDNESDAY, THURSDAY, FRIDAY, SATURDAY, SUNDAY = range(7)


def play(cluster: Cluster) -> None:
    cluster.topic("orders", 48, 240)
    cluster.topic("payments", 12, 90, retention_ms=2 * DAY_MS)
    cluster.topic("catalog", 16, 20)
    cluster.topic("clicks", 24, 600, retention_ms=DAY_MS)
    cluster.topic("mails", 6, 5)
    cluster.topic("audit", 8, 40)
    for scenario in (
        checkout, payments, search, mails, recommendations, clickstream, inventory, nightly, audit, fraud, legacy_billing, mirror_offsets, operations,
    ):  # fmt: skip
        scenario(cluster)
    if cluster.hostile:
        hostile(cluster)


def checkout(cluster: Cluster) -> None:
    """Twenty dynamic members with rolling deploys, which cost two rebalances for each pod."""
    service = cluster.service("checkout", {"orders": 48}, 20, commit_ms=120_000)
    service.deploy(cluster.moment(TUESDAY, 14, 2), "checkout 4.12", away_ms=(15_000, 25_000), every_ms=45_000)
    service.deploy(cluster.moment(THURSDAY, 10, 30), "checkout 4.13", away_ms=(15_000, 28_000), every_ms=45_000)
    service.deploy(cluster.moment(FRIDAY, 15, 10), "checkout 4.13.1", away_ms=(15_000, 28_000), every_ms=45_000)
    death(cluster, service.pods[7], cluster.moment(SATURDAY, 22, 41), None)


def payments(cluster: Cluster) -> None:
    """Static members with a long enough session timeout: deploys cause no rebalance. One partition gets stuck, and a machine crashes."""
    service = cluster.service("payments", {"payments": 12}, 12, static=True, session_ms=60_000, commit_ms=60_000)
    service.deploy(cluster.moment(TUESDAY, 9, 5), "payments 2.0", away_ms=(12_000, 30_000))
    service.deploy(cluster.moment(THURSDAY, 9, 0), "payments 2.1", away_ms=(12_000, 30_000))
    service.block_partition(cluster.moment(THURSDAY, 11, 17), "payments", 3)
    death(cluster, service.pods[2], cluster.moment(SATURDAY, 3, 12), 42 * MINUTE_MS)


def search(cluster: Cluster) -> None:
    """Static members whose session timeout is shorter than their restarts: the instance ids avoid no rebalance."""
    service = cluster.service("search-indexer", {"catalog": 16}, 8, static=True, session_ms=10_000)
    for day, version in ((MONDAY, "9.1"), (WEDNESDAY, "9.2"), (THURSDAY, "9.3"), (SUNDAY, "9.4")):
        service.deploy(cluster.moment(day, 16, 20), f"search-indexer {version}", away_ms=(14_000, 40_000), every_ms=60_000)
    cluster.at(cluster.moment(TUESDAY, 20, 15), service.pods[3].freeze, 25_000)
    cluster.remark("stands still", "search-indexer", cluster.moment(TUESDAY, 20, 15), cluster.moment(TUESDAY, 20, 15) + 25_000, client="search-indexer-3")


def mails(cluster: Cluster) -> None:
    """A nightly crash loop: a process restarts on a new host each time, and all processes share a client id."""
    service = cluster.service("email-sender", {"mails": 6}, 4, shared_client_id="consumer-email-sender-1", session_ms=30_000)
    begin, end = cluster.moment(WEDNESDAY, 23, 10), cluster.moment(THURSDAY, 1, 20)
    moment, number = begin, 0
    while moment < end:
        host = f"/10.9.{number // 250}.{number % 250}"
        cluster.at(moment, crash, service.pods[1], 20_000 + number % 5 * 8_000, host)
        moment += 4 * MINUTE_MS
        number += 1
    cluster.remark("crash loop", "email-sender", begin, end, client="email-sender-1", crashes=number)
    service.deploy(cluster.moment(FRIDAY, 11, 0), "email-sender 1.7", away_ms=(20_000, 35_000), every_ms=70_000, new_hosts=True)


def recommendations(cluster: Cluster) -> None:
    """Scaled out in the morning and in at night, two members at a time."""
    service = cluster.service("recommendations", {"clicks": 24, "catalog": 16}, 4, assignors=("sticky",), commit_ms=240_000)
    for day in range(7):
        for step in range(1, 5):
            service.scale_at(cluster.moment(day, 7, 5 * step), 4 + 2 * step)
            service.scale_at(cluster.moment(day, 22, 5 * step), 12 - 2 * step)


def clickstream(cluster: Cluster) -> None:
    """A rebalance storm: a new version exceeds max.poll.interval.ms, leaves and rejoins again and again."""
    service = cluster.service("clickstream", {"clicks": 24}, 6, per_s=60, commit_ms=120_000)
    begin, end = cluster.moment(SATURDAY, 9, 0), cluster.moment(SATURDAY, 9, 40)
    canary = service.add(6, "clickstream-canary")
    canary.rebalance_ms = 10_000  # max.poll.interval.ms
    canary.on_assigned = lambda pod: pod.busy(16_000)
    cluster.at(begin, canary.start)
    cluster.at(end, canary.stop)
    cluster.remark("storm", "clickstream", begin, end, client="clickstream-canary")


def inventory(cluster: Cluster) -> None:
    """Cooperative members: only moved partitions stop."""
    service = cluster.service("inventory", {"orders": 48}, 6, assignors=("cooperative-sticky",), per_s=60, commit_ms=300_000)
    service.scale_at(cluster.moment(TUESDAY, 13), 8)
    service.deploy(cluster.moment(WEDNESDAY, 13, 30), "inventory 3", away_ms=(10_000, 20_000), every_ms=60_000)
    service.scale_at(cluster.moment(FRIDAY, 18), 6)


def nightly(cluster: Cluster) -> None:
    """Has members for one hour each night."""
    service = cluster.service("nightly-report", {"audit": 8}, 0, per_s=3_000, commit_ms=60_000)
    for day in range(7):
        service.scale_at(cluster.moment(day, 2), 2)
        service.scale_at(cluster.moment(day, 3), 0)


def audit(cluster: Cluster) -> None:
    """Too slow for its topic: the lag grows."""
    cluster.service("audit-archiver", {"audit": 8}, 2, per_s=4.4, static=True, session_ms=45_000, commit_ms=120_000)


def fraud(cluster: Cluster) -> None:
    """Two processes share an instance id by mistake: each fences the other, and is restarted."""
    service = cluster.service("fraud-check", {"payments": 12}, 3, static=True, session_ms=45_000, commit_ms=120_000)
    begin, end = cluster.moment(FRIDAY, 8, 30), cluster.moment(FRIDAY, 8, 50)
    if not service.static:
        return
    twin = service.add(9, "fraud-check-0-copy", "fraud-check-0")
    first = service.pods[0]

    def restart_later(pod: Client) -> None:
        moment = cluster.world.now + 20_000
        if moment < end or pod is first:
            cluster.at(moment, lambda: None if pod.alive else pod.start())

    for pod in (first, twin):
        pod.on_gave_up = restart_later
    cluster.at(begin, twin.start)
    cluster.at(end, twin.crash)
    cluster.at(end + MINUTE_MS, lambda: None if first.alive else first.start())
    cluster.remark("duplicate instance id", "fraud-check", begin, end, instance="fraud-check-0", clients=["fraud-check-0", "fraud-check-0-copy"])


def legacy_billing(cluster: Cluster) -> None:
    """Ends on the first day; its offsets expire soon."""
    service = cluster.service(DEAD, {"orders": 48}, 1)
    end = cluster.moment(MONDAY, 3)
    service.scale_at(end, 0)
    cluster.remark("dead", DEAD, end, cluster.end_ms, expires_ms=end + cluster.world.config.offsets_retention_ms)


def mirror_offsets(cluster: Cluster) -> None:
    """A group without members, for which a tool commits offsets."""

    def commit() -> None:
        now = cluster.world.now
        topic = cluster.topics["mails"]
        partitions = [OffsetCommitRequestPartition(number, topic.end(number, now - 30_000)) for number in range(topic.partitions)]
        cluster.world.commit(Commit(MIRROR, -1, "", None, [("mails", partitions)]))
        cluster.at(now + 10 * MINUTE_MS, commit)

    if cluster.commits:
        cluster.at(cluster.world.now + MINUTE_MS, commit)
        cluster.remark("commits without members", MIRROR, cluster.world.now, cluster.end_ms)


def hostile(cluster: Cluster) -> None:
    cluster.topic(HOSTILE_TOPIC, 3, 2)
    names: dict[str, Any] = {"name": HOSTILE_CLIENT, "hosts": HOSTILE_HOST + "{}"}
    for group in (HOSTILE_GROUP, LONG_GROUP):
        service = Service(cluster, group, {HOSTILE_TOPIC: 3}, commit_ms=600_000, **names)
        cluster.services[group] = service
        service.scale(2)
        service.deploy(cluster.moment(MONDAY, 12), f"{group[:20]} 1", away_ms=(5_000, 9_000))


def operations(cluster: Cluster) -> None:
    """Failures of the coordinator, and lost notes."""
    cluster.at(cluster.moment(FRIDAY, 16, 20), cluster.world.kill_coordinator, 18_000)
    cluster.remark("coordinator killed", None, cluster.moment(FRIDAY, 16, 20), cluster.moment(FRIDAY, 16, 20) + 18_000)
    cluster.at(cluster.moment(SUNDAY, 4), cluster.world.restart_coordinator, 6_000)
    cluster.remark("coordinator restarted", None, cluster.moment(SUNDAY, 4), cluster.moment(SUNDAY, 4) + 6_000)
    begin, end = cluster.moment(WEDNESDAY, 22, 2), cluster.moment(WEDNESDAY, 22, 12)
    partition = cluster.world.coordinator_of("recommendations")

    def lose_notes(lost: bool) -> None:
        partition.loses_notes = lost

    cluster.at(begin, lose_notes, True)
    cluster.at(end, lose_notes, False)
    cluster.remark("notes lost", None, begin, end, partition=partition.number)


def death(cluster: Cluster, pod: Client, moment: int, away_ms: int | None) -> None:
    """Crash the member; after `away_ms` it returns on another host, None: never."""
    if away_ms is None:
        cluster.at(moment, pod.crash)
    else:
        cluster.at(moment, crash, pod, away_ms, "/10.3.0.7")
    cluster.remark("death", pod.group, moment, moment + (away_ms or 0), client=pod.name)


def crash(pod: Client, away_ms: int, host: str) -> None:
    if pod.alive:
        pod.restart(away_ms, graceful=False, host=host)
