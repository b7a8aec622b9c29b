"""Names, values and refused combinations of group policies."""

from __future__ import annotations

import pytest

from coordinator.policies.declaration import NO_POLICIES
from coordinator.policies.door import POLICIES, policy_named, problems, resolve, resolve_known
from coordinator.policies.names import expand_names

pytestmark = pytest.mark.once  # no dependence on the Python version


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ("a",)),
        ("b, a,b", ("b", "a")),
        ("billing-[01-03]", ("billing-01", "billing-02", "billing-03")),
        ("x[8-11]y", ("x8y", "x9y", "x10y", "x11y")),
        ("[098-101]", ("098", "099", "100", "101")),
        ("[0-1],a", ("0", "1", "a")),
    ],
)
def test_ranges_of_names_are_expanded(text: str, names: tuple[str, ...]) -> None:
    assert expand_names(text, "instance.ids") == names


@pytest.mark.parametrize("text", ["a b", "[2-1]", "[01-100]", "a[1-2][3-4]", "a[1-", "a]", "[1-10001]", "[1-9999],[10000-10001]", "x" * 250])
def test_a_list_that_cannot_be_expanded_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^instance\.ids: "):
        expand_names(text, "instance.ids")


def test_ten_thousand_names_are_allowed() -> None:
    assert len(expand_names("[1-10000]", "instance.ids")) == 10_000


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("registration.timeout.ms", "1000", 1_000),
        ("expansion.timeout.ms", "604800000", 604_800_000),
        ("roster.strict", "true", True),
        ("pending.release", "false", False),
        ("target.group.size", "3", 3),
        ("subscription.change", "rebalance", True),
        ("subscription.change", "keep", False),
        ("rebalance.request", "new rack", "new rack"),
    ],
)
def test_values_are_parsed(name: str, text: str, value: object) -> None:
    assert POLICIES[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("registration.timeout.ms", "999"),
        ("registration.timeout.ms", "604800001"),
        ("expansion.timeout.ms", "5 s"),
        ("expansion.timeout.ms", "-1"),
        ("roster.strict", "yes"),
        ("target.group.size", "0"),
        ("subscription.change", "true"),
        ("instance.ids", " , "),
        ("rebalance.request", ""),
        ("no.such.policy", "1"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_its_policy(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        policy_named(name).parse(text)


def test_values_of_a_group_replace_the_defaults_and_none_turns_one_off() -> None:
    defaults = resolve({"registration.timeout.ms": "9000", "expansion.timeout.ms": "8000", "pending.release": "true"})
    texts = {"registration.timeout.ms": "none", "expansion.timeout.ms": "7000", "rebalance.request": "x"}
    assert resolve(texts, defaults) == resolve({"expansion.timeout.ms": "7000", "pending.release": "true"})
    assert resolve({}, defaults) == defaults


def test_a_stored_value_that_cannot_be_read_has_no_effect() -> None:
    assert resolve_known({"of.a.newer.version": "1", "roster.strict": "maybe", "pending.release": "true"}) == resolve({"pending.release": "true"})


@pytest.mark.parametrize(
    ("combination", "names"),
    [
        ({"roster.strict": "true"}, ["roster.strict"]),
        ({"roster.timeout.ms": "1000"}, ["roster.timeout.ms"]),
        ({"instance.ids": "a,b", "roster.strict": "true", "target.group.size": "3"}, ["target.group.size"]),
        ({"instance.ids": "a,b", "roster.strict": "true", "target.group.size": "2", "roster.timeout.ms": "1000"}, []),
        ({}, []),
    ],
)
def test_contradictions_are_found(combination: dict[str, str], names: list[str]) -> None:
    assert [sentence.split(":")[0] for sentence in problems(NO_POLICIES, resolve(combination), None)] == names


def test_names_are_removed_only_from_a_strict_list() -> None:
    before = resolve({"instance.ids": "a,b"})
    assert "roster.strict" in problems(before, resolve({"instance.ids": "a"}), None)[0]
    for after in ({"instance.ids": "a", "roster.strict": "true"}, {"instance.ids": "b,a,c"}, {}):
        assert not problems(before, resolve(after), None)


def test_a_default_about_the_list_does_not_concern_a_group_without_one() -> None:
    defaults = resolve({"roster.strict": "true", "roster.timeout.ms": "5000"})
    assert resolve({}, defaults) == NO_POLICIES
    assert resolve({"instance.ids": "a"}, defaults) == resolve({"instance.ids": "a", "roster.strict": "true", "roster.timeout.ms": "5000"})
    assert resolve({"roster.strict": "true"}, defaults) == resolve({"roster.strict": "true"})  # a contradiction of the group's own
