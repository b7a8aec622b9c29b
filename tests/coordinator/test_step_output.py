"""Interned texts and numbers of a shard, and the size of a batch."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator import GroupConfig
from coordinator.classic.group import Group
from coordinator.classic.member import Member
from coordinator.step_output import StepOutput

pytestmark = pytest.mark.once  # no dependence on the Python version

INTERNED_MAX = 4_096


def output(**config: Any) -> StepOutput:
    return StepOutput(GroupConfig(**config), lambda: "id")


@pytest.mark.parametrize(("extra_texts", "shared"), [(0, True), (INTERNED_MAX - 2, True), (INTERNED_MAX - 1, False)])
def test_equal_texts_share_one_object_within_a_bound(extra_texts: int, shared: bool) -> None:
    out = output()
    text = "".join(["cli", "ent"])
    assert out.intern_text(text) is text
    for number in range(extra_texts):
        out.intern_text(f"client {number}")
    assert (out.intern_text("".join(["clie", "nt"])) is text) == shared


@pytest.mark.plain  # compiled code has native integers, without an identity to compare
@pytest.mark.parametrize(("extra_numbers", "shared"), [(0, True), (INTERNED_MAX - 2, True), (INTERNED_MAX - 1, False)])
def test_equal_numbers_share_one_object_within_a_bound(extra_numbers: int, shared: bool) -> None:
    out = output()
    number = int("300000")
    assert out.intern_number(number) is number
    for extra_number in range(extra_numbers):
        out.intern_number(1_000_000 + extra_number)
    assert (out.intern_number(int("300000")) is number) == shared


def test_members_share_the_offer_of_the_first() -> None:
    out = output()
    group = Group("g", 0, 0)
    first = ((out.intern_text("range"), b"metadata"),)
    group.add(Member("g", "a", None, "", "", 0, 0, first))
    assert out.intern_protocols(group, (("range", b"metadata"),)) is first
    equal_protocols = out.intern_protocols(group, (("".join(["ran", "ge"]), b"other"),))
    assert equal_protocols == (("range", b"other"),)
    assert equal_protocols[0][0] is first[0][0]


@pytest.mark.parametrize(("spare", "fits"), [(0, True), (-1, False)])
def test_facts_fit_into_a_batch_to_the_byte(spare: int, fits: bool) -> None:
    """Sizes besides keys and values: 61 bytes for the batch header, 28 for a record."""
    assert output(batch_bytes_max=61 + 28 + 2 + spare).fits([(b"k", b"v")]) is fits
