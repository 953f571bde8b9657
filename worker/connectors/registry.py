"""The kinds of connectors, and the syncs of the settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pipelines.errors import ConfigurationError
from worker.connectors.config import SyncConfig
from worker.connectors.contract import Connector, Surroundings
from worker.settings import Settings

REMEDY = "correct GRISTMILL_SYNCS; docs/syncs.md describes every type with its fields"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ConnectorType:
    """A kind of connector: the model of its settings, and what opens it."""

    config: type[SyncConfig]
    open: Callable[[Any, Surroundings], Connector]


TYPES = ("notion", "pages", "sitemap", "feed", "bucket", "folder")


def connector_type(name: str) -> ConnectorType:
    """The connector of a type of `TYPES`. Imported when asked for: a process needs few of them."""
    match name:
        case "notion":
            from worker.connectors import notion

            return ConnectorType(notion.NotionConfig, _open_notion)
        case "pages":
            from worker.connectors import web

            return ConnectorType(web.PagesConfig, web.open_pages)
        case "sitemap":
            from worker.connectors import web

            return ConnectorType(web.SitemapConfig, web.open_sitemap)
        case "feed":
            from worker.connectors import web

            return ConnectorType(web.FeedConfig, web.open_feed)
        case "bucket":
            from worker.connectors import bucket

            return ConnectorType(bucket.BucketConfig, bucket.open_bucket)
        case "folder":
            from worker.connectors import folder

            return ConnectorType(folder.FolderConfig, folder.open_folder)
    raise ConfigurationError("invalid_sync", f"{name} is not one of {', '.join(TYPES)}", REMEDY)


def load_syncs(settings: Settings) -> dict[str, SyncConfig]:
    """The syncs of the settings, by name.

    Raises:
        ConfigurationError: `invalid_sync`, naming the sync and the field, never a secret.
    """
    found: dict[str, SyncConfig] = {}
    for name, value in settings.syncs.items():
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                "invalid_sync", f"the sync name {name!r} has other characters than A-Z a-z 0-9 _ -", REMEDY
            )
        kind = value.get("type") if isinstance(value, dict) else None
        if kind not in TYPES:
            raise ConfigurationError("invalid_sync", f"sync {name}: type must be one of {', '.join(TYPES)}", REMEDY)
        try:
            found[name] = connector_type(kind).config.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            said = first["msg"].removeprefix("Value error, ")
            raise ConfigurationError(
                "invalid_sync", f"sync {name}: {where + ': ' if where else ''}{said}", REMEDY
            ) from error
    return found


def open_connector(config: SyncConfig, surroundings: Surroundings) -> Connector:
    """Open the connector of a sync."""
    return connector_type(config.type).open(config, surroundings)


def _open_notion(config: Any, surroundings: Surroundings) -> Connector:
    from worker.connectors import notion

    token = config.token.get_secret_value() if config.token else surroundings.settings.notion_token
    if not token:
        raise ConfigurationError(
            "no_notion_token", "no token for Notion is set", "set NOTION_TOKEN to the token of the connection"
        )
    return notion.open_notion(config, surroundings, token=token)
