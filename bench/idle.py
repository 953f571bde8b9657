"""Hourly syncs of a large Notion workspace in which nothing changes: time, requests and memory of each run.

The fake of Notion runs in a process of its own, so that the memory is that of the sync alone.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import psutil

from bench.service import machine
from pipelines.database import connect
from sql.migrate import migrate
from tests.fakes.notion import NotionServer, World
from tests.fakes.sync_house import SyncHouse
from worker.connectors.notion import NotionConfig
from worker.embedded import start_services, stop_services
from worker.settings import Settings

_HOUR = timedelta(hours=1)


def serve(pipe: Pipe, pages: int) -> None:
    """Serve a workspace of so many pages until told to stop; answers any message with the number of requests."""
    world = World()
    area = world.create_page(None, "Area")
    for number in range(pages - 1):
        world.manual.advance(60)
        world.create_page(area if number % 2 else None, f"Page {number}", markdown=f"Statement {number}.")
    with NotionServer(world) as server:
        pipe.send((server.base_url, server.token))
        while pipe.recv() is not None:
            pipe.send(sum(server.counts.values()))


def main(arguments: Sequence[str]) -> int:
    """Run the syncs and print a line for each kind."""
    parser = argparse.ArgumentParser(prog="bench idle", description=__doc__)
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=72)
    chosen = parser.parse_args(arguments)
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, chosen.pages))
    process.start()
    address, token = ours.recv()

    def requests() -> int:
        ours.send("count")
        return int(ours.recv())

    with tempfile.TemporaryDirectory(prefix="gm-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o711)
        settings = Settings(home=place / "home")
        services = start_services(settings)
        try:
            migrate(services.database_url, dimensions=8)
            config = NotionConfig.model_validate(
                {"type": "notion", "token": token, "base_url": address, "requests_per_second": 1000, "every": "1h"}
            )
            house = SyncHouse(
                Settings(database_url=services.database_url, home=place / "sync"),
                connect(services.database_url),
                config,
            )
            print(json.dumps(machine(house.connection, os.getloadavg()) | {"pages": chosen.pages}), flush=True)
            _measure("the first run", house, requests, 1)
            _measure("the run after it", house, requests, 1)
            found = _measure("hourly", house, requests, chosen.runs)
            _print("changes only", [one for one in found if not one["full"]])
            _print("everything", [one for one in found if one["full"]])
            series = [f"{found[at * (chosen.runs - 1) // 6]['rss']:.1f}" for at in range(7)]
            print(f"memory over {chosen.runs} runs, MB: {', '.join(series)}")
            house.close()
            house.connection.close()
        finally:
            stop_services(settings)
            ours.send(None)
            process.join()
    return 0


def _measure(what: str, house: SyncHouse, requests: Any, runs: int) -> list[dict[str, Any]]:
    found = []
    for _ in range(runs):
        before, began, cpu = requests(), time.monotonic(), time.process_time()
        house.now = house.now.replace(minute=0, second=0)
        report, error = house.syncer.sync("place")
        if error is not None:
            raise error
        found.append(
            {
                "full": bool(report.counts["full"]),
                "seconds": time.monotonic() - began,
                "cpu": time.process_time() - cpu,
                "requests": requests() - before,
                "rss": psutil.Process().memory_info().rss / 1e6,
                "visited": report.counts.get("visited", 0),
            }
        )
        house.now = house.now.replace(minute=0) + _HOUR
    if runs == 1:
        _print(what, found)
    return found


def _print(what: str, found: list[dict[str, Any]]) -> None:
    if found:
        middle = sorted(found, key=lambda one: one["seconds"])[len(found) // 2]
        most = max(one["rss"] for one in found)
        print(
            f"{what:<18} {len(found):>3} runs: {middle['seconds']:.2f} s ({middle['cpu']:.2f} s processor),"
            f" {middle['requests']} requests, {middle['visited']} visits; memory at most {most:.1f} MB",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
