"""The recommended session timeout: its samples, its cost, and when there is no recommendation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import pytest

from pipeline.advice import Sentence, duration_text
from pipeline.gaps import DEATH, HEARTBEAT_GAP
from pipeline.report.first import advice_title
from pipeline.restarts import DYNAMIC_PAIR
from pipeline.rows import CurvePoint, Episode, Gap
from pipeline.timeouts import Death, Options, TimeoutChoice, choose, curve, rounded_up
from pipeline.virtual import World
from tests.pipeline.advising import MINUTE_MS, advised, played, random_restarts
from tests.pipeline.scenarios import play, pods

pytestmark = pytest.mark.once  # no dependence on the Python version


def gap(ms: int, *, lo: int | None = None, source: str = DYNAMIC_PAIR, hi: int | None = None) -> Gap:
    return Gap("c", "g", "m", ms, ms if lo is None else lo, ms if hi is None else hi, source, True, 3, [], "exact")


def episode(by_ms: int | None) -> Episode:
    empty_row: dict[str, Any] = dict.fromkeys(Episode._fields)
    return Episode(**(empty_row | {"avoidable": "no" if by_ms is None else "yes", "avoidable_by_ms": by_ms, "missing": 0}))


def points(gaps: list[Gap], by: Sequence[int | None] = (), deaths: list[Death] = [], options: Options = Options()) -> list[CurvePoint]:  # noqa: B006, B008
    return curve("c", "g", gaps, [episode(cause) for cause in by], deaths, options)


def chosen(gaps: list[Gap], by: Sequence[int | None] = (), deaths: list[Death] = [], options: Options = Options()) -> TimeoutChoice:  # noqa: B006, B008
    return choose(gaps, points(gaps, by, deaths, options), options)


@pytest.mark.parametrize(("ms", "up"), [(5_001, 10_000), (60_000, 60_000), (119_999, 120_000), (120_000, 120_000), (120_001, 150_000), (599_000, 600_000)])
def test_round_values(ms: int, up: int) -> None:
    assert rounded_up(ms) == up


def test_a_sample_is_bridged_by_a_longer_timeout() -> None:
    at = {point.timeout_ms: point for point in points([gap(20_000), gap(30_000)])}
    assert [(at[ms].bridged, at[ms].not_bridged) for ms in (20_000, 25_000, 30_000, 35_000)] == [(0, 2), (1, 1), (1, 1), (2, 0)]


def test_an_interval_is_bridged_by_a_timeout_above_its_upper_end() -> None:
    at = {point.timeout_ms: point for point in points([gap(30_000, lo=10_000)])}
    assert [(at[ms].bridged, at[ms].not_bridged, at[ms].unknown) for ms in (10_000, 30_000, 35_000)] == [(0, 1, 0), (0, 0, 1), (1, 0, 0)]


def test_the_curve_counts_rebalances_and_idle_time() -> None:
    at = {point.timeout_ms: point for point in points([gap(20_000)], [20_001, 20_001, 40_001, None], [Death(45_000, 4), Death(0, 2)])}
    assert (at[20_000].rebalances_avoided, at[25_000].rebalances_avoided, at[60_000].rebalances_avoided) == (0, 2, 3)
    assert (at[60_000].deaths, at[60_000].added_detection_ms, at[60_000].added_stalled_partition_ms) == (2, 75_000, 15_000 * 4 + 60_000 * 2)
    assert at[30_000].added_stalled_partition_ms == -15_000 * 4 + 30_000 * 2


@pytest.mark.parametrize("seed", range(6))
def test_more_time_bridges_and_costs_more(seed: int) -> None:
    curve_points = advised(played(random_restarts(seed, [20_000, 10 * MINUTE_MS], steps=40))).curve
    assert len(curve_points) > 80
    for less, more in pairwise(curve_points):
        assert less.timeout_ms < more.timeout_ms
        assert less.bridged <= more.bridged
        assert less.not_bridged >= more.not_bridged
        assert less.rebalances_avoided <= more.rebalances_avoided
        assert less.added_stalled_partition_ms <= more.added_stalled_partition_ms
        assert less.bridged + less.not_bridged + less.unknown == more.bridged + more.not_bridged + more.unknown


def test_few_samples_are_all_bridged() -> None:
    assert chosen([gap(ms) for ms in (10_000, 20_000, 40_000)]) == TimeoutChoice(55_000, 40_000, 3, None, "longest")  # 40 s x 1.2 + 3 s = 51 s, rounded up


def test_of_many_samples_a_few_longer_ones_are_not_bridged() -> None:
    samples = [gap(20_000 + ms) for ms in range(99)] + [gap(400_000)]
    choice = chosen(samples, [ms.gap_lo_ms + 1 for ms in samples])
    assert (choice.timeout_ms, choice.gap_ms, choice.why) == (30_000, 20_094, "quantile")  # 20.1 s x 1.2 + 3 s = 27.1 s, rounded up


def test_the_upper_end_of_an_interval_counts() -> None:
    assert chosen([gap(40_000, lo=1)]).timeout_ms == 55_000


def test_advice_is_not_below_the_brokers_minimum() -> None:
    assert chosen([gap(100)]).timeout_ms == 6_000


def test_advice_is_not_above_the_configured_maximum() -> None:
    assert chosen([gap(100_000)], options=Options(detect_max_ms=60_000))[:1] == (60_000,)
    assert chosen([gap(100_000)], options=Options(session_max_ms=90_000)).timeout_ms == 90_000


def test_a_longer_timeout_is_chosen_if_it_bridges_a_tenth_more_restarts() -> None:
    samples = [gap(20_000)] * 96 + [gap(60_000)] * 4
    by = [20_001] * 96 + [60_001] * 20
    assert (chosen(samples, by).timeout_ms, chosen(samples, by).why) == (65_000, "knee")
    dear = chosen(samples, by, [Death(0, 10)])
    assert (dear.timeout_ms, dear.why) == (30_000, "quantile")
    assert chosen(samples, by[:100]).timeout_ms == 30_000


def test_there_is_no_advice_if_restarts_exceed_any_sane_timeout() -> None:
    both = [gap(20_000)] * 15 + [gap(900_000)] * 15
    assert chosen(both) == TimeoutChoice(None, 900_000, 30, None, "too_long")
    assert chosen([gap(20_000)] * 99 + [gap(900_000)]).timeout_ms == 30_000


def test_advice_is_more_than_three_times_the_longest_heartbeat_gap() -> None:
    late = gap(15_000, source=HEARTBEAT_GAP)
    assert chosen([gap(10_000), late]) == TimeoutChoice(50_000, 10_000, 1, 45_000, "floor")
    assert chosen([gap(40_000), late]).timeout_ms == 55_000
    assert chosen([late]) == TimeoutChoice(None, None, 0, 45_000, "no_samples")


def test_a_crash_without_return_is_no_sample() -> None:
    assert chosen([gap(1_800_000, source=DEATH)]).why == "no_samples"


def test_the_advice_is_a_sentence_with_its_numbers() -> None:
    (advice,) = advised(play("rolling restart of dynamic members").world).advice
    assert advice.text == (
        "g: 6 of 7 rebalances in 12 min 23 s came from restarts of at most 20 s; `group.instance.id` plus `session.timeout.ms=30000` would "
        "have left 1. Cost: up to 20 s later detection of a member that does not come back (none occurred)."
    )
    assert advice.setting == "group.instance.id=<a name that each process keeps after restarts>\nsession.timeout.ms=30000"
    assert (advice.avoided, advice.of_rebalances, advice.samples, advice.confidence, advice.static_share) == (6, 7, 3, "weak", 0.0)


def test_the_cost_counts_the_member_with_the_shortest_session_timeout() -> None:
    restarts = [gap(2_000)]
    text = Sentence("g", [], restarts, [45_000, 6_000], 1.0, [], chosen(restarts), 0, 0, Options()).text
    assert text.endswith("`session.timeout.ms=10000` is enough for it. Cost: up to 4 s later detection of a member that does not come back (none occurred).")


def test_a_member_that_may_still_return_is_not_counted_as_returned() -> None:
    def script(world: World) -> None:
        running = pods(world, 3, session_ms=60_000)
        running[0].restart(5_000)
        world.run(5 * MINUTE_MS)
        running[1].stop()

    (soon,), (late,) = (advised(played(script, more_ms)).advice for more_ms in (5 * MINUTE_MS, 60 * MINUTE_MS))
    assert soon.text.endswith("(1 has not returned yet).")
    assert late.text.endswith("(1 occurred).")
    assert (soon.deaths, late.deaths) == (0, 1)


def test_static_members_need_no_instance_id() -> None:
    (advice,) = advised(play("restarts longer than the session of static members").world).advice
    assert advice.setting == "session.timeout.ms=40000"
    assert (advice.avoided, advice.current_min_ms, advice.current_max_ms) == (4, 10_000, 10_000)


def test_a_shorter_timeout_loses_seats_that_were_kept() -> None:
    """With many short restarts and a few long ones, the advised timeout covers the short ones; the long ones still cost rebalances."""

    def script(world: World) -> None:
        running = pods(world, 3, static=True, session_ms=120_000)
        for number in range(40):
            running[number % 3].restart(100_000 if number == 20 else 2_000)
            world.run(5 * MINUTE_MS)

    (advice,) = advised(played(script)).advice
    assert (advice.recommended_ms, advice.avoided) == (10_000, 0)


def test_without_restarts_no_timeout_is_advised() -> None:
    (advice,) = advised(play("formation").world).advice
    assert (advice.recommended_ms, advice.confidence, advice.setting) == (None, "none", "")
    assert advice.text == "g: no restart of a member was found, so there is no basis for a session timeout."


LIMITS = [None, 0, 1_000, 6_000, 9_000, 10_000, 21_000, 60_000]
RESTARTS = [gap(2_000), gap(9_100), gap(20_000), gap(9_500, lo=8_500), gap(30_000, lo=1_000)]


@pytest.mark.parametrize("late_ms", [None, 5_000])
@pytest.mark.parametrize("limit", LIMITS)
def test_the_numbers_in_the_sentence_are_right(limit: int | None, late_ms: int | None) -> None:
    """Check the sentence for each limit, with one or two restarts, and with every number of avoided rebalances."""
    options = Options(detect_max_ms=limit)
    for restarts, by in product([*([one] for one in RESTARTS), *([*RESTARTS[:1], *two] for two in pairwise(RESTARTS))], [(), (9_101,), (None, 2_001, 20_001)]):
        gaps = restarts if late_ms is None else [*restarts, gap(late_ms, source=HEARTBEAT_GAP)]
        choice = chosen(gaps, by, options=options)
        episodes = [episode(cause) for cause in by]
        timeout = choice.timeout_ms or 0
        needed = [ms for ms in by if ms is not None]
        for avoided in range(sum(ms <= timeout for ms in needed) + 1):
            unlimited_avoided = sum(ms <= (choice.unlimited_ms or 0) for ms in needed)
            text = Sentence("g", episodes, restarts, [10_000], 1.0, [], choice, avoided, unlimited_avoided, options).text
            (point,) = curve("c", "g", restarts, [], [], options._replace(session_min_ms=timeout, session_max_ms=timeout))
            claim = re.search(r"is (not )?(?:surely )?enough for (it|them|none|\d+)", text)
            assert (claim is None) == (avoided > 0)
            if claim is not None:
                assert point.bridged == (0 if claim[1] or claim[2] == "none" else int(claim[2]) if claim[2].isdigit() else len(restarts))
                assert ("surely" in claim[0]) == (point.unknown > 0)
                assert ("no rebalance that another setting would have avoided" in text) == (not needed)
            else:
                assert f"{avoided} of {len(by)} " in text
                assert f"would have left {len(by) - avoided}" in text
            assert ("cannot be kept" in text) == (limit is not None and timeout > limit)
            free = choose(gaps, points(gaps, by), Options())
            assert ("the advice would be `session.timeout.ms=" in text) == (free.timeout_ms != choice.timeout_ms)
            assert f"the advice would be `session.timeout.ms={free.timeout_ms}`" in text or free.timeout_ms == choice.timeout_ms
            assert (f"which would have avoided {unlimited_avoided}." in text) == (unlimited_avoided > avoided and choice.unlimited_ms is not None)


def test_advice_says_what_a_limit_costs() -> None:
    world = play("restarts longer than the session of static members").world
    (advice,) = advised(world, options=Options(detect_max_ms=20_000)).advice
    assert (advice.recommended_ms, advice.avoided) == (20_000, 0)
    assert advice.text.startswith(
        "g: 2 restarts of at most 30 s caused 4 avoidable rebalances; `session.timeout.ms=20000` is enough for none of them and would have left "
        "no fewer rebalances. Without the limit of 20 s for noticing a dead member, the advice would be `session.timeout.ms=40000`, "
        "which would have avoided 4. Cost: "
    )
    (advice,) = advised(world, options=Options(detect_max_ms=1_000)).advice
    assert "The limit of 1 s for noticing a dead member cannot be kept: brokers allow no session timeout below 6 s. Without it, the" in advice.text


def test_restarts_longer_than_the_quantile_are_mentioned() -> None:
    restarts = [gap(2_000)] * 39 + [gap(100_000)]
    text = Sentence("g", [], restarts, [120_000], 1.0, [], chosen(restarts), 0, 0, Options()).text
    assert text.startswith("g: 40 restarts of at most 1 min 40 s caused no rebalance that another setting would have avoided; `session.timeout.ms=10000` is enough for 39 of")


def test_durations_are_formatted_for_readers() -> None:
    assert [duration_text(ms) for ms in (500, 25_000, 25_500, 90_000)] == ["500 ms", "25 s", "25.5 s", "1 min 30 s"]


@pytest.mark.parametrize(
    ("share", "longest_ms", "words"),
    [
        (0.0, 45_000, "make its members static"),
        (0.5, 45_000, "make all its members static"),
        (1.0, 45_000, "raise its session timeout"),
        (1.0, 120_000, "give all its members one session timeout"),
    ],
)
def test_the_advice_is_summarized_in_a_few_words(share: float, longest_ms: int, words: str) -> None:
    (advice,) = advised(play("restarts longer than the session of static members").world).advice
    assert advice_title(advice._replace(static_share=share, current_max_ms=longest_ms, recommended_ms=60_000)) == words
