"""The APIs and versions served are those listed here, and error codes are Kafka's."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from protocol.apis import APIS
from protocol.errors import MESSAGES, RETRIABLE, ErrorCode

EXPECTED_RANGES = """
Produce 0-13  Fetch 4-18  ListOffsets 1-11  Metadata 0-13  OffsetCommit 2-10  OffsetFetch 1-10
FindCoordinator 0-6  JoinGroup 0-9  Heartbeat 0-4  LeaveGroup 0-5  SyncGroup 0-5  DescribeGroups 0-6
ListGroups 0-5  ApiVersions 0-5  CreateTopics 2-7  DeleteTopics 1-6  DeleteRecords 0-2  InitProducerId 0-5
OffsetForLeaderEpoch 2-4  AddPartitionsToTxn 0-3  AddOffsetsToTxn 0-4  EndTxn 0-4  TxnOffsetCommit 0-4
DescribeConfigs 1-4  AlterConfigs 0-2  CreatePartitions 0-3  DeleteGroups 0-3  IncrementalAlterConfigs 0-1
OffsetDelete 0-0  DescribeCluster 0-2  DescribeTopicPartitions 0-0  DescribeLogDirs 1-5  ConsumerGroupHeartbeat 0-1
ConsumerGroupDescribe 0-1  ListConfigResources 0-1
AlterReplicaLogDirs 1-2  ElectLeaders 0-2  AlterPartitionReassignments 0-1  ListPartitionReassignments 0-0  DescribeQuorum 0-2
"""


def test_the_advertised_ranges_are_the_ideal_table() -> None:
    words = EXPECTED_RANGES.split()
    advertised = {api.name: f"{api.advertised[0]}-{api.advertised[1]}" for api in APIS.values()}
    assert advertised == dict(zip(words[::2], words[1::2], strict=True))


def test_every_advertised_version_has_a_codec_but_produce_0_to_2() -> None:
    uncoded = {(api.name, v) for api in APIS.values() for v in range(api.advertised[0], api.advertised[1] + 1) if not api.coded[0] <= v <= api.coded[1]}
    assert uncoded == {("Produce", 0), ("Produce", 1), ("Produce", 2)}


def test_a_version_is_served_if_it_is_advertised_and_has_a_codec() -> None:
    assert (APIS[0].advertised, APIS[0].coded, APIS[0].served) == ((0, 13), (3, 13), (3, 13))
    assert (APIS[28].advertised, APIS[28].coded, APIS[28].served) == ((0, 4), (0, 6), (0, 4))
    assert APIS[12].coded == APIS[12].served == APIS[12].advertised


def test_requests_and_responses_agree_about_their_versions() -> None:
    for key, api in APIS.items():
        assert api.key == key
        assert api.request.VERSIONS == api.response.VERSIONS == api.coded
        assert api.request.FLEXIBLE_FROM == api.response.FLEXIBLE_FROM == api.flexible_from


def test_error_codes_are_kafkas() -> None:
    kios = {code.value: code.name.upper() for code in KioErrorCode}
    assert {code.value: code.name for code in ErrorCode if code.value in kios} == kios
    assert [code.value for code in ErrorCode] == list(range(-1, 134))


def test_whether_an_error_is_retriable_is_as_in_kafka() -> None:
    kios = {code.value for code in KioErrorCode if code.retriable}
    assert {code for code in RETRIABLE if code in {c.value for c in KioErrorCode}} == kios


def test_every_error_has_a_sentence() -> None:
    assert set(MESSAGES) == {code.value for code in ErrorCode}
    assert ErrorCode.NONE.message == ""
    assert all(code.message.endswith(".") for code in ErrorCode if code != ErrorCode.NONE)
