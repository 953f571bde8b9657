"""`python -m worker.cli` is `gristmill`."""

from worker.cli import main

main()
