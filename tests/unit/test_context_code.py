"""Headers for passages of source code."""

from __future__ import annotations

import pytest

from pipelines.chunk import ChunkRules, chunk
from pipelines.context import MOST_TOKENS, code_headers, declarations
from pipelines.tokens import estimate_tokens
from pipelines.types import Block, Extracted


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pub(crate) async fn claim(&self) -> Id {", ["fn claim"]),
        ("class Ledger(Base):\n    def record(self, uri):\n        return 1", ["class Ledger", "def record"]),
        ("export default function render(props) {}", ["function render"]),
        ("public abstract class A extends B {", ["class A extends B"]),
        ("namespace pool {\nstruct Job;\n", ["namespace pool", "struct Job"]),
        ("func (s *Server) Serve() error {", []),  # a receiver stands where the name would
        ("func Serve() error {", ["func Serve"]),
        ("interface Sink { put(x: number): void }", ["interface Sink"]),
        ("macro_rules! vec2 {", ["macro_rules! vec2"]),
        ("return fn(x)\nlet defined = 1\n// class of its own", []),
        ("", []),
    ],
)
def test_declarations(code: str, expected: list[str]) -> None:
    assert declarations(code) == expected


def test_a_header_says_where_and_what_is_around() -> None:
    passages = ["def one(): ...\ndef two(): ...\ndef three(): ...", "x = 1", "def four(): ...", "def five(): ..."]
    headers = code_headers("acme/tools src/jobQueue.py", passages)
    assert headers[1] == "acme/tools src/jobQueue.py\nacme tools job Queue\nin: def two; def three\nthen: def four"
    assert headers[3] == (
        "acme/tools src/jobQueue.py\nacme tools job Queue\nin: def three; def four\ndefines: def five"
    )


def test_nothing_to_say_is_no_header() -> None:
    assert code_headers(None, ["x = 1", "y = 2"]) == [None, None]


def test_chunks_of_code_carry_it_and_prose_does_not() -> None:
    code = Extracted("text/x-source", None, (Block("code", "def alpha():\n    pass"),))
    (only,) = chunk(code, ChunkRules(), title="src/alpha.py")
    assert only.context == "src/alpha.py\nalpha\ndefines: def alpha"
    assert only.indexed_text.endswith("def alpha():\n    pass")
    prose = Extracted("text/plain", None, (Block("paragraph", "class act"), Block("code", "def alpha(): ...")))
    assert {one.context for one in chunk(prose, ChunkRules())} == {None}


def test_a_place_without_end_is_cut_short() -> None:
    (header,) = code_headers("src/" + "deepFolder/" * 2_000 + "main.py", ["def one(): ..."])
    assert header is not None
    assert header.startswith("src/deepFolder/")
    assert header.endswith("…\ndeep Folder\ndefines: def one")
    assert estimate_tokens(header) <= MOST_TOKENS


def test_headers_take_time_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 passages; a look at all that came before each would take minutes."""
    headers = code_headers(None, ["def one(): ..."] + ["x = 1"] * 20_000 + ["def two(): ..."])
    assert headers[1] == headers[20_000] == "in: def one\nthen: def two"
