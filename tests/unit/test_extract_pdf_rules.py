from __future__ import annotations

import pytest

from pipelines.extract.ocr import join_lines
from pipelines.extract.pdf.blocks import group_lines, groups_to_blocks
from pipelines.extract.pdf.decide import judge_text, word_count
from pipelines.extract.pdf.lines import Line
from pipelines.types import Block

PROSE = "The pump stops when the pressure falls below two bar and the panel shows a message. " * 3


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (PROSE, None),
        ("(cid:12)(cid:87)(cid:3)(cid:9)(cid:55)(cid:18)", "cid"),
        ("\ue001\ue002\ue003\ue004 ab", "garbage"),
        (PROSE + "\ufffd" * 10, "garbage"),
        ("!$%&/()=?*+#<>^°!$%&/()=?*+#<>^°!$%&/()=?*+#", "garbage-symbols"),
        ("Contents " + "." * 80 + " 12\nIndex " + "." * 80 + " 40", None),
        ("ex\x02ploitation " * 20, None),
        ("\uf0b7 item one of the list " * 6, None),
        ("kHlLoP wQrTzU " * 20, "garbage-words"),
        ("请参阅安装手册第三章中关于压力传感器的说明。" * 3, None),
        ("JavaScript iPhone McDonald eBay and ordinary words around them here " * 3, None),
    ],
)
def test_text_layers_are_judged(text: str, verdict: str | None) -> None:
    assert judge_text(text) == verdict


def test_words_are_counted_in_any_script() -> None:
    assert word_count("Zwei Wörter, три слова ещё; x 42") == 5


def test_lines_are_joined_over_hyphens() -> None:
    assert join_lines(["the maxi-", "mum of Saint-", "Adèle E-", "4012"]) == "the maximum of Saint- Adèle E- 4012"


def _line(text: str, top: float, *, size: float = 10, left: float = 50, right: float = 500, **more: object) -> Line:
    place = {"left": left, "right": right, "bottom": top, "last_bottom": top, "size": size}
    return Line(text, 1, **{**place, **more})  # type: ignore[arg-type]


def test_size_makes_headings_and_gaps_make_paragraphs() -> None:
    lines = [
        _line("Pump manual", 800, size=20, right=200),
        _line("Faults", 770, size=14, right=120),
        _line("A first paragraph that wraps over", 750),
        _line("two lines.", 738, right=100),
        _line("A second one after a gap, long enough to be", 715),
        _line("the body of the page.", 703, right=150),
        _line("• item one", 680, right=120),
        _line("• item two", 668, right=120),
    ]
    assert groups_to_blocks(list(group_lines(lines))) == [
        Block("heading", "Pump manual", level=1, page=1),
        Block("heading", "Faults", level=2, page=1),
        Block("paragraph", "A first paragraph that wraps over two lines.", page=1),
        Block("paragraph", "A second one after a gap, long enough to be the body of the page.", page=1),
        Block("list", "• item one", page=1),
        Block("list", "• item two", page=1),
    ]


def test_rows_with_wide_gaps_are_a_table() -> None:
    rows = [_line(f"SKU-{n} Pump seal 12.50", 700 - 12 * n, columns=3) for n in range(3)]
    prose = [_line("Prose below the table, at some distance from it.", 600)]
    blocks = groups_to_blocks(list(group_lines(rows + prose)))
    assert [block.kind for block in blocks] == ["table", "paragraph"]
    assert blocks[0].text == "SKU-0 Pump seal 12.50\nSKU-1 Pump seal 12.50\nSKU-2 Pump seal 12.50"


def test_a_sentence_runs_on_into_the_next_column() -> None:
    lines = [_line("The end of the first column is", 100, right=250), _line("not the end of it.", 780, left=300)]
    assert [block.text for block in groups_to_blocks(list(group_lines(lines)))] == [
        "The end of the first column is not the end of it."
    ]


def test_text_up_the_margin_is_no_heading() -> None:
    lines = [_line("arXiv:2103.15348v2", 500, size=20, upright=False), _line(PROSE, 480), _line(PROSE, 468)]
    assert all(block.kind == "paragraph" for block in groups_to_blocks(list(group_lines(lines))))
