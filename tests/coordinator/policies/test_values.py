"""Names, values and refused combinations of group policies."""

from __future__ import annotations

import pytest

from coordinator.policies.values import (
    NO_POLICIES,
    GroupPolicies,
    combination_problems,
    expand_names,
    parse,
    resolve,
    resolve_known,
    transition_problems,
)

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
    assert expand_names(text) == names


@pytest.mark.parametrize("text", ["a b", "[2-1]", "[01-100]", "a[1-2][3-4]", "a[1-", "a]", "[1-10001]", "[1-9999],[10000-10001]", "x" * 250])
def test_a_list_that_cannot_be_expanded_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^instance\.ids: "):
        expand_names(text)


def test_ten_thousand_names_are_allowed() -> None:
    assert len(expand_names("[1-10000]")) == 10_000


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
    assert parse(name, text) == value


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
        parse(name, text)


def test_values_of_a_group_replace_the_defaults_and_none_turns_one_off() -> None:
    defaults = GroupPolicies(registration_timeout_ms=9_000, expansion_timeout_ms=8_000, pending_release=True)
    configs = {"registration.timeout.ms": "none", "expansion.timeout.ms": "7000", "rebalance.request": "x"}
    assert resolve(configs, defaults) == GroupPolicies(expansion_timeout_ms=7_000, pending_release=True)
    assert resolve({}, defaults) is defaults or resolve({}, defaults) == defaults


def test_a_stored_value_that_cannot_be_read_has_no_effect() -> None:
    assert resolve_known({"of.a.newer.version": "1", "roster.strict": "maybe", "pending.release": "true"}) == GroupPolicies(pending_release=True)


@pytest.mark.parametrize(
    ("combination", "names"),
    [
        (GroupPolicies(roster_strict=True), ["roster.strict"]),
        (GroupPolicies(roster_timeout_ms=1_000), ["roster.timeout.ms"]),
        (GroupPolicies(instance_ids=("a", "b"), roster_strict=True, target_group_size=3), ["target.group.size"]),
        (GroupPolicies(instance_ids=("a", "b"), roster_strict=True, target_group_size=2, roster_timeout_ms=1_000), []),
        (NO_POLICIES, []),
    ],
)
def test_contradictions_are_found(combination: GroupPolicies, names: list[str]) -> None:
    assert [sentence.split(":")[0] for sentence in combination_problems(combination)] == names


def test_names_are_removed_only_from_a_strict_list() -> None:
    before = GroupPolicies(instance_ids=("a", "b"))
    assert "roster.strict" in transition_problems(before, GroupPolicies(instance_ids=("a",)))[0]
    assert not transition_problems(before, GroupPolicies(instance_ids=("a",), roster_strict=True))
    assert not transition_problems(before, GroupPolicies(instance_ids=("b", "a", "c")))
    assert not transition_problems(before, NO_POLICIES)


def test_a_default_about_the_list_does_not_concern_a_group_without_one() -> None:
    defaults = NO_POLICIES._replace(roster_strict=True, roster_timeout_ms=5_000)
    assert resolve({}, defaults) == NO_POLICIES
    listed = resolve({"instance.ids": "a"}, defaults)
    assert (listed.roster_strict, listed.roster_timeout_ms) == (True, 5_000)
    assert resolve({"roster.strict": "true"}, defaults).roster_strict  # a contradiction of the group's own
