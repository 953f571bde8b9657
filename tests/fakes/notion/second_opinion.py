"""Another fake of Notion, written by others: what the `backlot` package serves, as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.fakes.ports import reserved_port
from worker.process import wait_for

_QUIET = {"BACKLOT_TELEMETRY": "0", "DO_NOT_TRACK": "1"}


class Backlot(NamedTuple):
    """Where it listens, what lets a client in, and what it said."""

    base_url: str
    token: str


@contextmanager
def backlot_server(records: Sequence[Mapping[str, Any]] = ()) -> Iterator[Backlot]:
    """Serve on loopback until the end of the `with`, without telemetry; takes 5 to 15 s to be ready.

    Args:
        records: the corpus, in backlot's own form (`source_type`, `doc_id`, `title`, `content` and so on); the one
            that comes with the package unless given: 9 pages of which one is a database with 4 rows.

    Yields:
        Backlot: `base_url` and `token` for a Notion client, which sees everything.
    """
    with tempfile.TemporaryDirectory(prefix="backlot-") as folder, reserved_port() as port:
        home = Path(folder)
        # Nothing of the machine's own settings, and nowhere to find a proxy.
        environment = {**_QUIET, "HOME": folder, "PATH": os.environ.get("PATH", ""), "NO_PROXY": "*"}
        program = [sys.executable, "-m", "backlot"]
        corpus = ["--bundled"]
        if records:
            written = home / "corpus.jsonl"
            written.write_text("".join(f"{_json(record)}\n" for record in records))
            corpus = [str(written)]
        data = ["--data-dir", str(home / "data")]
        subprocess.run(
            [*program, "import", *corpus, *data], env=environment, check=True, capture_output=True, timeout=120
        )
        serve = ["serve", "--disable-telemetry", "--port", str(port), "--log-level", "warning", *data]
        with (home / "log").open("wb") as log, httpx.Client(trust_env=False, timeout=5) as client:
            process = subprocess.Popen([*program, *serve], env=environment, stdout=log, stderr=log)
            try:
                found = Backlot(f"http://127.0.0.1:{port}/notion", "admin-service-token")
                ready = wait_for(lambda: process.poll() is not None or _answers(client, found), 120)
                assert ready, "not ready in 120 s"
                assert process.poll() is None, (home / "log").read_text()
                yield found
            finally:
                process.terminate()
                process.wait(20)


def _json(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False)


def _answers(client: httpx.Client, found: Backlot) -> bool:
    headers = {"Authorization": f"Bearer {found.token}", "Notion-Version": "2025-09-03"}
    try:
        return client.get(f"{found.base_url}/v1/users/me", headers=headers).status_code == 200
    except httpx.TransportError:
        return False
