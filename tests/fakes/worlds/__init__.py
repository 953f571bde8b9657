"""Places that documents come from, each with its real connector: what the conformance suite of connectors runs on."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fakes.worlds.bucket import BucketWorld
from tests.fakes.worlds.folder import FolderWorld
from tests.fakes.worlds.ground import Ground
from tests.fakes.worlds.memory import PlaceWorld
from tests.fakes.worlds.notion import NotionWorld
from tests.fakes.worlds.watcher import WatcherWorld
from tests.fakes.worlds.web import FeedWorld, PagesWorld, SitemapWorld
from tests.fakes.worlds.world import World

WORLDS: Mapping[str, type[World]] = {
    "place": PlaceWorld,
    "folder": FolderWorld,
    "watcher": WatcherWorld,
    "bucket": BucketWorld,
    "pages": PagesWorld,
    "sitemap": SitemapWorld,
    "feed": FeedWorld,
    "notion": NotionWorld,
}

__all__ = ["WORLDS", "Ground", "World"]
