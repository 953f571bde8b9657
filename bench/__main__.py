"""`python -m bench [NAME [OPTION…]]`: run one measurement, or all of them with their defaults; `--list` names them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

BENCHES = {
    "search": "fused search beside the tutorials': time, CPU and recall, at 10,000 and 100,000 chunks",
    "tenants": "searches of one tenant among others, as it asks them: recall beside an exact scan, and time",
    "latency": "how long from a file dropped in a folder until a search finds it",
    "extract": "pages of text PDFs a processor second, beside bare pypdfium2 and pypdf",
    "scan": "a long scan on one OCR worker and on two, beside Tesseract run by hand",
    "formats": "the corpus of hard files, by format: what is read, what is refused, what falls short",
    "web": "the main content of annotated web pages, beside trafilatura alone, unstructured and stripped tags",
    "ocr": "pages of known text: characters read right, and speed beside Tesseract by hand",
    "site": "a web site crawled again and again: requests and bytes of each crawl",
    "idle": "hourly syncs of a large Notion workspace in which nothing changes: time, requests, memory",
    "month": "a month of a Notion workspace in simulated time: what is lost, stale or wrongly deleted, what is asked",
    "flood": "20,000 events at once with a slow embedder, and documents that kill their worker: bounds, order, delays",
    "http": "many clients at once at the HTTP service: searches and uploads",
}
"""Name of a module here to what it measures. Each has a `main(arguments) -> exit code`."""


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments ask for.

    Returns:
        0, or the first exit code that was not 0; 2 where there is no such measurement.
    """
    if "--list" in arguments[:1]:
        for name, purpose in BENCHES.items():
            print(f"{name:<10} {purpose}")
        return 0
    if arguments and arguments[0] not in BENCHES:
        print(f"there is no measurement {arguments[0]!r}; there are: {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    names, rest = (arguments[:1], arguments[1:]) if arguments else (tuple(BENCHES), ())
    codes = [import_module(f"bench.{name}").main(rest) for name in names]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
