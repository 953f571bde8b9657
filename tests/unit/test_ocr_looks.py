"""When one look at a page is enough, what further looks try, and which of them is kept; Tesseract is made up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PIL import Image, ImageDraw, ImageFont

from pipelines.errors import PermanentError
from pipelines.extract import ocr
from pipelines.extract.ocr import languages as ocr_languages
from pipelines.extract.ocr.languages import OcrLanguages
from pipelines.extract.ocr.picture import trim
from pipelines.extract.ocr.tesseract import OcrFailedError, OcrTimeoutError, Orientation, Reading, Word
from pipelines.extract.rules import ExtractRules

BOTH = OcrLanguages("eng+fra", True)
LATIN = Orientation(0, 9.0, "Latin", 5.0)
Reader = Callable[[Image.Image, str, int, tuple[str, ...]], Reading]


def _reading(confidence: float, words: int = 12, text: str = "pressure", angle: int = 0) -> Reading:
    return Reading(((tuple(Word(text, confidence, 30) for _ in range(words)),),), angle)


def _page() -> Image.Image:
    image = Image.new("L", (1900, 400), 255)
    ImageDraw.Draw(image).multiline_text((60, 60), "The pump stops\n" * 5, fill=0, font=ImageFont.load_default(36))
    return image


class _Desk:
    """Takes the place of `Sheet`: notes each look, and answers by a function of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, reader: Reader, seen: Orientation | None = LATIN) -> None:
        self.looks: list[tuple[tuple[int, int], str, int, tuple[str, ...]]] = []
        self.orientations = 0
        desk = self

        class Sheet:
            def __init__(self, picture: Image.Image) -> None:
                self.picture = picture

            def __enter__(self) -> Sheet:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def read(self, languages: str, mode: int, seconds: float, *options: str) -> Reading:
                desk.looks.append((self.picture.size, languages, mode, options))
                return reader(self.picture, languages, mode, options)

            def orientation(self, seconds: float) -> Orientation | None:
                desk.orientations += 1
                return seen

        monkeypatch.setattr(ocr, "Sheet", Sheet)


def test_a_page_that_is_read_well_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = _Desk(monkeypatch, lambda *_: _reading(91))
    page = ocr.read_page(3, _page(), BOTH, ExtractRules())
    assert (page.number, page.confidence, page.languages, page.problem, page.warning) == (3, 91, "eng+fra", None, "")
    [(_, *look)] = desk.looks
    assert look == ["eng+fra", 3, ()]
    assert desk.orientations == 0


def test_so_is_a_blank_one(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = _Desk(monkeypatch, lambda *_: Reading(()))
    page = ocr.read_page(1, Image.new("L", (1900, 1200), 250), BOTH, ExtractRules())
    assert (page.paragraphs, page.confidence, page.problem) == ((), None, None)
    assert len(desk.looks) == 1


def test_the_best_look_is_kept_and_looks_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    confidences = iter([55.0, 62.0, 48.0, 58.0, 99.0, 99.0])
    desk = _Desk(monkeypatch, lambda *_: _reading(next(confidences)))
    page = ocr.read_page(1, _page(), BOTH, ExtractRules())
    assert page.confidence == 62
    assert page.warning == "low-confidence"
    assert len(desk.looks) <= 5


def test_less_junk_alone_is_not_better(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([_reading(62, 30), _reading(96, 2)])
    _Desk(monkeypatch, lambda *_: next(readings, _reading(10)))
    assert ocr.recognise(_page(), BOTH, ExtractRules()).confidence == 62


@pytest.mark.parametrize(
    ("confidence", "problem", "warning"), [(39, "ocr-unsure", ""), (64, None, "low-confidence"), (66, None, "")]
)
def test_pages_are_refused_marked_or_taken(
    monkeypatch: pytest.MonkeyPatch, confidence: float, problem: str | None, warning: str
) -> None:
    _Desk(monkeypatch, lambda *_: _reading(confidence))
    page = ocr.read_page(1, _page(), BOTH, ExtractRules())
    assert (page.problem, page.warning) == (problem, warning)
    assert bool(page.paragraphs) is (problem is None)


def test_words_that_are_mostly_guesses_are_refused_whatever_their_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    sure, guessed = Word("a", 96, 30), Word("frbnpss", 40, 30)
    _Desk(monkeypatch, lambda *_: Reading((((sure, guessed) * 20,),)))
    page = ocr.read_page(1, _page(), BOTH, ExtractRules())
    assert page.confidence == 68
    assert page.problem == "ocr-unsure"


def test_paragraphs_that_are_guesses_are_left_out_of_a_good_page(monkeypatch: pytest.MonkeyPatch) -> None:
    good, guessed, short = Word("pressure", 95, 30), Word("HARUTOM", 30, 30), Word("7b", 30, 30)
    _Desk(monkeypatch, lambda *_: Reading((((good,) * 40,), ((guessed,) * 5,), ((short,),))))
    page = ocr.read_page(1, _page(), BOTH, ExtractRules())
    assert page.paragraphs == (" ".join(["pressure"] * 40), "7b")
    assert (page.problem, page.warning) == (None, "partly-unread")


def test_a_script_nobody_can_read_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr_languages, "installed_languages", lambda: frozenset({"eng", "fra", "osd"}))
    desk = _Desk(monkeypatch, lambda *_: _reading(33, text="ERAWN"), Orientation(0, 20.0, "Han", 1.4))
    page = ocr.read_page(1, _page(), BOTH, ExtractRules())
    assert page.problem == "ocr-unsure"
    assert "Han script" in page.warning
    assert "tesseract-ocr-chi-sim" in page.warning
    assert len(desk.looks) <= 3


def test_a_script_that_another_installed_language_is_written_in_is_read_in_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ocr_languages, "installed_languages", lambda: frozenset({"eng", "fra", "osd", "rus", "deu"}))
    _Desk(
        monkeypatch,
        lambda _, languages, *__: _reading(93 if "rus" in languages else 35, text="давление"),
        Orientation(0, 9.0, "Cyrillic", 3.0),
    )
    page = ocr.read_page(1, _page(), BOTH, ExtractRules())
    assert (page.languages, page.confidence, page.problem, page.warning) == ("rus", 93, None, "")


def test_other_languages_of_the_same_script_are_tried_beside_the_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr_languages, "installed_languages", lambda: frozenset({"eng", "fra", "osd", "rus", "vie"}))
    _Desk(monkeypatch, lambda _, languages, *__: _reading(90 if "vie" in languages else 50))
    assert ocr.read_page(1, _page(), BOTH, ExtractRules()).languages == "eng+fra+vie"


def test_a_page_upside_down_is_turned_as_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    upright = trim(_page()).tobytes()
    _Desk(
        monkeypatch,
        lambda picture, *_: _reading(95 if picture.tobytes() == upright else 47),
        Orientation(180, 0.4, "Latin", 0.4),
    )
    page = ocr.read_page(1, _page().rotate(180), BOTH, ExtractRules())
    assert (page.rotation, page.confidence) == (180, 95)


def test_the_angle_that_tesseract_found_by_itself_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    _Desk(monkeypatch, lambda *_: _reading(95, angle=270))
    assert ocr.read_page(1, _page(), BOTH, ExtractRules()).rotation == 270


def test_without_orientation_data_nothing_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = _Desk(monkeypatch, lambda *_: _reading(50))
    ocr.read_page(1, _page().rotate(90, expand=True), OcrLanguages("eng", False), ExtractRules())
    assert desk.orientations == 0
    assert len(desk.looks) > 1


@pytest.mark.parametrize("error", [OcrTimeoutError(), OcrFailedError("bad_alloc")])
def test_what_fails_at_a_further_look_leaves_the_first(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    calls = 0

    def reader(*_: object) -> Reading:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise error
        return _reading(61)

    _Desk(monkeypatch, reader)
    page = ocr.read_page(1, _page(), BOTH, ExtractRules())
    assert (page.confidence, page.problem, calls) == (61, None, 2)


@pytest.mark.parametrize(
    ("error", "problem", "warning"),
    [(OcrTimeoutError(), "ocr-timeout", ""), (OcrFailedError("bad_alloc"), "ocr-failed", "tesseract: bad_alloc")],
)
def test_what_fails_at_the_first_is_the_page_s_problem(
    monkeypatch: pytest.MonkeyPatch, error: Exception, problem: str, warning: str
) -> None:
    def reader(*_: object) -> Reading:
        raise error

    _Desk(monkeypatch, reader)
    page = ocr.read_page(1, _page(), BOTH, ExtractRules())
    assert (page.problem, page.warning, page.paragraphs) == (problem, warning, ())


def test_small_type_is_drawn_larger_where_that_is_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[float] = []

    def larger(factor: float) -> Image.Image:
        drawn.append(factor)
        return _page().resize((3800, 800))

    def reader(picture: Image.Image, *_: object) -> Reading:
        word = Word("pressure", 92 if picture.height > 400 else 75, 15)
        return Reading(((tuple([word] * 12),),))

    _Desk(monkeypatch, reader)
    page = ocr.read_page(1, _page(), BOTH, ExtractRules(), larger)
    assert (page.confidence, drawn) == (92, [2.0])


def test_languages_are_chosen_from_those_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr_languages, "installed_languages", lambda: frozenset({"eng"}))
    chosen = ocr.choose_languages("eng+chi_sim", "page 1 is a scan")
    assert (chosen.code, chosen.orientation) == ("eng", False)
    assert "apt-get install tesseract-ocr-chi-sim" in chosen.warnings[0]
    with pytest.raises(PermanentError) as caught:
        ocr.choose_languages("deu", "page 1 is a scan")
    assert caught.value.code == "ocr_unavailable"
    monkeypatch.setattr(ocr_languages, "installed_languages", lambda: None)
    with pytest.raises(PermanentError) as caught:
        ocr.choose_languages("eng", "page 1 is a scan")
    assert caught.value.cause == "page 1 is a scan and tesseract is not installed"
