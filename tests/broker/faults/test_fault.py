"""A fault is read from JSON in several forms, written back as one, and refused with the remedy when it makes no sense."""

from __future__ import annotations

from typing import Any

import pytest

from broker.faults.fault import Action, BadFault, Fault, of_kfake

COMMIT = {"apis": ["OffsetCommit"], "group": ["billing"], "action": {"error": "REQUEST_TIMED_OUT", "apply": "before"}}


@pytest.mark.parametrize(
    "document",
    [
        COMMIT,
        {"api": "OffsetCommit", "group": "billing", "error": "REQUEST_TIMED_OUT", "apply": "before"},
        {"apis": "offsetcommit", "group": "billing", "error": 7, "apply": "before"},
        {"keys": [8], "group": "billing", "err": "request_timed_out", "apply": "before"},
        {"apis": ["OffsetCommitRequest"], "group": ["billing"], "action": {"error": 7, "apply": "before"}, "count": 1, "skip": 0},
    ],
)
def test_forms_of_one_fault(document: dict[str, Any]) -> None:
    fault = Fault.parse(document)
    assert fault.document() == COMMIT
    assert Fault.parse(fault.document()) == fault
    assert fault.api_keys == (8,)


@pytest.mark.parametrize(
    ("rule", "meant"),
    [
        ({"keys": ["8"], "group": "billing", "error": "7", "count": 0}, COMMIT),
        ({"keys": ["OffsetCommit"], "group": "billing", "err": "REQUEST_TIMED_OUT"}, COMMIT),
        ({"keys": ["Fetch"], "topic": "t"}, {"apis": ["Fetch"], "topic": ["t"], "action": {"error": "UNKNOWN_SERVER_ERROR"}}),
        ({"keys": ["Fetch"], "observe": True, "count": -1}, {"apis": ["Fetch"], "count": -1, "action": {"observe": True}}),
    ],
)
def test_a_rule_of_kfake_means_what_kfake_does(rule: dict[str, Any], meant: dict[str, Any]) -> None:
    assert Fault.parse(of_kfake(rule)).document() == meant


def test_all_fields_are_written_and_read() -> None:
    document = {
        "action": {"delay_ms": 20},
        "apis": ["Fetch"],
        "versions": [12, 13],
        "client_id": ["b-*"],
        "peer": ["127.0.0.1"],
        "listener": ["PLAINTEXT"],
        "group": ["g"],
        "member": ["m"],
        "instance": ["i"],
        "topic": ["t"],
        "topic_id": ["00"],
        "partitions": [3],
        "transactional_id": ["x"],
        "producer_id": [5],
        "resource": ["r"],
        "where": {"generation_id": 3},
        "skip": 2,
        "count": -1,
        "probability": 0.5,
        "seed": 7,
        "name": "slow",
        "may_not_fire": True,
    }
    assert Fault.parse(document).document() == document


@pytest.mark.parametrize("action", ["drop", "hold", "blackhole", "observe"])
def test_actions_that_need_no_value(action: str) -> None:
    assert Fault.parse({"action": action}).action == Fault.parse({action: True}).action == Action(**{action: True})  # type: ignore[arg-type]
    assert Fault.parse({"action": action}).action.name == action


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "an object"),
        ({}, "nothing"),
        ({"apis": ["OffsetComit"], "drop": True}, "did you mean 'OffsetCommit'?"),
        ({"apis": [999], "drop": True}, "999"),
        ({"error": "REQUEST_TIMEDOUT"}, "did you mean 'REQUEST_TIMED_OUT'?"),
        ({"error": 12345}, "12345"),
        ({"error": "NONE"}, "observe"),
        ({"grup": "g", "drop": True}, "did you mean 'group'?"),
        ({"action": {"droop": True}}, "did you mean 'drop'?"),
        ({"drop": True, "hold": True}, "drop and hold"),
        ({"action": {"drop": True}, "error": 7}, "belongs into it"),
        ({"drop": True, "apply": "after"}, "'never' or 'before'"),
        ({"drop": True, "count": 0}, "never fire"),
        ({"drop": True, "count": "2"}, "whole number"),
        ({"drop": True, "probability": 0}, "probability"),
        ({"drop": True, "group": []}, "selects nothing"),
        ({"drop": True, "group": [3]}, "text"),
        ({"drop": True, "partitions": ["0"]}, "whole number"),
        ({"delay": -1}, "milliseconds"),
        ({"log": "slow"}, "full, io-error, late"),
        ({"log": "full", "late_ms": 5}, "how long a log is late"),
        ({"drop": True, "where": [1]}, "object"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_remedy(document: Any, words: str) -> None:
    with pytest.raises(BadFault) as refused:
        Fault.parse(document)
    assert words in f"{refused.value} {refused.value.hint}"
