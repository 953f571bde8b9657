"""Whether the Celery worker that this process belongs to was asked to stop, as its pool processes need to know.

Celery tells only its main process, and waits for what the others are doing. One of those may be working off a backlog,
document after document; it looks here before it takes the next one.
"""

from __future__ import annotations

import mmap

_flag = mmap.mmap(-1, 1)  # anonymous and shared: what the main process writes, its forks read


def announce_shutdown() -> None:
    """Say it, to this process and to those that it has forked or will fork."""
    _flag[0] = 1


def shutting_down() -> bool:
    """Whether it was said."""
    return bool(_flag[0])
