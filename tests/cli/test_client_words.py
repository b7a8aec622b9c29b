"""The messages in which the command reports Kafka's error codes."""

from __future__ import annotations

import pytest

from cli.client import Exit, Failure, check, failure, name_of
from cli.client.api_names import OTHERS
from protocol.apis import APIS
from protocol.errors import ErrorCode

NAME_RULE = "a topic's name has 1 to 249 letters, digits, '.', '_' and '-', and is not the cluster's own"


def test_error_code_0_is_no_failure() -> None:
    check(0, "group orders")


@pytest.mark.parametrize(
    ("code", "message", "exit_code", "line"),
    [
        (ErrorCode.NON_EMPTY_GROUP, None, Exit.REFUSED, "has members; stop them first, or remove them (tenure group remove-member)"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "Group orders not found.", Exit.MISSING, "there is no such group"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, None, Exit.FORBIDDEN, "this user may not use the group"),
        (ErrorCode.POLICY_VIOLATION, "at most 3 partitions\x1b[31m", Exit.REFUSED, "at most 3 partitions\\x1b[31m"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "a stack", Exit.REFUSED, "the broker failed unexpectedly; its log has the details (a stack)"),
        (ErrorCode.POLICY_VIOLATION, None, Exit.REFUSED, "a policy of the broker refuses this (POLICY_VIOLATION)"),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'a_b' collides with existing topic: a.b", Exit.REFUSED, "Topic 'a_b' collides with existing topic: a.b"),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '..' is not allowed.", Exit.REFUSED, f"{NAME_RULE} (Topic name is invalid: '..' is not allowed)"),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, None, Exit.REFUSED, NAME_RULE),
        (999, None, Exit.REFUSED, "error 999, which this command does not know"),
    ],
)
def test_an_error_code_is_a_line_that_names_its_subject(code: int, message: str | None, exit_code: Exit, line: str) -> None:
    with pytest.raises(Failure) as raised:
        check(code, "group orders", message)
    assert (raised.value.exit_code, raised.value.line) == (exit_code, f"group orders: {line}")


@pytest.mark.parametrize("code", [code for code in ErrorCode if code])
def test_every_kafka_error_code_has_a_one_line_message(code: ErrorCode) -> None:
    failed = failure(code, "x")
    assert failed.line.startswith("x: ")
    assert failed.line.isprintable()
    assert len(failed.line) > 10
    assert name_of(code) == code.name


def test_an_unknown_error_code_has_a_name_too() -> None:
    assert name_of(999) == "ERROR_999"


def test_an_api_that_this_version_knows_is_not_listed_again_by_name() -> None:
    assert not OTHERS.keys() & APIS.keys()
