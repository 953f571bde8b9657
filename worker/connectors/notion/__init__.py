"""Notion: pages and rows of databases, with their files."""

from __future__ import annotations

from worker.connectors.notion.config import NotionConfig
from worker.connectors.notion.connector import open_notion

__all__ = ["NotionConfig", "open_notion"]
