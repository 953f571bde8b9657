"""E-mail of every kind, made here, with what is attached to it."""

from __future__ import annotations

import struct
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import PermanentError
from pipelines.extract import extract
from pipelines.types import Extracted
from tests.fakes.compound_file import compound_file


def _read(tmp_path: Path, content: bytes, name: str = "a.eml") -> tuple[Extracted, dict[str, bytes]]:
    """A message as read, and the bytes of its attachments."""
    path, folder = tmp_path / name, tmp_path / "attachments"
    path.write_bytes(content)
    folder.mkdir()
    extracted = extract(path, attachments=folder)
    return extracted, {one.name: Path(one.path or "").read_bytes() for one in extracted.attachments}


def _message(**headers: str) -> EmailMessage:
    made = EmailMessage()
    for name, value in {"From": "Ana <ana@example.org>", "To": "bo@example.org", **headers}.items():
        made[name.replace("_", "-")] = value
    return made


def test_headers_become_metadata_and_attachments_documents(tmp_path: Path) -> None:
    made = _message(
        Subject="Réunion de mai", Cc="Zoë <z@example.org>", Date="Mon, 1 Jun 2026 10:00:00 +0200", Message_ID="<7@x>"
    )
    made.set_content("Le compte rendu est joint.")
    made.add_attachment("a;b\n1;2\n", subtype="csv", filename="relevé été.csv")
    made.add_attachment(b"%PDF-1.4 x", maintype="application", subtype="pdf")
    extracted, attached = _read(tmp_path, made.as_bytes())
    assert extracted.title == "Réunion de mai"
    assert [(block.kind, block.text) for block in extracted.blocks] == [
        ("heading", "Réunion de mai"),
        ("paragraph", "Le compte rendu est joint."),
        ("paragraph", "Attachments: relevé été.csv, attachment.pdf"),
    ]
    facts = {key: extracted.metadata[key] for key in ("author", "to", "cc", "date", "message_id", "attachments")}
    assert facts == {
        "author": "Ana <ana@example.org>",
        "to": "bo@example.org",
        "cc": "Zoë <z@example.org>",
        "date": "2026-06-01T10:00:00+02:00",
        "message_id": "7@x",
        "attachments": ["relevé été.csv", "attachment.pdf"],
    }
    assert attached == {"relevé été.csv": b"a;b\n1;2\n", "attachment.pdf": b"%PDF-1.4 x"}


def test_a_forwarded_message_is_a_document_named_by_its_subject(tmp_path: Path) -> None:
    inner = _message(Subject="Pump fault")
    inner.set_content("It shows E-4012.")
    made = _message(Subject="Fwd")
    made.set_content("see below")
    made.add_attachment(inner)
    extracted, attached = _read(tmp_path, made.as_bytes())
    assert "E-4012" not in extracted.text
    assert list(attached) == ["Pump fault.eml"]
    assert b"It shows E-4012." in attached["Pump fault.eml"]
    assert extracted.attachments[0].mime == "message/rfc822"


def test_html_is_read_as_shown_and_its_inline_pictures_are_not_documents(tmp_path: Path) -> None:
    made = _message(Subject="Prices")
    made.set_content("plain version")
    made.add_alternative(
        "<p>New prices:</p><table><tr><th>SKU</th><th>EUR</th></tr><tr><td>8842-B</td><td>12</td></tr></table>"
        '<img src="cid:logo">',
        subtype="html",
    )
    html = made.get_payload()[1]
    html.add_related(b"\x89PNG logo", "image", "png", cid="<logo>", filename="logo.png")
    made.add_attachment(b"\x89PNG scan", maintype="image", subtype="png", filename="scan.png")
    extracted, attached = _read(tmp_path, made.as_bytes())
    assert "plain version" not in extracted.text
    assert "| SKU | EUR |\n| --- | --- |\n| 8842-B | 12 |" in extracted.text
    assert list(attached) == ["scan.png"]


def test_a_mail_of_html_only_and_one_whose_html_is_empty(tmp_path: Path) -> None:
    made = _message(Subject="Only HTML")
    made.set_content("<html><body><h1>Notice</h1><p>Closed on Friday.</p></body></html>", subtype="html")
    extracted, _ = _read(tmp_path, made.as_bytes())
    assert [(block.kind, block.level, block.text) for block in extracted.blocks] == [
        ("heading", 1, "Only HTML"),
        ("heading", 2, "Notice"),
        ("paragraph", 0, "Closed on Friday."),
    ]
    made = _message(Subject="Empty HTML")
    made.set_content("the words")
    made.add_alternative("<html><body><br></body></html>", subtype="html")
    path = tmp_path / "b.eml"
    path.write_bytes(made.as_bytes())
    assert "the words" in extract(path).text


@pytest.mark.parametrize(
    ("raw", "subject"),
    [
        (b"=?iso-8859-1?q?caf=E9?= =?utf-8?b?4oKs?=", "café€"),
        ("café à midi".encode("latin-1"), "café à midi"),
        ("café à midi".encode(), "café à midi"),
        (b"=?iso-2022-jp?b?GyRCRnxLXBsoQg==?=", "日本"),
        (b"=?no-such-set?q?caf=E9?=", "café"),
        (b"=?utf-8?b?not*base64?=", "=?utf-8?b?not*base64?="),
    ],
)
def test_subjects_in_every_coding(tmp_path: Path, raw: bytes, subject: str) -> None:
    extracted, _ = _read(tmp_path, b"From: a@b.c\r\nTo: d@e.f\r\nSubject: " + raw + b"\r\n\r\nbody\r\n")
    assert extracted.title == subject


def test_a_body_in_an_escaped_japanese_set(tmp_path: Path) -> None:
    head = b"From: a@b.c\nTo: d@e.f\nSubject: x\nContent-Type: text/plain; charset=iso-2022-jp\n\n"
    extracted, _ = _read(tmp_path, head + "ポンプが停止した。".encode("iso2022_jp"))
    assert extracted.blocks[1].text == "ポンプが停止した。"


def test_a_message_that_breaks_off_gives_what_it_has(tmp_path: Path) -> None:
    head = b"From: a@b.c\nTo: d@e.f\nSubject: cut\nContent-Type: multipart/mixed; boundary=q\n\n"
    part = b"--q\n\nfirst words\n--q\nContent-Type: application/pdf; name=x.pdf\nContent-Transfer-Encoding: base64\n\n"
    extracted, attached = _read(tmp_path, head + part + b"JVBERi0xLjQ*")
    assert "first words" in extracted.text
    assert attached["x.pdf"].startswith(b"%PDF-1.4")


def test_a_mailbox_is_one_document_with_a_section_for_each_message(tmp_path: Path) -> None:
    first, second = _message(Subject="One", Date="Mon, 1 Jun 2026 10:00:00 +0000"), _message(Subject="Two")
    first.set_content("The first body.")
    second.set_content("The second body.")
    second.add_attachment(b"a,b\n", maintype="text", subtype="csv", filename="t.csv")
    box = b"".join(
        b"From ana@example.org Mon Jun  1 10:00:00 2026\n" + one.as_bytes() + b"\n" for one in (first, second)
    )
    extracted, attached = _read(tmp_path, box, "box.mbox")
    assert extracted.mime == "application/mbox"
    assert [block.text for block in extracted.blocks if block.kind == "heading"] == ["One", "Two"]
    assert extracted.blocks[1].text == (
        "From: Ana <ana@example.org>\nTo: bo@example.org\nDate: 2026-06-01T10:00:00+00:00"
    )
    assert extracted.blocks[2].text == "The first body."
    assert extracted.metadata["messages"] == 2
    assert list(attached) == ["t.csv"]


def test_a_mailbox_with_too_many_messages_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.extract.job import Job
    from pipelines.extract.registry import run_extractor

    monkeypatch.setattr("pipelines.extract.mail.MAX_MESSAGES", 2)
    path = tmp_path / "box.mbox"
    path.write_bytes(b"".join(b"From a Mon\nFrom: a@b.c\nSubject: s%d\n\nbody\n\n" % number for number in range(5)))
    extracted = run_extractor(Job(path, "application/mbox"))
    assert [block.text for block in extracted.blocks if block.kind == "heading"] == ["s0", "s1"]
    assert extracted.metadata["warnings"] == ["3 of 5 messages were left out"]


def _properties(header: bytes, texts: dict[int, str], **streams: Any) -> dict[str, Any]:
    """A storage of an Outlook message with its string properties."""
    table = header
    made: dict[str, Any] = {}
    for number, text in texts.items():
        coded = text.encode("utf-16-le")
        table += struct.pack("<HHIII", 0x001F, number, 6, len(coded) + 2, 0)
        made[f"__substg1.0_{number:04X}001F"] = coded
    for number, content in streams.get("binary", {}).items():
        table += struct.pack("<HHIII", 0x0102, number, 6, len(content), 0)
        made[f"__substg1.0_{number:04X}0102"] = content
    for number, value in streams.get("numbers", {}).items():
        table += struct.pack("<HHIII", 0x0003, number, 6, value, 0)
    return {**made, "__properties_version1.0": table}


def test_an_outlook_message_with_a_file_and_a_message_attached(tmp_path: Path) -> None:
    inner = _properties(bytes(24), {0x0037: "Inner subject", 0x1000: "Inner body about E-4012."})
    file = _properties(bytes(8), {0x3707: "prix été.csv"}, binary={0x3701: b"a;b\n1;2\n"}, numbers={0x3705: 1})
    message = _properties(bytes(8), {}, numbers={0x3705: 5}) | {"__substg1.0_3701000D": inner}
    recipient = _properties(bytes(8), {0x3001: "Bo", 0x39FE: "bo@example.org"}, numbers={0x0C15: 1})
    outer = _properties(bytes(32), {0x0037: "Outer subject", 0x1000: "Outer body.", 0x001A: "IPM.Note"})
    outer |= {
        "__attach_version1.0_#00000000": file,
        "__attach_version1.0_#00000001": message,
        "__recip_version1.0_#00000000": recipient,
    }
    extracted, attached = _read(tmp_path, compound_file(outer), "a.msg")
    assert extracted.mime == "application/vnd.ms-outlook"
    assert extracted.title == "Outer subject"
    assert extracted.metadata["to"] == "Bo <bo@example.org>"
    assert extracted.blocks[1].text == "Outer body."
    assert attached["prix été.csv"] == b"a;b\n1;2\n"
    assert list(attached) == ["prix été.csv", "Inner subject.eml"]
    nested = tmp_path / "nested.eml"
    nested.write_bytes(attached["Inner subject.eml"])
    assert extract(nested).text == "Inner subject\n\nInner body about E-4012."


@pytest.mark.parametrize(
    "kind", ["multipart/encrypted; boundary=q", "application/pkcs7-mime; smime-type=enveloped-data"]
)
def test_encrypted_messages_are_named_so(tmp_path: Path, kind: str) -> None:
    with pytest.raises(PermanentError) as caught:
        _read(tmp_path, f"From: a@b.c\nTo: d@e.f\nSubject: x\nContent-Type: {kind}\n\nx\n".encode())
    assert caught.value.code == "encrypted"


def test_a_message_without_words_is_still_its_attachment(tmp_path: Path) -> None:
    made = _message()
    made.add_attachment(b"%PDF-1.4 x", maintype="application", subtype="pdf", filename="scan.pdf")
    extracted, attached = _read(tmp_path, made.as_bytes())
    assert list(attached) == ["scan.pdf"]
    assert extracted.text == "Attachments: scan.pdf"


def test_a_page_that_a_browser_saved_is_read_as_a_page(tmp_path: Path) -> None:
    words = "<p>The pump stops when the pressure falls below two bar, and shows E-4012 on the panel.</p>"
    page = f"<html><body><nav><a href='/'>Our shop</a></nav><article><h1>Faults</h1>{words * 5}</article></body></html>"
    head = (
        "From: <Saved by a browser>\nSnapshot-Content-Location: https://example.org/faults\nSubject: Pump faults\n"
        "MIME-Version: 1.0\nContent-Type: multipart/related; boundary=q; type=text/html\n\n"
    )
    parts = (
        f"--q\nContent-Type: text/html\nContent-Location: https://example.org/faults\n\n{page}\n"
        "--q\nContent-Type: image/png\nContent-Location: https://example.org/a.png\n\nx\n"
        "--q\nContent-Type: text/css\n\nb{}\n--q--\n"
    )
    extracted, attached = _read(tmp_path, (head + parts).encode(), "a.mhtml")
    assert extracted.title == "Pump faults"
    assert "E-4012" in extracted.text
    assert "Our shop" not in extracted.text
    assert attached == {}


def test_what_precedes_the_first_header_does_not_make_a_body_of_the_message(tmp_path: Path) -> None:
    content = "\ufeff\n\nFrom: a@b.c\nTo: d@e.f\nSubject: Hello\n\nbody\n".encode()
    assert _read(tmp_path, content)[0].title == "Hello"


def test_parts_with_impossible_character_sets_are_read_all_the_same(tmp_path: Path) -> None:
    head = b"From: a@b.c\nTo: d@e.f\nSubject: x\nContent-Type: multipart/alternative; boundary=q\n\n"
    part = b'--q\nContent-Type: text/plain; charset="a\0b"\n\ncaf\xc3\xa9\n--q--\n'
    assert _read(tmp_path, head + part)[0].blocks[1].text == "café"


def test_a_damaged_message_inside_another_is_named_and_left_out(tmp_path: Path) -> None:
    head = b"From: a@b.c\nTo: d@e.f\nSubject: outer\nContent-Type: multipart/mixed; boundary=q\n\n--q\n\nbody\n"
    inner = b"Subject: inner\nContent-Type: multipart/mixed; boundary=\xff\xfe\n\n--\xff\xfe\n\nx\n"
    extracted, attached = _read(tmp_path, head + b"--q\nContent-Type: message/rfc822\n\n" + inner + b"--q--\n")
    assert "body" in extracted.text
    assert attached == {}
    assert extracted.metadata["warnings"][0].startswith("the attached message inner.eml is damaged and was left out")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_message_saved_in_utf_16_has_its_headers(tmp_path: Path, encoding: str) -> None:
    content = "From: Ana <ana@example.org>\nTo: bo@example.org\nSubject: Loyer\n\nLe loyer est d\u00fb.\n"
    extracted, _ = _read(tmp_path, content.encode(encoding))
    assert [block.text for block in extracted.blocks] == ["Loyer", "Le loyer est d\u00fb."]


@pytest.mark.parametrize(
    ("page", "encoding", "text"), [(950, "big5", "文件"), (936, "gbk", "文件"), (874, "cp874", "ไทย")]
)
def test_an_outlook_message_in_an_old_code_page(tmp_path: Path, page: int, encoding: str, text: str) -> None:
    properties = bytes(32) + struct.pack("<IIQ", 0x3FDE0003, 6, page)
    for name in ("1000", "1013"):
        properties += struct.pack("<IIQ", int(name + "001E", 16), 6, 1)
    streams = {
        "__properties_version1.0": properties,
        "__substg1.0_1000001E": text.encode(encoding),
        "__substg1.0_1013001E": f"<p>{text}</p>".encode(encoding),
    }
    extracted, _ = _read(tmp_path, compound_file(streams), "a.msg")
    assert [block.text for block in extracted.blocks] == [text]
