"""Web pages kept in step: named one by one, by the sitemaps of a site, or by a feed."""

from __future__ import annotations

from worker.connectors.contract import Surroundings
from worker.connectors.web.config import FeedConfig, PagesConfig, SitemapConfig
from worker.connectors.web.connector import WebConnector
from worker.connectors.web.feeds import Feeds
from worker.connectors.web.pages import Pages
from worker.connectors.web.sitemaps import Sitemaps

__all__ = ["FeedConfig", "PagesConfig", "SitemapConfig", "WebConnector", "open_feed", "open_pages", "open_sitemap"]


def open_pages(config: PagesConfig, surroundings: Surroundings) -> WebConnector:
    """The pages that the settings name."""
    return Pages(config, surroundings)


def open_sitemap(config: SitemapConfig, surroundings: Surroundings) -> WebConnector:
    """The pages that sitemaps name."""
    return Sitemaps(config, surroundings)


def open_feed(config: FeedConfig, surroundings: Surroundings) -> WebConnector:
    """The pages that feeds link to."""
    return Feeds(config, surroundings)
