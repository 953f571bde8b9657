"""A word that must be forgotten, over a whole installation: looked for in the database, the home and the answers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from email.message import EmailMessage
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.acceptance.conftest import Installation, until
from worker.embedded.binaries import programs
from worker.embedded.places import account_of

pytestmark = pytest.mark.timeout(600)

CANARY = "zqxkorvat"
SAME = "# Pumps\n\nTwo documents have these very bytes, and one of them stays.\n"
PARAGRAPH = "This paragraph about valves stands in two documents, word for word. " * 4


def holding(folder: Path, *without: Path) -> list[Path]:
    """Files below a folder that hold the word, by name or content."""
    found = []
    for place, _, names in os.walk(folder):
        for path in map(Path(place).joinpath, names):
            if path.is_file() and not any(path.is_relative_to(one) for one in without):
                with suppress(FileNotFoundError):  # files come and go: the service runs
                    content = path.read_bytes()
                    if CANARY in path.name.lower() or CANARY.encode() in content.lower():
                        found.append(path)
    return found


def dump(service: Installation) -> str:
    """The whole database as plain text, in lower case."""
    command = [programs(account_of(os.geteuid())) / "pg_dump", service.services().database_url]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.lower()


def answers(client: httpx.Client) -> bool:
    """Whether the HTTP service is there."""
    try:
        return client.get("/sources").status_code == 200
    except httpx.TransportError:
        return False


def times(text: str) -> int:
    return text.count(CANARY) + text.count(CANARY.encode().hex())


def test_what_is_erased_is_nowhere_and_its_neighbours_are_where_they_were(
    install: Callable[..., Installation], free_port: Callable[[], int], tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    port = free_port()
    service = install(
        http_port=port,
        syncs=json.dumps({"notes": {"type": "folder", "path": str(notes)}}),
        fetch_allow='["127.0.0.1"]',
        sweep_seconds=0.5,
    )
    person = service.drop / f"{CANARY}.md"
    person.write_text(f"# Valves\n\n{PARAGRAPH}\n\n# About {CANARY}\n\n{(CANARY + ' was here. ') * 60}\n")
    copy = service.drop / f"{CANARY}-copy.md"
    copy.write_text(SAME)
    (service.drop / "paragraph.md").write_text(f"# Valves\n\n{PARAGRAPH}\n")
    (notes / f"{CANARY}-note.md").write_text(f"A note about {CANARY}.\n")
    (notes / "note.md").write_text("A note about something else.\n")
    service.start()

    mail = EmailMessage()
    mail["Subject"] = f"About {CANARY}"
    mail.set_content(f"{CANARY} wrote.")
    mail.add_attachment(f"Attached by {CANARY}.\n", filename=f"{CANARY}.txt")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:

        def send(uri: str, name: str, content: bytes, **fields: str) -> int:
            answer = client.post(
                "/ingest/file",
                files={"file": (name, content)},
                data={"uri": uri, **fields},
                headers={"Idempotency-Key": f"sent {uri}"},
            )
            assert answer.status_code == 202, answer.text
            return int(answer.json()["sources"][0]["id"])

        until(lambda: answers(client), "the HTTP service")
        facts = {"metadata": json.dumps({"person": CANARY}), "callback_url": f"http://127.0.0.1:{free_port()}/{CANARY}"}
        sent = send(f"crm:{CANARY}/mail", f"{CANARY}.eml", mail.as_bytes(), **facts)
        send(f"crm:{CANARY}/same", "same.md", SAME.encode())
        send("crm:neighbour/kept", "same.md", SAME.encode())
        assert service.run("sync", "notes").returncode == 0
        states = service.settled(9)
        assert set(states.values()) == {"done"}
        until(lambda: service.rows("select from callbacks where error is not null"), "the callback to fail")
        service.rows("select from refresh_statistics()")
        service.connection().execute("vacuum (analyze)")
        assert times(dump(service)) > 50
        assert len(holding(service.home / "spool")) == 2

        targets = [str(person), str(copy), str(notes / f"{CANARY}-note.md"), f"crm:{CANARY}/same"]
        refused = service.run("erase", *targets, "--yes")
        assert refused.returncode == 1 and "would come back" in refused.stderr
        assert service.run("erase", *targets, "--keep-out").returncode == 1, "it was not confirmed"
        assert client.delete(f"/sources/{sent}", params={"erase": "true"}).json()["counts"]["sources"] == 2
        answer = service.answer("erase", *targets, "--keep-out", "--yes")
        assert [receipt["counts"]["sources"] for receipt in answer["erased"]] == [1, 1, 1, 1]
        assert (answer["unknown"], answer["index"]["not_vacuumed"]) == (0, [])
        assert CANARY not in json.dumps(answer)
        until(lambda: service.rows("select where not exists (select from erasures where finished_at is null)"), "all")

        person.write_text(f"{CANARY} again, changed.\n")
        (notes / f"{CANARY}-note.md").write_text(f"{CANARY} again, changed.\n")
        (service.drop / "later.md").write_text("A document that comes later.\n")
        until(lambda: service.states().get("later.md") == "done", "a later document")
        until(lambda: "is kept out" in service.log.read_text(), "the watcher to refuse the changed file")
        assert service.run("sync", "notes").returncode == 0

        assert times(dump(service)) == 0
        data = Path(service.rows("show data_directory")[0][0])
        assert holding(service.home, data) == []
        assert service.states() == {
            "paragraph.md": "done", "note.md": "done", "kept": "done", "later.md": "done",
        }  # fmt: skip
        for question, uri in (
            ("paragraph about valves", (service.drop / "paragraph.md").as_uri()),
            ("very bytes", "crm:neighbour/kept"),
        ):
            assert service.answer("search", question)[0]["uri"] == uri
        hits = service.answer("search", CANARY)
        assert not any(CANARY in hit["content"] for hit in hits)
    assert CANARY in service.log.read_text(), "logs are not erased, and the documentation says so"

    # Plain vacuum frees space and does not overwrite it. What rewrites the tables does, but for the WAL.
    admin = service.connection()
    database = service.rows("select oid::text from pg_database where datname = current_database()")[0][0]
    admin.execute("checkpoint")
    print("files of Postgres that hold it after the erasure:", len(holding(data)))
    with psycopg.connect(service.services().database_url, autocommit=True) as fresh:
        fresh.execute("vacuum (full, analyze)")
        fresh.execute("checkpoint")
    assert holding(data / "base" / database) == []
    print("after vacuum full:", sorted({path.parent.name for path in holding(data)}))
