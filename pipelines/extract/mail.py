"""E-mail: `.eml` and Outlook `.msg`, bodies through `unstructured`, headers by the standard library."""

from __future__ import annotations

import email
import email.policy
from typing import Any

from pipelines.errors import PermanentError
from pipelines.extract.job import Job
from pipelines.extract.partition import partition, to_blocks
from pipelines.types import Block, Extracted

_HEADERS = {"From": "author", "To": "to", "Cc": "cc", "Date": "date"}


def extract_eml(job: Job) -> Extracted:
    """The body of a message; its subject as title and heading, the other headers as metadata.

    Raises:
        PermanentError: `encrypted`, where the message is (PGP or S/MIME).
    """
    with job.path.open("rb") as file:
        message = email.message_from_binary_file(file, policy=email.policy.default)
    _refuse_encrypted(str(message["Content-Type"] or ""))
    facts: dict[str, Any] = {key: str(message[name]) for name, key in _HEADERS.items() if message[name]}
    facts["attachments"] = [name for part in message.walk() if (name := part.get_filename())]
    elements = partition("email", filename=str(job.path), process_attachments=False)
    return _finished(job.mime, str(message["Subject"] or ""), elements, facts)


def extract_msg(job: Job) -> Extracted:
    """The body of an Outlook message; its subject as title and heading, the other headers as metadata.

    Raises:
        PermanentError: `encrypted`, where the message is (PGP or S/MIME).
    """
    from oxmsg import Message

    message = Message.load(str(job.path))
    _refuse_encrypted(message.message_headers.get("Content-Type", ""))
    facts: dict[str, Any] = {
        "author": message.sender,
        "to": ", ".join(recipient.email_address for recipient in message.recipients),
        "date": message.sent_date.isoformat() if message.sent_date else None,
        "attachments": [attachment.file_name for attachment in message.attachments],
    }
    elements = partition("msg", filename=str(job.path), process_attachments=False)
    return _finished(job.mime, message.subject or "", elements, facts)


def _refuse_encrypted(content_type: str) -> None:
    lowered = content_type.lower()
    if "multipart/encrypted" in lowered or ("pkcs7-mime" in lowered and "signed-data" not in lowered):
        raise PermanentError(
            "encrypted", "the message is encrypted", "decrypt it in the mail program and save it again"
        )


def _finished(mime: str, subject: str, elements: list[Any], facts: dict[str, Any]) -> Extracted:
    blocks = list(to_blocks(elements, headings=range(0)))
    if subject.strip():
        blocks.insert(0, Block("heading", subject, level=1))
    return Extracted(mime, subject.strip() or None, tuple(blocks), metadata=facts)
