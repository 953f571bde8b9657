"""`gristmill up` without its sweep: `python -m tests.chaos.without_sweep`. For the negative control only."""

from __future__ import annotations

import sys
import threading

import worker.sweep
from worker.cli import main
from worker.embedded import Services
from worker.settings import Settings


def _never(settings: Settings, services: Services, stop: threading.Event) -> None:
    stop.wait()


if __name__ == "__main__":
    worker.sweep.run_sweep = _never
    sys.argv = ["gristmill", "up"]
    main()
