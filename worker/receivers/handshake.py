"""Notion's handshake: the unsigned call by which it tells a new webhook the token that signs all later ones.

It is `{"verification_token": "secret_…"}` and nothing else; the operator confirms the token in Notion, which sends
events from then on (source: Notion's "Webhooks"). Anybody can make such a call, so a token is never taken as the secret
by itself: it is put where only the operator sees it, and what came first stays.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

from worker.receivers.body import read_json
from worker.receivers.problems import ProblemError
from worker.settings import Settings

log = logging.getLogger(__name__)

MOST_BYTES = 2_000
_TOKEN = re.compile(r"[\x21-\x7e]{8,500}")


def handshake_token(body: bytes) -> str | None:
    """The token, where a body is a handshake."""
    if len(body) > MOST_BYTES:
        return None
    try:
        payload = read_json(body)
    except ProblemError:
        return None
    token = payload.get("verification_token") if isinstance(payload, dict) and len(payload) == 1 else None
    return token if isinstance(token, str) and _TOKEN.fullmatch(token) else None


def token_file(settings: Settings, name: str) -> Path:
    """Where the token for a webhook is put for the operator."""
    return settings.home / "webhooks" / f"{name}.token"


def keep_token(settings: Settings, name: str, token: str) -> None:
    """Put the token into its file, unless one is there already. Only the path is logged."""
    path = token_file(settings, name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.urandom(8).hex()}.part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(token + "\n")
    try:
        path.hardlink_to(part)
    except FileExistsError:
        if path.read_text(encoding="ascii") != token + "\n":
            log.warning(
                "webhook %s: another handshake came; the first token is kept. If that is not the one Notion takes,"
                " remove %s and have Notion send it again",
                name,
                path,
            )
            return
    finally:
        part.unlink()
    log.warning("webhook %s: Notion's token is in %s: confirm it there and set it as the secret here", name, path)
