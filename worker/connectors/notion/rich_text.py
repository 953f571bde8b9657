"""Notion's rich text as Markdown of one line.

Written against `reference/rich-text` and the types of the official JavaScript client for API 2026-03-11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from worker.connectors.notion.ids import page_uri, plain_id
from worker.connectors.notion.nodes import BREAK, code_span, escape, link, trimmed

Rich = Sequence[Mapping[str, Any]]

_MARKS = (("bold", "**"), ("italic", "*"), ("strikethrough", "~~"))


def plain(rich: Rich | None) -> str:
    """Without any marks."""
    return "".join(str(item.get("plain_text") or _content(item)) for item in rich or ())


def markdown(rich: Rich | None) -> str:
    """As Markdown; a line break is `nodes.BREAK`."""
    items = list(rich or ())
    texts = [plain([item]) for item in items]
    parts = []
    for index, item in enumerate(items):
        before = texts[index - 1][-1:] if index else ""
        after = texts[index + 1][:1] if index + 1 < len(texts) else ""
        parts.append(_one(item, texts[index], before, after))
    text = "".join(parts)
    return trimmed(text)


def _one(item: Mapping[str, Any], text: str, before: str, after: str) -> str:
    kind = item.get("type")
    marks = item.get("annotations") or {}
    if kind == "equation":
        return f"${code_span((item.get('equation') or {}).get('expression') or text)}$"
    core = text.strip()
    if not core:
        return text.replace("\n", BREAK)
    lead, _, trail = text.partition(core)
    shown = code_span(core) if marks.get("code") else escape(core)
    href = _target(item)
    if kind == "mention" and (item.get("mention") or {}).get("type") == "user" and not core.startswith("@"):
        shown = f"@{shown}"
    if href:
        shown = link(shown, href)
    # Marks inside a word, or beside a punctuation mark, would be read as text (CommonMark's rule of flanking).
    inside = (before.isalnum() and not lead) or (after.isalnum() and not trail)
    if not inside and core[0].isalnum() and core[-1].isalnum():
        for name, mark in _MARKS:
            if marks.get(name):
                shown = f"{mark}{shown}{mark}"
    return lead.replace("\n", BREAK) + shown + trail.replace("\n", BREAK)


def _target(item: Mapping[str, Any]) -> str:
    mention = item.get("mention") or {}
    kind = mention.get("type")
    about = mention.get(kind) or {} if kind else {}
    if kind in ("user", "date", "template_mention", "custom_emoji"):
        return ""
    if kind in ("page", "database") and (found := plain_id(str(about.get("id") or ""))):
        return page_uri(found)
    href = str(item.get("href") or about.get("url") or about.get("href") or "")
    if href.startswith("/"):
        found = plain_id(href)
        return page_uri(found) if found else ""
    return href


def _content(item: Mapping[str, Any]) -> str:
    kind = item.get("type")
    if kind == "equation":
        return str((item.get("equation") or {}).get("expression") or "")
    return str((item.get("text") or {}).get("content") or "")
