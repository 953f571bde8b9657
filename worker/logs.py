"""How logs look: one line an event, on standard error."""

from __future__ import annotations

import logging

QUIET = ("celery", "kombu", "amqp", "httpx", "httpx2", "openai", "watchdog", "pypdf", "trafilatura", "PIL")


def configure_logging(level: str) -> None:
    """Send all logs to standard error; libraries speak up only from WARNING."""
    logging.basicConfig(
        level=level,
        format="%(asctime)s %(levelname)-7s %(processName)s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
        force=True,
    )
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))
