"""When a page is visited again."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.connectors.web.interval import FIRST, next_interval, spread

HOUR, DAY = 3_600.0, 86_400.0


@pytest.mark.parametrize(
    ("last", "changed", "expected"),
    [
        (None, True, FIRST),
        (None, False, FIRST),
        (DAY, True, DAY / 2),
        (DAY, False, DAY * 1.5),
        (HOUR, True, HOUR),
        (1.5 * HOUR, True, HOUR),
        (25 * DAY, False, 30 * DAY),
        (30 * DAY, False, 30 * DAY),
        (90 * DAY, True, 30 * DAY),
    ],
)
def test_steps(last: float | None, changed: bool, expected: float) -> None:
    assert next_interval(last, changed, HOUR, 30 * DAY) == expected


def test_the_first_interval_keeps_to_the_bounds() -> None:
    assert next_interval(None, True, 2 * DAY, 3 * DAY) == 2 * DAY
    assert next_interval(None, True, 60, 120) == 120


def test_it_follows_a_page_that_begins_to_change_and_one_that_stops() -> None:
    interval = 30 * DAY
    for _ in range(10):
        interval = next_interval(interval, True, HOUR, 30 * DAY)
    assert interval == HOUR
    for _ in range(17):
        interval = next_interval(interval, False, HOUR, 30 * DAY)
    assert interval == 30 * DAY


@pytest.mark.parametrize("every", [6 * HOUR, 3 * DAY])
def test_it_settles_below_the_time_between_changes(every: float) -> None:
    """At 37 changes found in 100 visits: changes that come by chance are mostly found within half that time."""
    chance = random.Random(7)
    interval, now, due = DAY, 0.0, chance.expovariate(1 / every)
    seen: list[float] = []
    for _ in range(2_000):
        now += interval
        changed = due <= now
        while due <= now:
            due += chance.expovariate(1 / every)
        interval = next_interval(interval, changed, 60.0, 300 * DAY)
        seen.append(interval)
    assert 0.3 < sorted(seen)[1_000] / every < 0.7


@given(st.floats(HOUR, 30 * DAY), st.text("abc/é", max_size=20))
def test_spread_keeps_to_the_bounds_and_is_always_the_same(interval: float, url: str) -> None:
    found = spread(interval, url, HOUR, 30 * DAY)
    assert max(HOUR, interval * 0.9) <= found <= min(30 * DAY, interval * 1.1)
    assert spread(interval, url, HOUR, 30 * DAY) == found


def test_pages_visited_together_part() -> None:
    for interval in (HOUR, DAY, 30 * DAY):
        found = [spread(interval, f"http://a.test/{number}", HOUR, 30 * DAY) for number in range(1_000)]
        width = min(30 * DAY, interval * 1.1) - max(HOUR, interval * 0.9)
        assert max(found) - min(found) > 0.99 * width
        assert sorted(found)[500] == pytest.approx(min(found) + width / 2, rel=0.01)
