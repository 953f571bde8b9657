"""Facts about operating-system processes: which one is meant, whether it still runs, how to end it.

A pid alone names nothing: it is used again after its process has gone. A process is therefore always
remembered as pid and start, and never signalled unless both still match.

Run as a program (`python -m worker.process PARENT_PID COMMAND…`) it becomes COMMAND, which the kernel then
asks to end (SIGTERM) when PARENT_PID dies. That is done in a program of its own and not between fork and
exec of the parent, where Python code is not safe once the parent has threads.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1
_LINUX = platform.system() == "Linux"

VICTIM = 500
"""Of 1,000: as if the process used half of the machine's memory more than it does."""


@dataclass(frozen=True)
class Identity:
    """One process, and no later one that happens to get the same pid.

    `started` is opaque: on Linux the boot's id and the kernel's tick of the start, which no change of the
    clock moves; elsewhere the time of the start.
    """

    pid: int
    started: str


@cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def identify(pid: int) -> Identity | None:
    """The process that has `pid` now; None if there is none, or it has ended and only waits to be reaped."""
    if _LINUX:
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = stat[stat.rindex(b")") + 2 :].split()
        state, ticks = fields[0], fields[19]
        return None if state in {b"Z", b"X"} else Identity(pid, f"{_boot_id()}:{ticks.decode()}")
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else Identity(pid, repr(process.create_time()))
    except psutil.NoSuchProcess:
        return None


def is_running(identity: Identity) -> bool:
    """Whether exactly this process still runs."""
    return identify(identity.pid) == identity


def reap(pid: int) -> None:
    """Collect `pid` if it is an ended child of ours.

    As process 1 of a container we inherit daemons whose starter has gone; an ended one that nobody collects
    looks alive to everyone who only asks for its pid, Postgres among them.
    """
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def record(path: Path, identity: Identity) -> None:
    """Write a process down in `path`, for `recall`; whole or not at all."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(asdict(identity)), encoding="utf-8")
    new.replace(path)


def recall(path: Path) -> Identity | None:
    """The process written down in `path`, running or not; None if there is no such file or it makes no
    sense."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Identity(int(found["pid"]), str(found["started"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll `condition` until it holds (True) or `seconds` have passed (False)."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def send(identity: Identity, signum: int) -> None:
    """Signal this process; nothing happens if it has gone."""
    if is_running(identity):
        try:
            os.kill(identity.pid, signum)
        except ProcessLookupError:
            return


def kill_group(pgid: int) -> None:
    """Kill every process of a group at once; nothing happens if there is none."""
    try:
        os.killpg(pgid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # macOS answers EPERM for a group in which only unreaped processes are left.
        return


def end(identity: Identity, grace: float) -> None:
    """Ask one process to end, wait up to `grace` seconds, then kill it."""
    send(identity, signal.SIGTERM)
    if not wait_for(lambda: not is_running(identity), grace):
        send(identity, signal.SIGKILL)
        wait_for(lambda: not is_running(identity), 5.0)


def end_group(leader: Identity, grace: float, mark: tuple[str, str]) -> bool:
    """End what is left of a process group that an earlier supervisor started.

    Args:
        leader: the group's first process, as recorded; it may have gone while its own children live on.
        grace: seconds between the polite request and the kill.
        mark: a variable and value that our children carry in their environment. Without the leader, the
            group's number alone might by now be someone else's; only processes with the mark are touched
            then.

    Returns:
        Whether anything was found and ended.
    """
    if is_running(leader):
        send(leader, signal.SIGTERM)
        wait_for(lambda: not is_running(leader), grace)
        if is_running(leader):
            kill_group(leader.pid)
            wait_for(lambda: not is_running(leader), 5.0)
        _kill_marked(leader.pid, mark)
        return True
    return _kill_marked(leader.pid, mark)


def _kill_marked(pgid: int, mark: tuple[str, str]) -> bool:
    key, value = mark
    found = False
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == pgid and process.environ().get(key) == value:
                process.kill()
                found = True
        except (ProcessLookupError, PermissionError, psutil.Error):
            # It has gone meanwhile, or belongs to someone else and so is none of ours.
            continue
    return found


def die_with_parent(signum: int = signal.SIGKILL) -> None:
    """Have the kernel send `signum` to this process when the thread that forked it ends; Linux only."""
    if not _LINUX:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def die_first() -> None:
    """Have the kernel, where memory runs out, end this process rather than the database or who else is there; Linux.

    Only for one whose death costs little and is seen to.
    """
    if _LINUX:
        place = Path("/proc/self/oom_score_adj")
        place.write_text(str(max(VICTIM, int(place.read_text()))), encoding="ascii")


def become(parent: int, argv: Sequence[str]) -> None:
    """Turn this process into `argv`; on Linux it will be asked to end (SIGTERM) when `parent` dies."""
    die_with_parent(signal.SIGTERM)
    if os.getppid() != parent:
        # It died before the request was in place.
        raise SystemExit(0)
    os.execvp(argv[0], list(argv))


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
