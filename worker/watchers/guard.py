"""The mass-deletion guard of one root: which missing files are believed to be deleted, and when.

An unmounted disk, a sync client that lost its account or a mistyped command look just like a deletion of
everything.
"""

from __future__ import annotations

import math
import shlex
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from worker.watchers.messages import Decision, Paused, PauseKind, Resumed

BURST_SECONDS = 60.0
"""Deletions wait for the root to be quiet, but no longer than this."""

MEMORY_SECONDS = 300.0
"""Files deleted so recently still count, so that a slow removal of everything is seen as one."""


class DeletionGuard:
    """Judges the missing files of one root together, once no more have gone missing for the grace time.

    Args:
        root: the watched directory.
        grace_seconds: quiet time before anything is deleted.
        share: when more than this share of the root's files has gone (those deleted lately included),
            nothing is deleted ...
        minimum: ... if at least so many are missing.

    Paused for too many deletions it stays so until fewer than `minimum` files are missing: they came back,
    or an operator confirmed, which removes them from the ledger. (Going by the share alone would start
    deleting half-way through a restore.)
    """

    def __init__(self, root: Path, grace_seconds: float, share: float, minimum: int) -> None:
        self._root = root
        self._grace = grace_seconds
        self._share = share
        self._minimum = minimum
        self._last_lost = -math.inf
        self._resumed = -math.inf
        self._deleted: deque[tuple[float, int]] = deque()
        self._present = True
        self._unreadable: tuple[Path, ...] = ()
        self._tripped = ""
        self.paused: PauseKind | None = None

    def lost(self, now: float) -> None:
        """A known file of this root has just gone missing."""
        self._last_lost = now

    def scanned(self, *, present: bool, unreadable: tuple[Path, ...]) -> None:
        """The root was listed: it is there or not, and these parts of it could not be looked into."""
        self._present = present
        self._unreadable = unreadable

    def due_at(self, missing: Mapping[Path, float]) -> float:
        """When these missing files can be judged; infinity when there is nothing to judge, or nothing to be
        done."""
        if not missing or not self._present or self._tripped:
            return math.inf
        # A pause that has just ended counts as the moment everything went missing.
        oldest = max(min(missing.values()), self._resumed)
        quiet = max(self._last_lost, oldest) + self._grace
        return max(oldest + self._grace, min(quiet, oldest + BURST_SECONDS))

    def judge(
        self, missing: Mapping[Path, float], *, held: int, known: int, now: float
    ) -> tuple[list[Path], list[Decision]]:
        """Which of the missing files to delete now, and what to say about a pause that begins or ends.

        Args:
            missing: missing files, each with the time it went missing; none that may have been renamed.
            held: how many more are missing, but may have been renamed.
            known: number of files the ledger holds beneath this root, the missing ones included.
            now: monotonic clock, seconds.
        """
        while self._deleted and self._deleted[0][0] < now - MEMORY_SECONDS:
            self._deleted.popleft()
        if self._tripped and self._present and len(missing) + held < self._minimum:
            self._tripped = ""
            self._resumed = now
        due = self.due_at(missing) <= now
        if due:
            recent = sum(count for _, count in self._deleted)
            lost = len(missing) + recent
            if len(missing) >= self._minimum and lost > self._share * (known + recent):
                self._tripped = f"{lost} of {known + recent} documents have gone from {self._root}"
                due = False
        notices = self._notices()
        believed = [path for path, since in missing.items() if since + self._grace <= now] if due else []
        if believed:
            self._deleted.append((now, len(believed)))
        return believed, notices

    def _notices(self) -> list[Decision]:
        kind, reason, remedy = self._state()
        if kind == self.paused:
            return []
        self.paused = kind
        return [Resumed(self._root)] if kind is None else [Paused(self._root, kind, reason, remedy)]

    def _state(self) -> tuple[PauseKind | None, str, str]:
        if not self._present:
            return (
                "absent",
                f"{self._root} is missing or not mounted; its documents are kept",
                "mount or create it again, watching goes on by itself",
            )
        if self._tripped:
            command = f"gristmill delete --missing {shlex.quote(str(self._root))}"
            return (
                "guard",
                f"{self._tripped}; none is deleted",
                f"bring the files back, or confirm the deletion with `{command}`",
            )
        if self._unreadable:
            places = ", ".join(str(path) for path in self._unreadable[:3])
            more = f" and {len(self._unreadable) - 3} more" if len(self._unreadable) > 3 else ""
            return (
                "unreadable",
                f"cannot look into {places}{more}; the documents there are kept",
                "let this user read and enter it, or add it to GRISTMILL_IGNORE",
            )
        return None, "", ""
