"""A pool process learns of the stop that only its parent was asked for."""

from __future__ import annotations

import subprocess
import sys

# A program of its own: a process with threads, as that of the tests may be, is not to fork.
PROGRAM = """
import os
import worker.app
from celery.signals import worker_shutting_down
from worker.shutdown import shutting_down

from_child, to_parent = os.pipe()
from_parent, to_child = os.pipe()
if os.fork() == 0:
    os.write(to_parent, b"1" if shutting_down() else b"0")
    os.read(from_parent, 1)
    os.write(to_parent, b"1" if shutting_down() else b"0")
    os._exit(0)
before = os.read(from_child, 1)
worker_shutting_down.send(sender="ingest@here", sig="SIGTERM", how="Warm", exitcode=0)
os.write(to_child, b".")
print((before + os.read(from_child, 1)).decode())
"""


def test_a_fork_from_before_the_stop_hears_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("01", "")
