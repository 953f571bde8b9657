"""What a parsing process takes away from itself before it opens a file: memory, time, the network."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

from pipelines.extract.rules import ExtractRules

LARGEST_FILE = 2 * 2**30  # of all it may write, temporary copies included
_NETWORK_EVENTS = frozenset(
    {
        "socket.connect", "socket.getaddrinfo", "socket.gethostbyaddr", "socket.gethostbyname",
        "socket.getnameinfo", "socket.sendmsg", "socket.sendto",
    }
)  # fmt: skip
# What one request for memory may be short of: a library, or a buffer that is doubled.
_ROOM = 32 * 2**20
_ROOM_SHARE = 1 / 8
_PEAK = re.compile(r"^VmPeak:\s*(\d+) kB$", re.MULTILINE)  # now: it is looked for when there is no memory left
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000


def limit(rules: ExtractRules) -> None:
    """Limit this process's address space, processor time and files, where the platform can."""
    if sys.platform == "win32":
        return
    import resource

    seconds = max(1, int(rules.seconds) + 1)
    for kind, wanted in (
        (resource.RLIMIT_AS, rules.memory_mb * 2**20),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, LARGEST_FILE),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        # macOS refuses limits of the address space; the wall-clock limit still holds there.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (value, hard))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)


def near_its_memory(rules: ExtractRules) -> bool:
    """Whether this process has had nearly all the address space that `limit` left it (Linux; elsewhere not known).

    What is refused memory seldom says so: a shared library is not mapped, an XML parser meets an unknown error.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return False
    peak = _PEAK.search(status)
    room = max(_ROOM, int(rules.memory_mb * 2**20 * _ROOM_SHARE))
    return peak is not None and int(peak[1]) * 1024 > rules.memory_mb * 2**20 - room


def leave_network() -> bool:
    """Move this process, and all it will start, to a network without interfaces, where the kernel allows it.

    For C code and for other programs, which no hook of Python sees. Root may do so by itself, others in a user
    namespace of their own; containers often forbid both, and then `forbid_network` is all there is. To be called
    before there is a second thread.
    """
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) == 0:
        return True
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return False
    # Names for the user and group we still are; without them programs take us for nobody.
    with contextlib.suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def forbid_network() -> list[str]:
    """Refuse every use of the network that Python code in this process tries; it cannot be undone.

    Returns:
        A list that takes a line for each attempt: parsers catch the error and say nothing.
    """
    attempts: list[str] = []

    def refuse(event: str, args: tuple[Any, ...]) -> None:
        if event in _NETWORK_EVENTS:
            where = " ".join(str(arg)[:80] for arg in args if isinstance(arg, str | bytes | tuple))
            attempts.append(f"{event} {where}".strip())
            raise PermissionError(f"a parser tried to use the network ({event})")

    sys.addaudithook(refuse)
    return attempts
