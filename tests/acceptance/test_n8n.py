"""The workflows of deploy/n8n, imported and executed by a real n8n against a running Gristmill.

n8n is looked for in the folder that N8N_INSTALL names, else in `.n8n`; `make n8n` installs it there.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fpdf import FPDF

from tests.acceptance.conftest import Installation, until
from tests.fakes.chat_server import ChatServer
from tests.fakes.ports import reserved_port
from worker.embedded import stop_services

REPOSITORY = Path(__file__).parents[2]
WORKFLOWS = REPOSITORY / "deploy" / "n8n"
KIT = REPOSITORY.parent / "shared" / "n8n-kit" / "n8nkit.py"
N8N = Path(os.environ.get("N8N_INSTALL") or REPOSITORY / ".n8n")

pytestmark = [
    pytest.mark.shared,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not KIT.is_file(), reason=f"{KIT} is not there"),
    pytest.mark.skipif(not os.access(N8N / "bin" / "n8n", os.X_OK), reason=f"n8n is not installed in {N8N}: make n8n"),
]

CALLER = {"X-Webhook-Key": "a-caller-of-the-tests"}


@functools.cache
def kit() -> ModuleType:
    """The module that drives n8n."""
    spec = importlib.util.spec_from_file_location("n8nkit", KIT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def workflow(name: str) -> Any:
    """A workflow as it is shipped."""
    return json.loads((WORKFLOWS / f"{name}.json").read_text(encoding="utf-8"))


def node(flow: Any, name: str) -> Any:
    """A node of a workflow."""
    return next(one for one in flow["nodes"] if one["name"] == name)


def set_field(flow: Any, where: str, field: str, value: Any) -> None:
    """Set a field of a Set node, as a user does in the editor."""
    fields = node(flow, where)["parameters"]["assignments"]["assignments"]
    next(one for one in fields if one["name"] == field)["value"] = value


class Bench:
    """A Gristmill, an n8n with the credentials for it, and a language model."""

    def __init__(self, gristmill: Installation, n8n: Any, chat: ChatServer, key: str) -> None:
        self.gristmill = gristmill
        self.n8n = n8n
        self.chat = chat
        self.address = f"http://127.0.0.1:{gristmill.settings.http_port}"
        self.client = httpx.Client(base_url=self.address, headers={"X-API-Key": key}, timeout=60, trust_env=False)

    def put(self, name: str, change: Callable[[Any], None] = lambda flow: None) -> str:
        """Import a workflow with the one change that every user makes, and those of a test; its id."""
        flow = workflow(name)
        if any(one["name"] == "Settings" for one in flow["nodes"]):
            set_field(flow, "Settings", "gristmill", self.address)
        change(flow)
        file = self.n8n.home / f"{name}.json"
        file.write_text(json.dumps(flow), encoding="utf-8")
        found: str = self.n8n.import_workflow(file)[0]
        return found

    def run(self, identity: str) -> Callable[[str], list[Any]]:
        """Execute a workflow from its manual trigger; gives the items that a node put out."""
        done = self.n8n.execute_raw(identity)
        result = done["data"]["resultData"]
        assert not result.get("error"), (result.get("lastNodeExecuted"), result["error"])

        def items(name: str) -> list[Any]:
            return [item["json"] for item in self.n8n.node_items(done, name)]

        return items

    def passages(self, pattern: str) -> list[tuple[Any, ...]]:
        """The rows whose content is like a pattern: content, metadata and source."""
        return self.gristmill.rows(
            "select content, metadata, source_id from documents where content like %s order by id", pattern
        )


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """One of each for all tests of this module; they use documents of their own."""
    with ExitStack() as stack:
        monkeypatch = stack.enter_context(pytest.MonkeyPatch.context())
        for name in [name for name in os.environ if name.startswith(("GRISTMILL_", "OPENAI_"))]:
            monkeypatch.delenv(name)
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gm-", ignore_cleanup_errors=True)))
        place.chmod(0o711)  # as root, Postgres runs as another user and has to get through
        (place / "notes").mkdir()
        gristmill = Installation(
            place,
            http_port=stack.enter_context(reserved_port()),
            embedded_tcp_port=stack.enter_context(reserved_port()),
            embedder="use",
            require_key="always",
            syncs=json.dumps({"notes": {"type": "folder", "path": str(place / "notes")}}),
        )
        stack.callback(stop_services, gristmill.settings)
        gristmill.start()
        stack.callback(gristmill.stop)
        chat = stack.enter_context(ChatServer())

        added = gristmill.run("keys", "add", "n8n", "--scope", "ingest", "--scope", "search", "--json")
        assert added.returncode == 0, added.stderr
        key = json.loads(added.stdout)["key"]

        n8n = kit().N8n(N8N, place / "n8n", log=str(place / "n8n.log"))
        credentials = place / "n8n" / "credentials.json"
        credentials.write_text(json.dumps(credentials_for(gristmill, chat, key)))
        n8n.import_credentials(credentials)

        found = Bench(gristmill, n8n, chat, key)
        stack.enter_context(found.client)
        until(lambda: is_ready(found.client), "the HTTP service to be ready")
        yield found


def is_ready(client: httpx.Client) -> bool:
    """Whether the HTTP service says that it can do its work."""
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def credentials_for(gristmill: Installation, chat: ChatServer, key: str) -> list[Any]:
    """The shipped example of credentials, filled in, under ids of this n8n's own: the workflows find them by name."""
    address = f"http://127.0.0.1:{gristmill.settings.http_port}"
    database = urlsplit(gristmill.answer("url")["database_url_tcp"])
    values = {
        "Gristmill key": {"value": key},
        "Webhook callers": {"name": next(iter(CALLER)), "value": next(iter(CALLER.values()))},
        "Gristmill embeddings": {"apiKey": key, "url": f"{address}/v1"},
        "Gristmill as Supabase": {"host": address, "serviceRole": key},
        "Gristmill Postgres": {
            "host": database.hostname,
            "port": database.port,
            "database": database.path.lstrip("/"),
            "user": database.username,
            "password": database.password,
        },
        "Notion": {},
        "Language model": {"apiKey": "any", "url": chat.base_url},
    }
    credentials = json.loads((WORKFLOWS / "credentials" / "example.json").read_text(encoding="utf-8"))
    assert {one["name"] for one in credentials} == set(values)
    return [
        {**one, "id": f"credential{number:06}", "data": {**one["data"], **values[one["name"]]}}
        for number, one in enumerate(credentials)
    ]


def error_codes() -> bytes:
    """A PDF of three pages; in the middle of the second stands E-4012, and each is longer than a chunk."""
    document = FPDF()
    document.set_font("helvetica", size=11)
    for page in range(1, 4):
        document.add_page()
        document.cell(
            0, 12, f"{page} {('Care', 'Error codes', 'Spare parts')[page - 1]}", new_x="LMARGIN", new_y="NEXT"
        )
        for line in range(12):
            if (page, line) == (2, 8):
                said = "Error E-4012 means that the pump has run dry. Fill the casing."
            else:
                said = f"Line {line} of page {page} tells how seal {page}{line} is kept clean and dry in winter."
            document.multi_cell(0, 7, said, new_x="LMARGIN", new_y="NEXT")
            document.ln(7)
    return bytes(document.output())


def test_a_file_is_sent_twice_and_a_question_is_answered_with_its_page(bench: Bench) -> None:
    manual = error_codes()
    for name in ("ingest-file", "answer"):
        bench.n8n.publish(bench.put(name))
    with bench.n8n.serve() as base, httpx.Client(base_url=f"{base}/webhook", timeout=120, trust_env=False) as hooks:
        for path in ("gristmill-ingest", "gristmill-answer"):
            bench.n8n.wait_webhook(base, path)

        refused = hooks.post("/gristmill-ingest", files={"data": ("codes.pdf", manual)})
        assert refused.status_code == 403
        nothing = hooks.post("/gristmill-ingest", json={}, headers=CALLER)
        assert (nothing.status_code, nothing.json()["problems"][0]["title"]) == (400, "No file")

        files = {"data": ("résumé codes.pdf", manual, "application/pdf")}
        first = hooks.post("/gristmill-ingest", files=files, headers=CALLER)
        assert first.status_code == 200, first.text
        assert first.json()["problems"] == []
        [source] = first.json()["sources"]
        assert (source["state"], source["unchanged"], source["version"]) == ("done", False, 1)
        [(content, metadata, owner)] = bench.passages("%E-4012%")
        assert "run dry" in content
        assert (metadata["filename"], metadata["page"], owner) == ("résumé codes.pdf", 2, source["id"])

        again = hooks.post("/gristmill-ingest", files=files, headers=CALLER)
        assert (again.status_code, again.json()["sources"]) == (200, [{**source, "unchanged": True}])
        assert len(bench.passages("%E-4012%")) == 1

        # Two files under odd names, and a body: all are taken, and what is known already is not taken twice.
        notes = [("doc[]", (name, text.encode(), "text/plain")) for name, text in
                 (("a.txt", "Otters swim at noon."), ("b.txt", "Herons wade at dusk."))]  # fmt: skip
        pair = hooks.post("/gristmill-ingest", files=notes, headers=CALLER).json()["sources"]
        assert [one["state"] for one in pair] == ["done", "done"]
        assert len({one["id"] for one in pair}) == 2
        body, same = (
            hooks.post(
                "/gristmill-ingest",
                content=b"The weir is opened in March.",
                params={"filename": "weir.txt"},
                headers={**CALLER, "Content-Type": "application/octet-stream"},
            ).json()["sources"][0]
            for _ in range(2)
        )
        assert (body["state"], body["unchanged"], same["id"], same["unchanged"]) == ("done", False, body["id"], True)
        [(_, metadata, _)] = bench.passages("%weir%")
        assert metadata["filename"] == "weir.txt"

        answered = hooks.post("/gristmill-answer", json={"question": "what does E4012 mean?"}, headers=CALLER)
        assert answered.status_code == 200, answered.text
        assert "Error E-4012 means that the pump has run dry." in answered.json()["answer"]
        [cited] = answered.json()["sources"]
        assert (cited["number"], cited["file"], cited["page"]) == (1, "résumé codes.pdf", 2)
        assert cited["uri"] == source["uri"]
        system, user = (message["content"] for message in bench.chat.requests[-1]["messages"])
        assert "[1] résumé codes.pdf, page 2\n" in user
        assert user.endswith("Question: what does E4012 mean?")
        assert "from the passages alone" in system

        empty = hooks.post("/gristmill-answer", json={"question": ""}, headers=CALLER)
        assert (empty.status_code, len(bench.chat.requests)) == (422, 1)


def test_a_listing_is_mirrored(bench: Bench) -> None:
    def listing(*files: dict[str, Any]) -> Callable[[Any], None]:
        def change(flow: Any) -> None:
            items = [{"json": {"trashed": False, **file}} for file in files]
            node(flow, "Listing")["parameters"]["jsCode"] = f"return {json.dumps(items)};"

        return change

    def states(items: list[Any]) -> dict[str, Any]:
        return {one["uri"]: (one["state"], one["unchanged"]) for item in items for one in item["sources"]}

    def count() -> int:
        return len(bench.gristmill.rows("select from documents where metadata->>'uri' like %s", "drive:%"))

    ran = bench.run(bench.put("ingest-trigger"))
    assert states(ran("Ingest")) == {"drive:1a2B": ("done", False), "drive:3c4D": ("done", False)}
    assert count() == 2

    edited = {"id": "1a2B", "name": "opening-hours.txt", "text": "The workshop opens at eight."}
    kept = {"id": "3c4D", "name": "returns.txt", "text": "Goods may be returned within thirty days."}
    ran = bench.run(bench.put("ingest-trigger", listing(edited, kept)))
    assert states(ran("Ingest")) == {"drive:1a2B": ("done", False), "drive:3c4D": ("done", True)}
    assert count() == 2
    assert len(bench.passages("%opens at eight%")) == 1
    assert bench.passages("%opens at seven%") == []

    without = bench.put("ingest-trigger", listing({**edited, "trashed": True}, kept))
    for _ in range(2):  # a bin shows the same file for weeks
        bench.run(without)
        assert count() == 1
        assert bench.passages("%The workshop%") == []


def test_a_sync_is_run_and_its_failure_is_one_here(bench: Bench) -> None:
    def sync(name: str) -> Callable[[Any], None]:
        return lambda flow: set_field(flow, "Settings", "sync", name)

    notes = bench.gristmill.home.parent / "notes"
    (notes / "swifts.txt").write_text("Swifts nest under the eaves of the boathouse.")
    [summary] = bench.run(bench.put("sync", sync("notes")))("Summary")
    assert (summary["name"], summary["ended"], summary["documents"]) == ("notes", True, 1)
    assert summary["counts"]["new"] == 1
    until(lambda: bench.passages("%Swifts nest%"), "the note to be searchable")

    notes.rename(notes.with_name("elsewhere"))
    for name, said in (("notes", "is not there → mount or create it"), ("nothing", "there is no such sync → GET")):
        result = bench.n8n.execute_raw(bench.put("sync", sync(name)))["data"]["resultData"]
        assert result["lastNodeExecuted"] == "Fail"
        assert said in result["error"]["message"]


def test_the_postgres_node_searches_with_a_vector_of_ours(bench: Bench) -> None:
    answer = bench.client.post(
        "/ingest/text",
        json={
            "wait": 60,
            "content": "Le tarif, dit ZX-7731, vaut pour l'hiver.",
            "uri": "test:tariff",
            "metadata": {"desk": "four"},
        },
    )
    assert answer.json()["sources"][0]["state"] == "done", answer.text

    def ask(flow: Any) -> None:
        set_field(flow, "Question", "question", "what is zx 7731, and when, who's asking?")

    found = bench.run(bench.put("postgres-hybrid", ask))("Search")
    assert found[0]["content"] == "Le tarif, dit ZX-7731, vaut pour l'hiver."
    assert (found[0]["metadata"]["uri"], found[0]["metadata"]["desk"]) == ("test:tariff", "four")


@pytest.mark.parametrize("name", ["pgvector-store", "supabase-store"])
def test_a_vector_store_node_inserts_once_and_finds(bench: Bench, name: str) -> None:
    uri = f"note:{name}"
    text = f"Striped animals may graze on the north lawn. The keeper, {name}, is Ms O'Hara."

    def change(flow: Any) -> None:
        set_field(flow, "Sample", "uri", uri)
        set_field(flow, "Sample", "text", text)

    identity = bench.put(name, change)
    for _ in range(2):
        ran = bench.run(identity)
        searches = [one for one in ("Search", "Search fused") if any(n["name"] == one for n in workflow(name)["nodes"])]
        for search in searches:
            ours = [item for item in ran(search) if item["document"]["metadata"].get("uri") == uri]
            assert [item["document"]["pageContent"] for item in ours] == [text]
        rows = bench.passages(f"%keeper, {name},%")
        assert [(row[0], row[1]["uri"], row[1]["title"], row[2]) for row in rows] == [
            (text, uri, "Grazing rules", None)
        ]
    [hit] = bench.client.post("/search", json={"query": f"who is the keeper {name}?", "k": 1}).json()["hits"]
    assert (hit["content"], hit["uri"]) == (text, uri)
