"""`python -m worker.receivers`: the HTTP service until SIGTERM or SIGINT."""

from __future__ import annotations

import sys

import uvicorn

from pipelines.errors import ConfigurationError
from worker.crash import arm_crash_points
from worker.embedded import find_services
from worker.logs import configure_logging
from worker.receivers.app import create_http_app
from worker.settings import load_settings

GRACE_SECONDS = 10


def main() -> int:
    """Run the HTTP service; returns the exit status (2: the installation is set up wrongly)."""
    try:
        settings = load_settings()
        configure_logging(settings.log_level)
        arm_crash_points(settings.home, settings.crash_at)
        app = create_http_app(settings, find_services(settings))
    except ConfigurationError as error:
        print(f"gristmill: {error}", file=sys.stderr)
        return 2
    uvicorn.run(
        app,
        host=settings.http_host,
        port=settings.http_port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
