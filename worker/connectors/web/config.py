"""What syncs of web pages can be told."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from pipelines.errors import PermanentError
from worker.connectors.config import Duration, SyncConfig
from worker.connectors.web.canonical import fold


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Strings = Annotated[tuple[str, ...], BeforeValidator(_listed)]
"""A list, or one of it by itself."""


def default_agent() -> str:
    """What we call ourselves: our name and version."""
    return f"gristmill/{version('gristmill')}"


class WebConfig(SyncConfig):
    """What all syncs of web pages have in common."""

    urls: Strings = Field(min_length=1, description="Addresses to begin with, a list or one")
    delay: Duration = Field(1.0, ge=0, description="Least time between two requests to one host")
    recrawl_min: Duration = Field(3_600.0, gt=0, description="A page is not visited again before, unless it is listed")
    recrawl_max: Duration = Field(30 * 86_400.0, gt=0, description="Every page is visited again after")
    include: Strings = Field((), description="Only pages whose path matches one of these patterns: /docs/*")
    exclude: Strings = Field((), description="No page whose path matches one of these patterns")
    hosts: Strings = Field((), description="Other hosts that pages may be listed on or give as their canonical one")
    respect_robots: bool = Field(True, description="Keep to robots.txt, Crawl-delay and noindex")
    user_agent: str = Field(default_factory=default_agent, description="What to call ourselves; as in robots.txt")

    @field_validator("urls", mode="after")
    @classmethod
    def _may_be_fetched(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for url in value:
            try:
                fold(url)
            except PermanentError as error:
                raise ValueError(f"{url}: {error.cause}") from error
        return value

    @field_validator("hosts", mode="after")
    @classmethod
    def _lower(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(host.lower() for host in value)

    @field_validator("user_agent", mode="after")
    @classmethod
    def _one_line(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z][!-~]*( [!-~]+)*", value):
            raise ValueError("user_agent has to begin with a name and be one line of ASCII")
        return value

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.recrawl_min > self.recrawl_max:
            raise ValueError("recrawl_min is longer than recrawl_max")
        return self


class PagesConfig(WebConfig):
    """Pages that are named one by one."""

    type: Literal["pages"]


class SitemapConfig(WebConfig):
    """All pages that the sitemaps of a site name. An address that ends in `/` is a site, whose sitemaps are found."""

    type: Literal["sitemap"]


class FeedConfig(WebConfig):
    """The pages that RSS and Atom feeds link to."""

    type: Literal["feed"]
