"""The kinds of connectors, and the syncs of the settings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
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


def connector_types() -> Mapping[str, ConnectorType]:
    """Every kind, by the name that `type` gives it. Imported when asked for: most processes need none of them."""
    from worker.connectors import bucket, folder, notion, web

    def open_notion(config: notion.NotionConfig, surroundings: Surroundings) -> Connector:
        token = config.token.get_secret_value() if config.token else os.environ.get("NOTION_TOKEN", "")
        return notion.open_notion(config, surroundings, token=token)

    return {
        "notion": ConnectorType(notion.NotionConfig, open_notion),
        "pages": ConnectorType(web.PagesConfig, web.open_pages),
        "sitemap": ConnectorType(web.SitemapConfig, web.open_sitemap),
        "feed": ConnectorType(web.FeedConfig, web.open_feed),
        "bucket": ConnectorType(bucket.BucketConfig, bucket.open_bucket),
        "folder": ConnectorType(folder.FolderConfig, folder.open_folder),
    }


def load_syncs(settings: Settings) -> dict[str, SyncConfig]:
    """The syncs of the settings, by name.

    Raises:
        ConfigurationError: `invalid_sync`, naming the sync and the field, never a secret.
    """
    if not settings.syncs:
        return {}
    types = connector_types()
    found: dict[str, SyncConfig] = {}
    for name, value in settings.syncs.items():
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                "invalid_sync", f"the sync name {name!r} has other characters than A-Z a-z 0-9 _ -", REMEDY
            )
        kind = value.get("type") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in types:
            raise ConfigurationError("invalid_sync", f"sync {name}: type must be one of {', '.join(types)}", REMEDY)
        try:
            found[name] = types[kind].config.model_validate(value)
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
    return connector_types()[config.type].open(config, surroundings)
