"""Takes out one guard after the other, in a copy of the work tree, and tells which of them no test has missed.

`python -m tests.guards [TEXT]` does it to those whose name, file or test holds the text; the exit code is 1 if a guard
could be taken out unseen, or if a test fails that has nothing to see. `--list` only checks the table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.guards.guards import ROOT, Guard, chosen, load_guards, node_id, without
from tests.guards.workplace import Case, Workplace

SECONDS = 400.0
"""For the tests of one guard; those of a crash point wait for 40 s for what does not come, several times."""

EACH = 60.0
"""For a test that says nothing else: some hang without their guard, and need not do so for as long as ever."""


def main() -> int:
    """Run it; the exit code."""
    given = argparse.ArgumentParser(prog="python -m tests.guards", description=__doc__)
    given.add_argument("only", nargs="?", default="", help="a part of the name, the file or the test")
    given.add_argument("--list", action="store_true", help="check the table and run nothing")
    given.add_argument("--log", type=Path, help="keep what pytest says in this file")
    options = given.parse_args()
    guards = chosen(load_guards(), options.only)
    if options.list:
        for guard in guards:
            print(f"{guard.name}: {', '.join(without(guard, ROOT))}: {', '.join(guard.tests)}")
        return 0
    with tempfile.TemporaryDirectory(prefix="gm-guards-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)  # as root, Postgres runs as another user and has to get through
        place = Workplace(Path(name))
        try:
            return take_out(guards, place)
        finally:
            if options.log:
                options.log.write_bytes(place.log.read_bytes())


def take_out(guards: Sequence[Guard], place: Workplace) -> int:
    """Run the tests with all guards, then without each; the exit code."""
    for module in ("worker", "pipelines", "sql"):
        if not place.imports(module).is_relative_to(place.root):
            print(f"the copy would test {place.imports(module)}, not itself")
            return 2
    tests = list(dict.fromkeys(test for guard in guards for test in guard.tests))
    print(f"{len(guards)} guards; first their {len(tests)} tests with all of them in place", flush=True)
    began = time.monotonic()
    before = place.run([node_id(test, place.root) for test in tests], SECONDS + 30 * len(tests))
    states = {test: state_of(test, before) for test in tests}
    bad = [test for test, state in states.items() if state not in ("passed", "skipped")]
    for test in bad:
        print(f"  {states[test]} though nothing is taken out: {test}: {_said(test, before)}", flush=True)
    print(f"  {len(tests) - len(bad)} as they should be, in {time.monotonic() - began:.0f} s", flush=True)
    seen = unseen = skipped = 0
    for number, guard in enumerate(guards, 1):
        began = time.monotonic()
        wanted = [test for test in guard.tests if states[test] == "passed"]
        verdict, notes = "skipped", [f"{test}: {_said(test, before)}" for test in guard.tests if test not in wanted]
        if wanted:
            verdict, more = _without(guard, wanted, place)
            notes += more
        seen += verdict == "seen"
        unseen += verdict == "UNSEEN"
        skipped += verdict == "skipped"
        print(f"{number:3} {verdict:7} {time.monotonic() - began:5.0f} s  {guard.name}", flush=True)
        for note in notes:
            print(f"        {note}", flush=True)
    print(f"{len(guards)} guards: {seen} seen, {unseen} unseen, {skipped} skipped")
    return 1 if unseen or bad else 0


def _without(guard: Guard, tests: Sequence[str], place: Workplace) -> tuple[str, list[str]]:
    changed = without(guard, place.root)
    kept = {name: (place.root / name).read_text(encoding="utf-8") for name in changed}
    place.write(changed)
    try:
        cases = place.run([node_id(test, place.root) for test in tests], SECONDS, each=EACH)
    finally:
        place.write(kept)
    states = {test: state_of(test, cases) for test in tests}
    notes = [f"{state}: {test}: {_said(test, cases)}" for test, state in states.items()]
    return ("seen" if set(states.values()) == {"failed"} else "UNSEEN"), notes


def state_of(test: str, cases: Iterable[Case]) -> str:
    """How a test ended: it has failed where any case of it has."""
    states = {case.state for case in cases if case.is_of(test)}
    if not states:
        return "not run"
    return next(state for state in ("broken", "failed", "error", "passed", "skipped") if state in states)


def _said(test: str, cases: Iterable[Case]) -> str:
    said = [case.message for case in cases if case.is_of(test) and case.message]
    return " ".join(said[0].split())[:160] if said else ""


if __name__ == "__main__":
    sys.exit(main())
