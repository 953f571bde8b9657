"""A sync whose workers, beats and whole service are killed at random comes to the same end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

import psutil
import pytest

from tests.acceptance.conftest import Installation, is_dead, until
from tests.fakes.notion import NotionServer, World
from worker.connectors.notion.ids import page_uri, plain_id

Install = Callable[..., Installation]
PAGES = 60
KILLS = 6
SEED = 20


def truth(world: World) -> dict[str, str]:
    """What each page says, by uri."""
    return {page_uri(plain_id(page) or ""): said.texts[0] for page, said in world.truth().items()}


def index(service: Installation) -> dict[str, str]:
    """What is found of each page, by uri; a page with two texts, or two rows, would show."""
    rows = service.rows(
        "select s.uri, string_agg(d.content, ' + ') from sources s join documents d on d.source_id = s.id"
        " where s.state = 'done' group by s.id, s.uri"
    )
    return dict(rows)


@pytest.mark.timeout(600)
def test_kills_at_random_make_no_difference(install: Install) -> None:
    random = Random(SEED)
    world = World()
    pages = [world.create_page(None, f"Page {n}", markdown=f"Statement {n} in version 1.") for n in range(PAGES)]
    with NotionServer(world) as server:
        world.clock = world.manual
        wiki = {
            "type": "notion",
            "token": server.token,
            "base_url": server.base_url,
            "requests_per_second": 25,
            "every": "1s",
            "full_every": "3s",
            "confirm_after": "1s",
        }
        # Workers are killed over documents, which is not these documents' fault.
        service = install(
            syncs=json.dumps({"wiki": wiki}),
            watch="[]",
            http_port=0,
            lease_seconds=4,
            sweep_seconds=0.5,
            max_attempts=12,
        )
        service.start()
        beat = (sys.executable, "-m", "celery", "--quiet", "-A", "worker.app", "beat")
        second_beat = subprocess.Popen(
            beat, env=service.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            until(lambda: sum(server.counts.values()) > 20, "the sync to begin")
            killed = [_kill(service, random, number) for number in range(KILLS) if not _edit(world, random, pages)]
            assert len(set(killed)) == KILLS
            assert service.process is not None
            os.kill(service.process.pid, signal.SIGKILL)
            service.process.wait()
            _edit(world, random, pages)
            service.start()
            world.manual.advance(600)  # what was edited has settled
            until(lambda: index(service) == truth(world), "index and workspace to agree", seconds=240)
        finally:
            second_beat.kill()
            second_beat.wait()
        assert len(service.rows("select from sources where state <> 'deleted'")) == len(truth(world))
        assert service.rows("select from synced where removed_at is null and failures > 0") == []


def _edit(world: World, random: Random, pages: list[str]) -> None:
    """Somebody edits, trashes, brings back and adds pages."""
    world.manual.advance(200)
    for _ in range(3):
        page = random.choice(pages)
        version = random.randint(2, 10**6)
        if world.nodes[page].trashed:
            world.restore(page)
        elif random.random() < 0.2:
            world.trash(page)
        else:
            world.edit(page, markdown=f"Statement of page {pages.index(page)} in version {version}.")
    pages.append(world.create_page(None, "New", markdown=f"Statement {len(pages)} in version 1."))


def _kill(service: Installation, random: Random, number: int) -> int:
    """Kill one process that serves the sync, of each kind in turn, as soon as there is one; its pid."""

    def victim() -> psutil.Process | None:
        kind = ("pool", "worker", "beat", "ingest")[number % 4]
        if kind == "beat":
            return next(iter(service.children("worker.app beat")), None)
        found = sorted(service.children("-Q ingest" if kind == "ingest" else "-Q sync"), key=_age)
        if not found:
            return None
        if kind == "worker":
            return found[0]
        return random.choice(found[1:]) if found[1:] else None

    process: Any = until(victim, "a process to kill")
    process.kill()
    time.sleep(random.uniform(0.2, 2.0))  # the kills come at random moments; nothing is waited for
    until(lambda: is_dead(process.pid), "the process to die")
    return int(process.pid)


def _age(process: psutil.Process) -> float:
    try:
        return process.create_time()
    except psutil.NoSuchProcess:
        return float("inf")
