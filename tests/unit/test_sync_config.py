"""Schedules of syncs, and their settings."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from pipelines.errors import ConfigurationError
from worker.connectors.config import SyncConfig
from worker.connectors.registry import load_syncs
from worker.settings import Settings
from worker.sync.absence import too_many


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), (90, 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("1d", 86_400)]
)
def test_durations_have_units(text: str | int, seconds: float) -> None:
    assert SyncConfig.model_validate({"type": "x", "every": text}).every == seconds


@pytest.mark.parametrize("text", ["", "h", "15 minutes", "-1h", "0", 0, -5, "1h30m"])
def test_other_durations_are_refused(text: str | int) -> None:
    with pytest.raises(ValidationError):
        SyncConfig.model_validate({"type": "x", "every": text})


@pytest.mark.parametrize("cron", ["", "* * *", "61 * * * *", "a b c d e", "* * * * * *"])
def test_a_cron_line_that_makes_no_sense_is_refused(cron: str) -> None:
    with pytest.raises(ValidationError, match="five fields"):
        SyncConfig(type="x", cron=cron)


def test_a_sync_has_one_schedule() -> None:
    with pytest.raises(ValidationError, match="exclude each other"):
        SyncConfig.model_validate({"type": "x", "every": "1h", "cron": "0 3 * * *"})


@pytest.mark.parametrize(
    ("cron", "zone", "after", "due"),
    [
        ("0 3 * * *", "UTC", (2026, 11, 30, 2, 59), (2026, 11, 30, 3, 0)),
        ("0 3 * * *", "UTC", (2026, 11, 30, 3, 0), (2026, 12, 1, 3, 0)),
        ("0 3 * * *", "Europe/Paris", (2026, 11, 30, 1, 30), (2026, 11, 30, 2, 0)),
        ("0 3 * * *", "Europe/Paris", (2026, 7, 1, 0, 30), (2026, 7, 1, 1, 0)),
        ("*/15 8-17 * * 1-5", "UTC", (2026, 11, 27, 17, 45), (2026, 11, 30, 8, 0)),
        (" 0  0 1 * * ", "UTC", (2026, 12, 31, 12, 0), (2027, 1, 1, 0, 0)),
    ],
)
def test_cron_is_read_in_the_time_zone_of_the_settings(
    cron: str, zone: str, after: tuple[int, ...], due: tuple[int, ...]
) -> None:
    found = SyncConfig(type="x", cron=cron).next_run(datetime(*after, tzinfo=UTC), zone)  # type: ignore[arg-type]
    assert found == datetime(*due, tzinfo=UTC)  # type: ignore[arg-type]


def test_without_a_schedule_it_runs_when_asked_to() -> None:
    assert SyncConfig(type="x").next_run(datetime(2026, 11, 30, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("syncs", "said"),
    [
        ({"a b": {"type": "folder", "path": "/x"}}, "'a b'"),
        ({"wiki": {}}, "type must be one of notion, pages, sitemap, feed, bucket, folder"),
        ({"wiki": "notion"}, "type must be one of"),
        ({"wiki": {"type": ["notion"]}}, "type must be one of"),
        ({"wiki": {"type": "folder", "path": "/x", "evry": "1h"}}, "sync wiki: evry"),
        ({"wiki": {"type": "folder", "path": "/x", "every": "soon"}}, "sync wiki: every"),
        ({"wiki": {"type": "folder"}}, "sync wiki: path"),
    ],
)
def test_what_is_wrong_with_a_sync_is_said(syncs: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_syncs(Settings(syncs=syncs))
    assert caught.value.code == "invalid_sync"
    assert said in caught.value.cause


def test_secrets_are_not_said() -> None:
    canary = "canary-0815"
    with pytest.raises(ConfigurationError) as caught:
        load_syncs(Settings(syncs={"wiki": {"type": "notion", "token": [canary], "every": "1h"}}))
    assert canary not in str(caught.value)


@pytest.mark.parametrize(
    ("removing", "live", "recent", "held"),
    [
        (9, 9, 0, False),
        (10, 21, 0, False),
        (10, 19, 0, True),
        (10, 30, 10, False),
        (10, 25, 10, True),
        (0, 0, 50, False),
    ],
)
def test_more_than_a_share_and_at_least_so_many_are_held(removing: int, live: int, recent: int, held: bool) -> None:
    assert too_many(removing, live, recent, share=0.5, minimum=10) == held
