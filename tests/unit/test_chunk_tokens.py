"""The token estimate against counts of real tokenisers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.tokens import estimate_tokens, weights

# Counts of cl100k, o200k and XLM-RoBERTa, without special tokens.
COUNTED: list[tuple[str, tuple[int, int, int]]] = [
    (
        "Chunks must not depend on the embedder, else changing the embedder would move every bounda"
        "ry of every document. The pump must be switched off before its cover is opened; then wait "
        "until the light goes out.",
        (42, 42, 47),
    ),
    (
        "Le locataire peut résilier le contrat à tout moment, par lettre recommandée avec avis de r"
        "éception. Le délai de préavis applicable au congé est réduit à un mois lorsqu’il émane du "
        "locataire (article L. 121-3).",
        (58, 51, 50),
    ),
    (
        "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Die Datenschutzgrundveror"
        "dnung verlangt Rechenschaft.",
        (30, 24, 22),
    ),
    (
        "def claim(conn: Connection, limit: int = 10) -> list[Row]:\n"
        "    with conn.transaction():\n"
        "        rows = conn.execute(QUERY, (limit,)).fetchall()\n"
        "        return [Row(**row) for row in rows if row['state'] != 'done']\n",
        (58, 58, 84),
    ),
    (
        "impl<'a> Iterator for Tokens<'a> {\n"
        "    type Item = &'a str;\n"
        "    fn next(&mut self) -> Option<Self::Item> {\n"
        "        self.inner.next().map(|t| t.as_str())\n"
        "    }\n"
        "}\n",
        (49, 49, 68),
    ),
    (
        "| E-4012 | Pump stopped | 12.50 |\n| E-4013 | TLS_HANDSHAKE_FAILED | 8842-B |\n",
        (31, 31, 40),
    ),
    (
        "人工智能是计算机科学的一个分支，它企图了解智能的实质，并生产出一种新的能以人类智能相似的方式做出反应的智能机器。",
        (61, 40, 33),
    ),
    (
        "契約の解除は三十日前までに書面で通知しなければならない。データベースのバックアップを毎日取得してください。",
        (52, 34, 23),
    ),
    (
        "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 이성과 양심을 부여받았다.",
        (60, 36, 32),
    ),
    (
        "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью.",
        (51, 28, 27),
    ),
]


def test_empty() -> None:
    assert estimate_tokens("") == 0
    assert weights("").shape == (0,)


def test_lone_surrogate_is_no_error() -> None:
    assert estimate_tokens("\ud800") == 1


@given(st.text(), st.text())
def test_a_whole_is_never_more_than_its_parts(first: str, second: str) -> None:
    whole, parts = estimate_tokens(first + second), estimate_tokens(first) + estimate_tokens(second)
    assert parts - 1 <= whole <= parts


@pytest.mark.parametrize(("text", "counts"), COUNTED, ids=lambda value: str(value)[:12])
def test_near_the_highest_real_count_and_never_far_below(text: str, counts: tuple[int, int, int]) -> None:
    assert 0.88 * max(counts) <= estimate_tokens(text) <= 1.45 * max(counts)
