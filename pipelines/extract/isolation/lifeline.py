"""A parsing process, and what it started, must not outlive the process that waits for it (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends; exit at once where it already has.

    Args:
        parent: process id of the parent as it was when it started us.
    """
    if not sys.platform.startswith("linux"):
        return
    _set_death_signal(signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


@contextmanager
def group_dies_with_parent() -> Iterator[None]:
    """While another program runs for us, let our parent's end take it along.

    The kernel's signal reaches this process only, and SIGKILL leaves it no time to pass it on. Python waits
    in `poll` meanwhile, so a handler runs at once.
    """
    if not sys.platform.startswith("linux") or os.getpgrp() != os.getpid():
        yield
        return
    before = signal.signal(signal.SIGUSR1, _end_group)
    _set_death_signal(signal.SIGUSR1)
    try:
        yield
    finally:
        _set_death_signal(signal.SIGKILL)
        signal.signal(signal.SIGUSR1, before)


def _end_group(number: int, frame: FrameType | None) -> None:
    os.killpg(0, signal.SIGKILL)


def _set_death_signal(number: signal.Signals) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
