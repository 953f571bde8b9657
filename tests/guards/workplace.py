"""A copy of the work tree to take guards out of, with an interpreter that imports the copy and nothing of the original.

The project is installed so that its own folder is imported. The copy therefore gets a virtual environment of its own,
made of links to the packages of the one that runs: whatever its tests start (`gristmill up`, Celery's workers, the
parsing process) finds the same code by way of `sys.executable`, without a variable that somebody would have to pass on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.guards.guards import ROOT

BROKEN = ("ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "NameError", "UnboundLocalError")
"""A test that fails with one of these has seen a bad edit, not a missing guard."""


@dataclass(frozen=True, slots=True)
class Case:
    """How one test, or one case of it, ended.

    Attributes:
        state: passed, failed, skipped; error: it did not come to its own lines; broken: it met none of ours, since what
            it tests does not even run.
    """

    module: str
    name: str
    state: str
    message: str

    def is_of(self, test: str) -> bool:
        """Whether it is the `module::function[case]`, or a case of the `module::function`."""
        module, _, name = test.partition("::")
        return self.module == module and (self.name == name or self.name.partition("[")[0] == name)


class Workplace:
    """The copy, in a folder that is there already."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "copy"
        self._results = folder / "results.xml"
        self.log = folder / "log"
        self._stamp = int(time.time())
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        self.python = self._environment()

    def _environment(self) -> Path:
        """An interpreter for the copy."""
        packages = Path(sysconfig.get_path("purelib"))
        place = self.root / ".venv"
        own = place / packages.relative_to(sys.prefix)
        own.mkdir(parents=True)
        for package in packages.iterdir():
            if not package.name.startswith(("__editable__", "__pycache__")):
                (own / package.name).symlink_to(package)
        (own / "copy.pth").write_text(f"{self.root}\n", encoding="utf-8")
        shutil.copy2(Path(sys.prefix) / "pyvenv.cfg", place)
        python = place / "bin" / "python"
        python.parent.mkdir()
        python.symlink_to(Path(sys.executable).resolve())
        return python

    def write(self, sources: Mapping[str, str]) -> None:
        """Put files into the copy. Each write has a time of its own, or Python would take older bytecode for it."""
        for name, source in sources.items():
            self._stamp += 1
            (self.root / name).write_text(source, encoding="utf-8")
            os.utime(self.root / name, (self._stamp, self._stamp))

    def imports(self, module: str) -> Path:
        """Where a process of the copy takes a module from."""
        code = f"import {module} as found; print(found.__file__)"
        done = subprocess.run(
            [self.python, "-P", "-c", code], cwd="/", check=True, capture_output=True, text=True, env=_variables()
        )
        return Path(done.stdout.strip())

    def run(self, node_ids: Sequence[str], seconds: float, *, each: float | None = None) -> list[Case]:
        """Run tests of the copy, one after the other.

        Args:
            seconds: for all of them; what is not done by then is missing.
            each: for one that says nothing else; None: as ever.
        """
        self._results.unlink(missing_ok=True)
        command: list[str | Path] = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [f"--junitxml={self._results}", *([] if each is None else [f"--timeout={each:g}"])]
        with (
            self.log.open("a", encoding="utf-8") as log,
            subprocess.Popen(
                [*command, *node_ids], cwd=self.root, env=_variables(), stdout=log, stderr=log, start_new_session=True
            ) as process,
        ):
            try:
                process.wait(seconds)
            except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
                _end(process.pid)
                if isinstance(error, KeyboardInterrupt):
                    raise
        if not self._results.is_file():
            return []
        return [_case(node) for node in ET.parse(self._results).iter("testcase")]


def _variables() -> dict[str, str]:
    """The environment: nothing that leads elsewhere, and the same examples of Hypothesis in every run."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return kept | {"CI": "true"}


def _case(node: ET.Element) -> Case:
    ended = next((one for one in node if one.tag in ("failure", "error", "skipped")), None)
    state = {None: "passed", "failure": "failed"}.get(tag := None if ended is None else ended.tag, str(tag))
    message = (ended.get("message") or "") if ended is not None else ""
    if state == "failed" and message.startswith(BROKEN):
        state = "broken"
    module = node.get("classname", "").rpartition(".")[2]
    return Case(module, node.get("name", ""), state, message)


def _end(pid: int) -> None:
    """End a process and all that it has started."""
    leader = psutil.Process(pid)
    for process in [leader, *leader.children(recursive=True)]:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
