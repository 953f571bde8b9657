"""Loaded by every process of an installation that has this folder on its PYTHONPATH: documents that harm their worker.

Not the process that parses, which is fenced in, but the one that holds the lease. It happens each time the worker comes
to cut a document whose text holds one of these words:

- POISON-DIES: the process kills itself, as the kernel kills what needs too much memory;
- POISON-HANGS: it goes on for ever;
- POISON-EATS: it takes memory until there is none; so that the machine keeps some, `SPARE_BYTES` are all there is.

A task may take `POISON_SECONDS` seconds, if that variable is set, before its process is killed, and looks for a next
document for a tenth of that only, so that no other one can come near the limit.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

SPARE_BYTES = 128 * 2**20


def _act(text: str) -> None:
    if "POISON-DIES" in text:
        os.kill(os.getpid(), signal.SIGKILL)
    if "POISON-HANGS" in text:
        while True:
            pass
    if "POISON-EATS" in text:
        before = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + SPARE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
        try:
            held = []
            while True:
                held.append(bytearray(2**24))
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)


def _poison_chunk(module: ModuleType) -> None:
    cut: Callable[..., Any] = module.chunk

    def poisoned(found: Any, *args: Any, **kwargs: Any) -> Any:
        _act(found.text)
        return cut(found, *args, **kwargs)

    module.chunk = poisoned  # type: ignore[attr-defined]


def _shorten_tasks(module: ModuleType) -> None:
    if seconds := os.environ.get("POISON_SECONDS"):
        module.task_time_limit = lambda _settings: float(seconds)  # type: ignore[attr-defined]


def _shorten_drains(module: ModuleType) -> None:
    if seconds := os.environ.get("POISON_SECONDS"):
        module.DRAIN_SECONDS = float(seconds) / 10  # type: ignore[attr-defined]


class _Hook:
    """Finds these modules as everybody else would, and changes them once they are loaded."""

    def __init__(self) -> None:
        self._changes = {
            "pipelines.chunk": _poison_chunk,
            "worker.app": _shorten_tasks,
            "worker.tasks": _shorten_drains,
        }

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        change = self._changes.pop(name, None)
        spec = find_spec(name) if change else None
        if spec is None or spec.loader is None or change is None:
            return None
        load = spec.loader.exec_module

        def load_and_change(module: ModuleType) -> None:
            load(module)
            change(module)

        spec.loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Hook())  # type: ignore[arg-type]
