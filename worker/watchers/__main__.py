"""`python -m worker.watchers`: mirror the folders of GRISTMILL_WATCH until SIGTERM or SIGINT."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from pipelines.errors import ConfigurationError
from worker.crash import arm_crash_points
from worker.logs import configure_logging
from worker.settings import load_settings
from worker.watchers.folder import FolderWatcher
from worker.watchers.watched_root import check_folders


def main() -> int:
    """Run the folder watcher; returns the exit status (2: the installation is set up wrongly)."""
    try:
        settings = load_settings()
        check_folders(settings)
        configure_logging(settings.log_level)
        arm_crash_points(settings.home, settings.crash_at)

        from worker.watchers.ledger_sink import open_file_sink

        watcher = FolderWatcher(settings, open_file_sink(settings))
    except ConfigurationError as error:
        print(f"gristmill: {error}", file=sys.stderr)
        return 2

    def stop(_signum: int, _frame: FrameType | None) -> None:
        watcher.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    watcher.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
