"""Yesterday's dump beside today's home and folder: one command, and every document is as it is today."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.conftest import Installation, until
from tests.acceptance.test_erased_for_good import answers
from tests.fakes.openai_server import OpenAIServer
from worker.doctor import examine
from worker.embedded import start_services, stop_services
from worker.embedded.binaries import programs
from worker.embedded.places import account_of
from worker.reconcile import reconcile

pytestmark = pytest.mark.timeout(600)

CANARY = "zqxkorvat"
LIVE = """
select s.uri, s.state, s.filename, s.metadata - 'parent_uri', array_agg(d.content order by d.chunk_index)
from sources s left join documents d on d.source_id = s.id where s.state <> 'deleted' group by s.id order by s.uri
"""


def postgres(program: str, *arguments: str) -> None:
    command = [str(programs(account_of(os.geteuid())) / program), *arguments]
    subprocess.run(command, capture_output=True, text=True, check=True)


def test_a_restored_dump_is_brought_to_todays_truth(
    install: Callable[..., Installation], free_port: Callable[[], int], tmp_path: Path
) -> None:
    port = free_port()
    with OpenAIServer(dimensions=8) as server:
        service = install(
            openai_base_url=server.base_url,
            openai_model="m",
            openai_api_key="sk-1",
            http_port=port,
            sweep_seconds=0.2,
            ingest_concurrency=1,
            ocr_concurrency=1,
        )
        drop = service.drop
        for name in ("same", "changes", "moves", "goes", f"{CANARY}-erased", f"{CANARY}-kept-out"):
            (drop / f"{name}.md").write_text(f"# {name}\n\nThis is {name} of yesterday.\n")
        service.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:

            def text(uri: str, content: str, **fields: Any) -> dict[str, Any]:
                answer = client.post("/ingest/text", json={"uri": uri, "content": content, **fields})
                assert answer.status_code == 202, answer.text
                found: dict[str, Any] = answer.json()["sources"][0]
                return found

            until(lambda: answers(client), "the HTTP service")
            for uri in ("crm:same", "crm:changes", "crm:goes", f"crm:{CANARY}"):
                text(uri, f"This is {uri} of yesterday.")
            service.settled(10)
            file = tmp_path / "gristmill.dump"
            postgres("pg_dump", "--format=custom", f"--file={file}", service.services().database_url)

            (drop / "changes.md").write_text("# changes\n\nThis is changes of today, and longer.\n")
            (drop / "moves.md").rename(drop / "moved.md")
            (drop / "goes.md").unlink()
            (drop / "new.md").write_text("This is new today.\n")
            (drop / f"{CANARY}-erased.md").unlink()
            text("crm:changes", "This is crm:changes of today.", metadata={"day": "today"})
            new = text("crm:new", "This is crm:new of today.", title="New")
            upload = {"file": ("report.md", b"# Report\n\nUploaded today, without a uri.\n")}
            sent = client.post("/ingest/file", files=upload).json()["sources"][0]
            assert client.delete("/sources", params={"uri": "crm:goes"}).status_code == 200
            until(lambda: service.states().get("new.md") == "done", "the new file")
            until(lambda: service.states().get("goes.md") == "deleted", "the deletion")
            until(lambda: "moved.md" in service.states(), "the rename")
            until(lambda: service.rows("select from documents where content ~ 'today, and longer'"), "the edit")
            for name in (f"{CANARY}-erased.md", f"{CANARY}-kept-out.md", f"crm:{CANARY}"):
                [(number,)] = service.rows("select id from sources where right(uri, length(%s)) = %s", name, name)
                asked = {"erase": "true", "keep_out": str("kept-out" in name).lower()}
                answer = client.delete(f"/sources/{number}", params=asked)
                assert answer.status_code == 200 and answer.json()["counts"]["sources"] == 1, answer.text
            states = service.settled(10)
            assert states.keys() == {
                "same.md", "changes.md", "moved.md", "goes.md", "new.md", "crm:same", "crm:changes", "crm:goes",
                "crm:new", sent["uri"],
            }  # fmt: skip
            truth = service.rows(LIVE)
            assert len(truth) == 8 and {row[1] for row in truth} == {"done"}
        assert service.stop() == 0

        url = start_services(service.settings).database_url
        postgres("pg_restore", "--clean", "--if-exists", "--single-transaction", f"--dbname={url}", str(file))
        assert len(service.rows(LIVE)) == 10, "it is yesterday"
        assert service.rows(f"select count(*) from documents where content ~ '{CANARY}'")[0][0] > 0
        [check] = [one for one in examine(service.settings, quick=True) if one.name == "history"]
        assert check.ok is False and "3 erasures" in check.found and check.remedy == "run: gristmill reconcile"
        service.connection().close()
        stop_services(service.settings)

        done = service.run("reconcile", "--json")  # nothing runs: it starts the database for itself
        assert done.returncode == 0, done.stdout + done.stderr
        report = json.loads(done.stdout)
        expected = {"files_new": 1, "files_changed": 1, "files_renamed": 1, "sent_new": 2, "sent_again": 1}
        expected |= {"erasures_put_back": 3, "erased_again": 3, "kept_out_again": 1, "deleted_again": 1}
        expected |= {"files_gone": 1}
        assert report["restored"] and report["needs_a_person"] == []
        assert {kind: report["done"].get(kind, 0) for kind in expected} == expected

        service.start()
        until(lambda: service.rows(LIVE) == truth, "today's truth")
        assert service.rows("select id from sources where uri = 'crm:new'") == [(new["id"],)]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
            until(lambda: answers(client), "the HTTP service")
            assert client.get(f"/sources/{sent['id']}").json()["uri"] == sent["uri"]
        assert service.rows(f"select count(*) from documents where content ~ '{CANARY}'") == [(0,)]
        assert service.rows(f"select count(*) from sources where uri ~ '{CANARY}'") == [(0,)]
        assert not any(CANARY in path.read_text() for path in (service.home / "sent").rglob("*.json"))
        again = reconcile(service.settings, service.connection())
        assert (again.done, again.troubles, again.restored) == ({}, [], False)
        until(lambda: service.rows(LIVE) == truth, "today's truth, as it was before")
        assert service.stop() == 0
