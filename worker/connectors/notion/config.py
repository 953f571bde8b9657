"""What a sync with Notion can be told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from worker.connectors.config import SyncConfig
from worker.connectors.notion.ids import plain_id

API_VERSION = "2026-03-11"
"""The newest version that was found documented; every request names it."""


def _root(text: str) -> str:
    found = plain_id(text)
    if found is None:
        raise ValueError(f"{text[:200]!r} is no id or address of a page, database or data source")
    return found


Root = Annotated[str, AfterValidator(_root)]
"""An id, also inside an address; kept as 32 hex digits."""


class NotionConfig(SyncConfig):
    """Pages of a Notion workspace, as far as they are shared with the connection whose token is used."""

    type: Literal["notion"]
    token: SecretStr | None = Field(None, description="Of the connection; unset: NOTION_TOKEN")
    roots: tuple[Root, ...] = Field(
        (), description="Pages, databases or data sources to take with all below them; empty: all that is shared"
    )
    files: bool = Field(True, description="Take images, files and PDFs of pages as documents as well")
    base_url: str = Field("https://api.notion.com", pattern=r"^https?://[^/\s]+(/[^\s]*)?$", description="Of the API")
    requests_per_second: float = Field(3.0, gt=0, le=1000, description="Most requests, on average")
