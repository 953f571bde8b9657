"""Drop a file in a folder, find it a moment later: the promises a user relies on, on the real thing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fpdf import FPDF
from pypdf import PdfReader, PdfWriter

from tests.acceptance.conftest import Installation, is_dead, until
from tests.fakes.openai_server import OpenAIServer

# Whole installations, beside other tests: the deadlines of a test together may be longer than the usual limit.
pytestmark = pytest.mark.timeout(600)

Install = Callable[..., Installation]

WORDS = [
    "pump",
    "valve",
    "motor",
    "seal",
    "gauge",
    "pressure",
    "inlet",
    "housing",
    "bearing",
    "filter",
    "tank",
    "hose",
    "relay",
    "panel",
    "alarm",
    "sensor",
    "cable",
    "switch",
    "winter",
    "summer",
    "shift",
    "report",
    "office",
    "invoice",
    "customer",
    "contract",
    "delivery",
    "repair",
    "service",
    "engineer",
]


def paragraph(seed: int, words: int = 60) -> str:
    """Deterministic prose of so many words."""
    text = " ".join(WORDS[(seed * 7 + i * (1 + seed % 5)) % len(WORDS)] for i in range(words))
    return f"Note {seed} says that {text}."


def pdf(path: Path, text: str, *, pages: int = 1) -> None:
    """A small text PDF."""
    document = FPDF()
    document.set_font("helvetica", size=12)
    for _ in range(pages):
        document.add_page()
        document.multi_cell(0, 8, text)
    document.output(str(path))


def test_files_come_and_go(install: Install) -> None:
    service = install()
    service.start()
    (service.drop / "a.txt").write_text("Error E-4012 means that the inlet is blocked.")
    (service.drop / "b.md").write_text("# Opening hours\n\nWe are open from nine to five.\n")
    (service.drop / "sub").mkdir()
    (service.drop / "sub" / "c.txt").write_text("Le contrat prend fin selon l'article L. 121-3 du code.")
    assert set(service.settled(3).values()) == {"done"}
    hits = service.answer("search", "what does E4012 mean?")
    assert hits[0]["uri"] == (service.drop / "a.txt").as_uri()
    assert set(hits[0]) >= {"id", "uri", "content", "metadata", "score", "ranks"}
    assert hits[0]["ranks"]["identifier"] == 1

    before = service.rows("select d.id from documents d join sources s on s.id = source_id where uri like %s", "%a.txt")
    (service.drop / "a.txt").rename(service.drop / "renamed.txt")
    until(lambda: "renamed.txt" in service.states(), "the rename to be seen")
    after = service.rows(
        "select d.id from documents d join sources s on s.id = source_id where uri like %s", "%renamed%"
    )
    assert before == after

    (service.drop / "b.md").unlink()
    until(lambda: service.states()["b.md"] == "deleted", "the deletion to be seen")
    assert service.rows("select count(*) from documents where metadata->>'filename' = 'b.md'") == [(0,)]

    (service.drop / "renamed.txt").write_text("Error E-5000 means that the tank is empty.")
    until(lambda: service.answer("search", "E-5000", "--mode", "keyword"), "the edit to be searchable")
    assert not any("E-4012" in hit["content"] for hit in service.answer("search", "E-4012"))
    assert service.answer("status")["sources"]["done"] == 2
    assert service.stop() == 0


def test_nothing_is_lost_when_everything_is_killed(install: Install) -> None:
    service = install(lease_seconds=3, sweep_seconds=0.5, max_attempts=10)
    service.start()
    names = [f"file-{number:02}.txt" for number in range(50)]
    texts = {name: "\n\n".join(paragraph(at * 13 + p, 150) for p in range(6)) for at, name in enumerate(names)}

    def feed() -> None:
        for at, (name, text) in enumerate(texts.items()):
            (service.drop / name).write_text(f"{text}\n\nThe code of this file is ZX-{at:04}.\n")

    def done() -> int:
        return sum(state == "done" for state in service.states().values())

    def kill(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        until(lambda: is_dead(pid), f"{pid} to die")

    feeder = threading.Thread(target=feed)
    feeder.start()
    until(done, "the first document")

    pool = service.main("-Q ingest").children()
    kill(pool[0].pid)
    until(lambda: done() > 5, "work to go on after a pool process was killed")

    kill(service.main("-Q ingest").pid)
    until(lambda: done() > 10, "work to go on after the worker was killed")

    valkey = next(process for process in psutil.process_iter() if is_broker(process, service.home))
    kill(valkey.pid)
    until(
        lambda: any(
            is_broker(process, service.home) and process.pid != valkey.pid for process in psutil.process_iter()
        ),
        "the broker to be started again",
    )

    assert service.process is not None
    kill(service.process.pid)
    service.process.wait()
    service.start()
    feeder.join()

    states = service.settled(50, seconds=240)
    assert states == dict.fromkeys(names, "done")
    duplicates = service.rows(
        "select source_id, chunk_index from documents group by 1, 2 having count(*) > 1"
        " union all select source_id, min(chunk_index) from documents group by source_id, content having count(*) > 1"
    )
    assert duplicates == []
    torn = service.rows(
        "select s.uri from sources s where chunks <> (select count(*) from documents where source_id = s.id)"
    )
    assert torn == []
    codes = service.rows("select count(distinct substring(content from 'ZX-\\d{4}')) from documents")
    assert codes == [(50,)]
    assert service.stop() == 0


def is_broker(process: psutil.Process, home: Path) -> bool:
    """Whether this is the embedded broker of that home."""
    try:
        return "valkey" in process.name() and str(home) in " ".join([*process.cmdline(), process.cwd()])
    except psutil.Error:
        return False


def test_unchanged_costs_nothing_and_an_edit_costs_its_neighbourhood(install: Install) -> None:
    with OpenAIServer(dimensions=64) as provider:
        service = install(openai_base_url=provider.base_url, openai_api_key="test", openai_model="fake")
        service.start()
        file = service.drop / "long.md"
        paragraphs = [paragraph(seed, 110) for seed in range(48)]
        file.write_text("# Manual\n\n" + "\n\n".join(paragraphs))
        service.settled(1)
        rows = "select id, chunk_index, content_hash from documents order by chunk_index"
        first = service.rows(rows)
        assert len(first) >= 40
        assert provider.texts_embedded >= len(first)

        counted = provider.texts_embedded
        for _ in range(2):
            done = service.answer("ingest", str(file), "--wait")
            assert [row["state"] for row in done] == ["done"]
        assert service.rows(rows) == first
        assert provider.texts_embedded == counted

        seen: list[tuple[int, bool, bool]] = []
        stop = threading.Event()

        def read() -> None:
            from worker.database import open_database

            with open_database(service.settings) as connection:
                while not stop.is_set():
                    row = connection.execute(
                        "select count(*), bool_or(content like '%Note 20 says%'), bool_or(content like '%rewritten%')"
                        " from documents"
                    ).fetchone()
                    assert row is not None
                    seen.append(row)

        reader = threading.Thread(target=read)
        reader.start()
        until(lambda: len(seen) > 10, "the reader to have looked")
        paragraphs[20] = "This paragraph was rewritten. " + paragraph(99, 80)
        file.write_text("# Manual\n\n" + "\n\n".join(paragraphs))
        until(lambda: seen[-1][2], "the edit")
        stop.set()
        reader.join()
        assert 1 <= provider.texts_embedded - counted <= 2
        kept = {row[0] for row in first} & {row[0] for row in service.rows(rows)}
        assert len(kept) >= len(first) - 2
        assert all(old != new for _, old, new in seen), "always exactly one version"


def test_rows_wait_for_an_embedder_that_is_down(install: Install) -> None:
    with OpenAIServer(dimensions=32) as provider:
        service = install(
            **provider.settings,
            backoff_seconds=0.5,
            backoff_cap_seconds=1,
            sweep_seconds=0.5,
        )
        service.start()
        provider.stop()
        (service.drop / "a.txt").write_text("The gauge is behind the panel.")
        until(
            lambda: service.rows("select 1 from sources where state = 'pending' and error_code is not null"),
            "the outage to be recorded",
        )
        assert service.rows("select count(*) from documents") == [(0,)]
        assert service.rows("select attempts from sources")[0][0] <= 1
        provider.start()
        assert service.settled(1) == {"a.txt": "done"}
        assert service.rows("select error_code from sources") == [(None,)]


def test_bad_input_is_told_and_delays_nobody(install: Install, tmp_path: Path) -> None:
    service = install(max_pages=50)
    service.start()
    plain = tmp_path / "plain.pdf"
    pdf(plain, "Pressure report. The valve E-77 was replaced.")

    writer = PdfWriter(clone_from=PdfReader(plain))
    writer.encrypt("secret", algorithm="AES-256")
    writer.write(service.drop / "encrypted.pdf")
    (service.drop / "truncated.pdf").write_bytes(plain.read_bytes()[:200])
    (service.drop / "zero.txt").touch()
    (service.drop / "pdf-named.docx").write_bytes(plain.read_bytes())
    pdf(service.drop / "bomb.pdf", "x", pages=60)
    (service.drop / "junk.bin").write_bytes(bytes(range(256)) * 64)
    (service.drop / "good.txt").write_text("A good neighbour with code GN-1.")

    until(lambda: service.states().get("good.txt") == "done", "the neighbour")
    for name in ("zero.txt",):
        service.run("ingest", str(service.drop / name))  # not waiting for it to get content
    service.settled(7)
    found = {row["uri"].rsplit("/", 1)[-1]: (row["state"], row["error_code"]) for row in service.answer("sources")}
    assert found == {
        "encrypted.pdf": ("failed", "encrypted"),
        "truncated.pdf": ("failed", "corrupt"),
        "zero.txt": ("failed", "empty_file"),
        "pdf-named.docx": ("done", None),
        "bomb.pdf": ("failed", "too_many_pages"),
        "junk.bin": ("failed", "unsupported_format"),
        "good.txt": ("done", None),
    }
    failed = service.answer("sources", "--state", "failed")
    assert len(failed) == 5
    for row in failed:
        assert row["error_cause"], row
        assert row["error_remedy"], row
    assert "encrypted.pdf" in service.run("sources", "--state", "failed").stdout.replace("\n", "")

    (service.drop / "encrypted.pdf").write_bytes(plain.read_bytes())
    until(lambda: service.states()["encrypted.pdf"] == "done", "the mended file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every file")
def test_a_file_that_may_not_be_read(install: Install) -> None:
    service = install()
    service.start()
    secret = service.drop / "secret.txt"
    secret.write_text("x")
    secret.chmod(0)
    assert service.settled(1) == {"secret.txt": "failed"}
    assert service.answer("sources")[0]["error_code"] == "unreadable"


CLIENT = """
import json, sys
from celery import Celery
url = sys.argv[1]
app = Celery(broker=url, backend=url)
hits = app.send_task("gristmill.search", ["ZX-9", 3]).get(timeout=90)
noted = app.send_task("gristmill.ingest", kwargs={"path": sys.argv[2], "metadata": {"team": "blue"}}).get(timeout=90)
print(json.dumps([hits, noted]))
"""


def test_any_celery_client_may_ask(running: Installation, tmp_path: Path) -> None:
    (running.drop / "a.txt").write_text("The code ZX-9 opens the gate.")
    running.settled(1)
    outside = tmp_path / "outside.txt"
    outside.write_text("The code ZX-10 closes the gate.")
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, running.run("url", "--broker").stdout.strip(), str(outside)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    hits, noted = json.loads(done.stdout)
    assert [hit["content"] for hit in hits] == ["The code ZX-9 opens the gate."]
    running.settled(2)
    assert running.rows("select metadata->>'team' from documents where source_id = %s", noted["source_id"]) == [
        ("blue",)
    ]


def test_a_second_up_on_the_same_home_says_so(running: Installation) -> None:
    assert running.process is not None
    second = running.run("up")
    assert second.returncode == 1
    assert str(running.process.pid) in second.stderr
    assert str(running.home) in second.stderr.replace("\n", "")


def test_doctor_and_url(install: Install, running: Installation) -> None:
    assert install().answer("doctor")["ok"] is False, "nothing runs there"
    report = running.answer("doctor")
    names = {check["name"]: check for check in report["checks"]}
    assert names["schema"]["found"] == "up to date"
    assert names["embedding model"]["ok"]
    assert running.run("url").stdout.strip() == running.services().database_url


def test_an_unknown_setting_stops_the_start(install: Install) -> None:
    service = install()
    service.environment["GRISTMILL_CHUNK_TOKEN"] = "12"
    done = service.run("up")
    assert done.returncode == 1
    assert "GRISTMILL_CHUNK_TOKEN" in done.stderr
    assert "GRISTMILL_CHUNK_TOKENS" in done.stderr
