"""Small rules about the text of PDFs: outlines, dates, which of two readings is better."""

from __future__ import annotations

import pytest

from pipelines.extract.pdf.blocks import group_lines, groups_to_blocks
from pipelines.extract.pdf.decide import is_poor_layer, judge_text, odd_characters
from pipelines.extract.pdf.facts import iso_date
from pipelines.extract.pdf.lines import Line
from pipelines.extract.pdf.outline import mark_headings
from pipelines.extract.pdf.repair import is_right_to_left, repair
from pipelines.extract.pdf.weigh import is_better_ocr, reads_right_to_left_better
from pipelines.extract.wrapped import join_lines, keep_hyphens
from pipelines.types import Block, OcrPage

GOOD = "The pump stops when the pressure falls below two bar and the panel shows a message. "
BAD = "tne pu»mp st*ops vvhen tlic pr«essure f&lls belOW t£wo b^ar arid "


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        (["Intro", "1.2 Faults of the pump", "Text"], [0, 2, 0]),
        (["Faults of", "the pump", "Text"], [2, 2, 0]),
        (["FAULTS OF THE PUMP"], [2]),
        (["Faults of the pump are many and this is prose about them."], [0]),
        (["Faults of the"], [0]),
    ],
)
def test_the_outline_names_headings(text: list[str], levels: list[int]) -> None:
    marked = mark_headings([Line(line, 1) for line in text], {"faultsofthepump": 2})
    assert [line.level for line in marked] == levels


def test_a_heading_of_the_outline_is_one_whatever_it_looks_like() -> None:
    lines = [
        Line(text, 1, 50, right, height, height, 10, level=level)
        for text, right, height, level in [
            ("Faults of", 100, 700, 2),
            ("the pump", 100, 688, 2),
            (GOOD.strip(), 500, 676, 0),
        ]
    ]
    assert groups_to_blocks(list(group_lines(lines))) == [
        Block("heading", "Faults of the pump", level=2, page=1),
        Block("paragraph", GOOD.strip(), page=1),
    ]


def test_a_hyphen_at_a_line_end_is_kept_where_the_document_has_it_elsewhere() -> None:
    texts = [
        "A well-known pump",
        "is well\ufffeknown for its maxi\ufffe mum and self\x02 test",
        "State-of-the-art of\ufffethe kind",
    ]
    assert keep_hyphens(texts) == [
        "A well-known pump",
        "is well-known for its maximum and selftest",
        "State-of-the-art of-the kind",
    ]


def test_numbers_cut_at_a_line_end_are_whole() -> None:
    assert (
        join_lines(["the demand 2023-", "0379 and", "phone 555-", "Ext"]) == "the demand 2023-0379 and phone 555- Ext"
    )


def test_double_spaced_lines_are_one_paragraph() -> None:
    lines = [
        Line(
            f"argument number {number} goes on without an end and", 1, 50, 400, 700 - 26 * number, 700 - 26 * number, 12
        )
        for number in range(12)
    ]
    assert len(groups_to_blocks(list(group_lines(lines)))) == 1


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("D:20240103120000+01'00'", "2024-01-03T12:00:00+01:00"),
        ("D:20240103120000Z", "2024-01-03T12:00:00+00:00"),
        ("D:20240103120000Z00'00'", "2024-01-03T12:00:00+00:00"),
        ("D:20240103", "2024-01-03T00:00:00"),
        ("20240103120000-0500", "2024-01-03T12:00:00-05:00"),
        ("yesterday", None),
        ("", None),
    ],
)
def test_dates(text: str, date: str | None) -> None:
    assert iso_date(text) == date


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        # `Peněžní prostředky …` in a font whose codes are 29 too low for their letters.
        ("3HQHCQL SURVWUHGN QD XFWHFK D MLQH YNODG XORCHQH SUR SULPH SRXCLWL Y KRWRYRVWL " * 2, "improbable-letters"),
        ("Peněžní prostředky na účtech a jiné vklady uložené pro přímé použití v hotovosti " * 2, None),
        ("Strč prst skrz krk, a zmrzl čtvrthrst zrn scvrkl vlk. Potom šel domů a usnul u kamen. " * 2, None),
        ("SKU 8842-B 12.50 SKU 8843-C 13.50 SKU 8844-D 99.00 " * 4, None),
        ("Der Schrank steht schräg; Angst, Herbst und Strumpf sind kurz und schlicht. " * 2, None),
    ],
)
def test_letters_that_no_language_has(text: str, verdict: str | None) -> None:
    assert judge_text(text) == verdict


def test_a_bad_layer_is_told_from_a_good_one_and_from_formulas() -> None:
    assert is_poor_layer(BAD * 3)
    assert not is_poor_layer(GOOD * 3)
    assert not is_poor_layer("for a form: Def pCONS -= aa.l.otl; (p<CONS,f1 ... fn>):x = <(f1:x) ... (fn:x)> " * 3)
    assert not is_poor_layer("« Je m'endors. » R&D, AT&T et »Worte« sind gut; C'est l'été " * 3)


def test_the_better_of_layer_and_ocr() -> None:
    good = OcrPage(1, (GOOD * 2,), confidence=90.0)
    assert is_better_ocr(good, BAD * 3, "poor-layer")
    assert not is_better_ocr(OcrPage(1, ("The pump",), confidence=90.0), BAD * 3, "poor-layer")
    assert not is_better_ocr(OcrPage(1, (GOOD * 2,), confidence=41.0), BAD * 3, "poor-layer")
    assert is_better_ocr(good, "SURVWUHGN XFWHFK YNODG XORCHQH " * 4, "improbable-letters")
    assert not is_better_ocr(OcrPage(1, ("xkcd trw",), confidence=50.0), GOOD, "improbable-letters")
    assert not is_better_ocr(OcrPage(1, ("page 7",), confidence=90.0), GOOD, "stamp-on-scan")


class _Ruler:
    """Stands in for `Ruler`: each character has the place of the glyph it is of."""

    def __init__(self, glyphs: list[str]) -> None:
        self._places = [(float(-place), 0.0) for place, glyph in enumerate(glyphs) for _ in glyph]

    def origin(self, index: int) -> tuple[float, float]:
        return self._places[index]


@pytest.mark.parametrize(
    ("glyphs", "text"),
    [
        ([*"ا", "إل", *"نتاجية"], "الإنتاجية"),
        ([*"ا", "لإ", *"نتاجية"], "الإنتاجية"),
        ([*"المشك", "ال", *"ت"], "المشكلات"),
        ([*"ا", "لخ", *"طوط"], "الخطوط"),
        ([*"الم"], "الم"),
        (["يبيبَح", " ", *"habibi"], "حَبيبي habibi"),
        ([*"أي ًضا"], "أيضًا"),
        ([*"R و Pythonمن"], "R وPython من"),
        ([*"لغة Cو"], "لغة C و"),
    ],
)
def test_glyphs_of_several_letters_are_turned_round(glyphs: list[str], text: str) -> None:
    given = "".join(glyphs)
    line = Line(given, 1, size=10, start=0)
    mended = repair([line], given, odd_characters(given), _Ruler(glyphs))  # type: ignore[arg-type]
    assert [one.text for one in mended] == [text]


def test_right_to_left_readings() -> None:
    ours = "تحسين اإلنتاجية وحل المشكالت"
    theirs = "تحسين الإنتاجية وحل المشكلات"
    assert reads_right_to_left_better(theirs, [ours])
    assert not reads_right_to_left_better(ours, [theirs])
    assert not reads_right_to_left_better(theirs, [theirs])
    assert reads_right_to_left_better("حَبيبي habibi", ["حَبيبي ϲΒϴΒhabibi"])
    assert is_right_to_left(ours, odd_characters(ours))
    assert not is_right_to_left(GOOD + "شكرا", "شكرا")
