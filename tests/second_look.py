"""A second look at tests that failed in continuous integration: each alone, once the others are through.

There three tests run side by side on two cores of a machine that nobody knows. What fails alone as well fails the
run; what passes alone is printed, so that its weakness can be mended. `make test` gives no second look, and the
chaos suite gets none anywhere: one loss there is a loss.

Run as `python -m tests.second_look CACHE` after a pytest whose `cache_dir` that was. Exit status 0: all that failed
has passed alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MOST = 3  # more than that is no accident


def refusal(failed: Sequence[str]) -> str | None:
    """Why these tests get no second look; None where they get one.

    Args:
        failed: node ids as pytest remembers them; a file that could not be collected is one without `::`.
    """
    if not failed:
        return "pytest named no test that failed"
    if len(failed) > MOST:
        return f"{len(failed)} tests failed, more than {MOST}"
    for test in failed:
        if "::" not in test or test.startswith("tests/chaos/"):
            return f"{test} gets none"
    return None


def main(cache: Path) -> int:
    """Run what failed last again, each test in a pytest of its own."""
    noted = cache / "v" / "cache" / "lastfailed"
    failed = sorted(json.loads(noted.read_text("utf-8"))) if noted.exists() else []
    if why := refusal(failed):
        print(f"no second look: {why}")
        return 1
    for test in failed:
        print(f"SECOND LOOK at {test}", flush=True)
        alone = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
        if subprocess.run(alone, check=False).returncode != 0:
            return 1
    print(f"PASSED ALONE, weak beside others: {', '.join(failed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
