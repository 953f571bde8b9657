"""Places at which a process can be made to die, so that tests see what is left behind. For tests only.

`GRISTMILL_CRASH_AT` names points; unset, a point costs a look at an empty dictionary. A process that comes to a named
point kills itself as the kernel kills what needs too much memory: nothing is flushed, closed or rolled back by us.

It happens once a home, or the second attempt would end as the first: whoever dies first makes the file
`<home>/crashed/<point>`, which holds its pid. Who removes the file arms the point again.

A new point: its name goes into `CrashPoint`, `crash_point(name)` where it is to be, and a test into
tests/chaos/test_crash_points.py that dies there. A process that has not called `arm_crash_points` never dies.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Collection
from pathlib import Path
from typing import Literal, get_args

log = logging.getLogger(__name__)

CrashPoint = Literal[
    "after_record",  # a producer has noted a document and told nobody
    "after_publish",  # a producer has told the workers and not yet its caller
    "after_sync_record",  # a sync has noted a document and does not yet remember that it has it; in a transaction
    "after_claim",  # a worker has a lease and has done nothing
    "after_extract",  # the text is read, nothing is embedded
    "mid_swap",  # old chunks are gone, new ones are not there; in a transaction
    "before_commit",  # everything is written; in a transaction
    "after_commit",  # everything is visible, the message is not acknowledged
]

POINTS: tuple[str, ...] = get_args(CrashPoint)

MARKERS = "crashed"

_armed: dict[str, Path] = {}


def arm_crash_points(home: Path, points: Collection[str]) -> None:
    """Have this process, and those forked from it, die at these points."""
    _armed.clear()
    if points:
        folder = home / MARKERS
        folder.mkdir(parents=True, exist_ok=True)
        _armed.update({point: folder / point for point in points})
        log.warning("this process is set up to die, once, at each of: %s", ", ".join(points))


def crash_point(name: CrashPoint) -> None:
    """Die here, if this point is armed and nobody has died at it yet."""
    if name in _armed:
        _die(_armed[name])


def _die(marker: Path) -> None:
    try:
        file = os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return
    os.write(file, f"{os.getpid()}\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)
