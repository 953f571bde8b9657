"""Documents found inside documents, in the ledger on a real Postgres."""

from __future__ import annotations

import hashlib
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from pipelines.types import Attachment
from tests.fakes.eight_dimensions import EightDimensions
from tests.integration.test_ledger import chunks, claimed, contents, outcome
from worker.children import Child, child_uri, spool_attachments
from worker.ingest import Ingester
from worker.ledger import Claim, Ledger
from worker.settings import Settings
from worker.spool import Spool

MAIL = "file:///drop/mail.eml"
PDF = MAIL + "#attachments/price%20list.pdf"


def child(name: str = "price list.pdf", content: bytes = b"1", *, of: str = MAIL) -> Child:
    digest = hashlib.sha256(content).hexdigest()
    return Child(child_uri(of, name), name, digest + Path(name).suffix, digest)


@pytest.fixture
def ledger(database: Connection[Any]) -> Ledger:
    return Ledger(database)


def ingest(ledger: Ledger, *children: Child, uri: str = MAIL, texts: tuple[str, ...] = ("text",)) -> Claim:
    """Work off the next due document, which must be this one."""
    claim = claimed(ledger)
    assert claim.uri == uri
    assert ledger.commit(claim, outcome(), chunks(*texts), children) is not None
    return claim


def sources(ledger: Ledger) -> dict[str, str]:
    return dict(ledger.connection.execute("select uri, state from sources order by uri").fetchall())


def test_a_child_is_a_source_below_its_parent(ledger: Ledger) -> None:
    ledger.record(MAIL, metadata={"team": "sales", "title": "Our mail"}, language="french")
    parent = ingest(ledger, child())
    claim = claimed(ledger)
    assert (claim.uri, claim.kind, claim.filename, claim.depth) == (PDF, "attachment", "price list.pdf", 1)
    assert (claim.location, claim.language) == (child().location, "french")
    assert claim.metadata == {"team": "sales", "parent_uri": MAIL, "parent_title": "Our mail"}
    assert ledger.connection.execute("select parent_id from sources where uri = %s", (PDF,)).fetchone() == (parent.id,)


def test_a_child_of_a_child_stays_below_the_outermost_uri() -> None:
    assert child_uri(PDF, "a/b#c") == PDF + "/attachments/a%2Fb%23c"


def test_the_same_bytes_leave_a_child_alone_and_others_make_it_due(ledger: Ledger) -> None:
    ledger.record(MAIL)
    ingest(ledger, child())
    ingest(ledger, uri=PDF)
    ledger.record(MAIL, force=True)
    ingest(ledger, child())
    assert ledger.claim() is None
    ledger.record(MAIL, force=True)
    ingest(ledger, child(content=b"2"))
    assert claimed(ledger).uri == PDF


def test_what_a_child_inherits_makes_it_due(ledger: Ledger) -> None:
    ledger.record(MAIL, metadata={"team": "sales"})
    ingest(ledger, child())
    ingest(ledger, uri=PDF)
    ledger.record(MAIL, metadata={"team": "service"}, force=True)
    ingest(ledger, child())
    assert claimed(ledger).metadata["team"] == "service"


def test_a_child_that_is_no_longer_inside_is_deleted(ledger: Ledger) -> None:
    ledger.record(MAIL)
    ingest(ledger, child(), child("b.txt"))
    ingest(ledger, uri=PDF, texts=("of the list",))
    ingest(ledger, uri=MAIL + "#attachments/b.txt", texts=("of b",))
    ledger.record(MAIL, force=True)
    ingest(ledger, child("b.txt"), texts=("mail",))
    assert sources(ledger) == {MAIL: "done", PDF: "deleted", MAIL + "#attachments/b.txt": "done"}
    assert sorted(contents(ledger)) == ["mail", "of b"]


def test_deleting_a_document_deletes_what_was_inside_at_any_depth(ledger: Ledger) -> None:
    ledger.record(MAIL)
    ingest(ledger, child("inner.eml"))
    inner = MAIL + "#attachments/inner.eml"
    ingest(ledger, child(of=inner), uri=inner)
    deepest = inner + "/attachments/price%20list.pdf"
    working = claimed(ledger)
    assert (working.uri, working.depth) == (deepest, 2)
    assert ledger.delete(MAIL)
    assert ledger.commit(working, outcome(), chunks("late")) is None
    assert set(sources(ledger).values()) == {"deleted"}
    assert contents(ledger) == []


def test_a_child_that_was_deleted_comes_back_with_the_next_version_of_its_parent(ledger: Ledger) -> None:
    ledger.record(MAIL)
    ingest(ledger, child())
    ingest(ledger, uri=PDF)
    assert ledger.delete(PDF)
    ledger.record(MAIL, force=True)
    ingest(ledger, child())
    assert claimed(ledger).uri == PDF


def test_a_rename_takes_children_along_without_work(ledger: Ledger) -> None:
    ledger.record(MAIL)
    ingest(ledger, child())
    ingest(ledger, uri=PDF, texts=("of the list",))
    before = ledger.connection.execute("select id from documents where content = 'of the list'").fetchone()
    new = "file:///drop/sub/post.eml"
    assert ledger.rename(MAIL, new)
    assert sources(ledger) == {new: "pending", new + "#attachments/price%20list.pdf": "done"}
    row = ledger.connection.execute(
        "select d.id, d.metadata ->> 'uri', d.metadata ->> 'parent_uri', s.metadata ->> 'parent_uri'"
        " from documents d join sources s on s.id = d.source_id where content = 'of the list'"
    ).fetchone()
    assert row is not None and before is not None
    assert row == (before[0], new + "#attachments/price%20list.pdf", new, new)


def test_a_fenced_parent_leaves_no_children(ledger: Ledger) -> None:
    ledger.record(MAIL)
    claim = claimed(ledger)
    ledger.delete(MAIL)
    assert ledger.commit(claim, outcome(), chunks("x"), [child()]) is None
    assert sources(ledger) == {MAIL: "deleted"}


def test_a_folder_does_not_know_what_is_inside_its_documents(ledger: Ledger) -> None:
    ledger.record(MAIL, fingerprint="1")
    ingest(ledger, child())
    assert ledger.known("file:///drop/") == {MAIL: "1"}


def test_attachments_move_into_the_spool(tmp_path: Path, ledger: Ledger) -> None:
    held = tmp_path / "0000.pdf"
    held.write_bytes(b"%PDF-1")
    spool = Spool(tmp_path / "spool", max_bytes=100)
    (found,) = spool_attachments(
        MAIL, [Attachment("price list.pdf", 6, "application/pdf", str(held)), Attachment("named only", 3)], spool
    )
    assert found == child(content=b"%PDF-1")
    assert found.location is not None
    assert spool.path(found.location).read_bytes() == b"%PDF-1"
    assert not held.exists()


def test_a_mail_and_what_is_inside_it_are_found_and_go_together(dsn: str, ledger: Ledger, tmp_path: Path) -> None:
    inner = EmailMessage()
    inner["Subject"] = "Old order"
    inner.set_content("The old order was for 12 gaskets.")
    mail = EmailMessage()
    mail["Subject"] = "Prices"
    mail.set_content("Dear Ada, the list is attached.")
    mail.add_attachment(b"sku,price\n8842-B,12.50\n", maintype="text", subtype="csv", filename="prices.csv")
    mail.add_attachment(inner)
    path = tmp_path / "mail.eml"
    path.write_bytes(bytes(mail))
    settings = Settings(database_url=dsn, home=tmp_path / "home")
    ingester = Ingester(settings, EightDimensions())
    try:
        ledger.record(path.as_uri())
        assert ingester.work(seconds=600) == 3
        rows = ledger.connection.execute(
            "select metadata ->> 'filename', metadata ->> 'parent_uri', content from documents order by source_id"
        ).fetchall()
        assert [(name, parent) for name, parent, _ in rows] == [
            ("mail.eml", None),
            ("prices.csv", path.as_uri()),
            ("Old order.eml", path.as_uri()),
        ]
        assert all(needle in rows[at][2] for at, needle in enumerate(("the list is", "8842-B", "12 gaskets")))
        assert ledger.delete(path.as_uri())
        assert contents(ledger) == []
    finally:
        ingester.close()


def test_a_container_without_text_of_its_own_is_done(dsn: str, ledger: Ledger, tmp_path: Path) -> None:
    mail = EmailMessage()
    mail.set_content("")
    mail.add_attachment(b"Serial number E-4012.", maintype="text", subtype="plain", filename="note.txt")
    path = tmp_path / "mail.eml"
    path.write_bytes(bytes(mail))
    ingester = Ingester(Settings(database_url=dsn, home=tmp_path / "home"), EightDimensions())
    try:
        ledger.record(path.as_uri())
        assert ingester.work(seconds=600) == 2
        assert set(sources(ledger).values()) == {"done"}
        assert "Serial number E-4012." in contents(ledger)
    finally:
        ingester.close()


def test_a_rename_of_the_parent_fences_who_works_on_a_child(ledger: Ledger) -> None:
    ledger.record(MAIL)
    ingest(ledger, child())
    claim = claimed(ledger)
    assert claim.uri == PDF
    assert ledger.rename(MAIL, "file:///drop/moved.eml")
    assert ledger.commit(claim, outcome(), chunks("by its old name")) is None
    ingest(ledger, child(of="file:///drop/moved.eml"), uri="file:///drop/moved.eml", texts=())
    ingest(ledger, uri=child_uri("file:///drop/moved.eml", "price list.pdf"), texts=("in the attachment",))
    found = ledger.connection.execute("select metadata->>'uri', content from documents").fetchall()
    assert found == [(child_uri("file:///drop/moved.eml", "price list.pdf"), "in the attachment")]


def test_a_child_that_was_deleted_before_a_rename_belongs_to_who_comes_in_its_place(ledger: Ledger) -> None:
    ledger.record(MAIL)
    ingest(ledger, child())
    ledger.record(MAIL, force=True)
    ingest(ledger, uri=PDF)
    ingest(ledger)  # it is not inside any more
    ledger.rename(MAIL, "file:///drop/old.eml")
    ingest(ledger, uri="file:///drop/old.eml")
    ledger.record(MAIL)
    parent = ingest(ledger, child())
    assert ledger.connection.execute("select parent_id from sources where uri = %s", (PDF,)).fetchone() == (parent.id,)
    assert ledger.delete("file:///drop/old.eml")
    assert sources(ledger)[PDF] == "pending"
    assert ledger.delete(MAIL)
    assert sources(ledger)[PDF] == "deleted"
