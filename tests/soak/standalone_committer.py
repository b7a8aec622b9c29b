"""Commits offsets without group membership, as tools do, and deletes them: deleted offsets must not reappear."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from simulator.promises import SentValue
from tests.soak.actor import ANSWER_SECONDS, Actor
from tests.soak.ledger import RETRIABLE, Ledger
from tests.soak.member import TOPIC
from tests.soak.wire import Wire


class StandaloneCommitter(Actor):
    def __init__(self, port: int, ledger: Ledger, groups: list[str], randomness: random.Random) -> None:
        self.checked_run = -1  # the newest run of the broker in which it has found all its offsets
        self._ledger = ledger
        self._groups = groups
        super().__init__(port, "standalone_committer", randomness, ledger.report_violation)

    def __repr__(self) -> str:
        return "the client that commits without a group"

    async def _work(self, wire: Wire) -> bool:
        broker_run = self._ledger.broker_run
        if all([await self._check(group) for group in self._groups]):
            self.checked_run = broker_run
        for _ in range(20):
            group = self._random.choice(self._groups)
            if self._random.random() < 0.1:
                await self._delete(group)
            else:
                await self._commit(group)
            await asyncio.sleep(self._random.uniform(0.005, 0.03))
        return True

    async def _ask(self, request: Any, version: int) -> Any:
        assert self._wire is not None
        return await self._wire.ask(request, version, ANSWER_SECONDS)

    def _answered(self, group: str, api: str, code: int, sent: int | SentValue) -> None:
        if not code:
            self._ledger.acknowledged((group, TOPIC, 0), sent)
        else:
            self._ledger.answered(group, "nobody", api, code)
            if code not in (*RETRIABLE, ErrorCode.REQUEST_TIMED_OUT):
                self._ledger.refused((group, TOPIC, 0), sent)

    async def _commit(self, group: str) -> None:
        number = self._ledger.commit_sent((group, TOPIC, 0))
        topics = [OffsetCommitRequestTopic(TOPIC, [OffsetCommitRequestPartition(0, number, 7, "alone")])]
        reply = await self._ask(OffsetCommitRequest(group, topics=topics), 8)
        self._answered(group, "OffsetCommit", reply.topics[0].partitions[0].error_code, number)

    async def _delete(self, group: str) -> None:
        sent = self._ledger.deletion_sent((group, TOPIC, 0))
        reply = await self._ask(DeleteGroupsRequest([group]), 2)
        code = reply.results[0].error_code
        self._answered(group, "DeleteGroups", 0 if code == ErrorCode.GROUP_ID_NOT_FOUND else code, sent)

    async def _check(self, group: str) -> bool:
        sent = self._ledger.now
        groups = [OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(TOPIC, [0])])]
        answer = (await self._ask(OffsetFetchRequest(groups), 8)).groups[0]
        if answer.error_code:
            self._ledger.answered(group, "nobody", "OffsetFetch", answer.error_code)
            return False
        self._ledger.fetched((group, TOPIC, 0), answer.topics[0].partitions[0].committed_offset, sent)
        return True
