"""OCR of made pictures with known words, by the real Tesseract."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pypdfium2 as pdfium
import pytest
from PIL import Image, ImageDraw, ImageFont, ImageOps

from bench.ocr import characters_right, edits
from bench.prose import ENGLISH, FRENCH, photograph, typeset
from pipelines.errors import PermanentError
from pipelines.extract import ExtractRules, extract, ocr, recognise
from pipelines.extract.job import Job
from pipelines.extract.ocr.picture import MAX_PIXELS
from pipelines.extract.ocr.tesseract import OcrTimeoutError, Sheet
from pipelines.extract.pdf import picture as pdf_picture
from pipelines.extract.registry import run_extractor
from pipelines.types import OcrPage

pytestmark = pytest.mark.skipif(
    not {"eng", "fra", "osd"} <= (ocr.installed_languages() or frozenset()),
    reason="tesseract with eng, fra and osd is not installed",
)
SENTENCE = "The pump stops when the pressure\nfalls below two bar, and the panel\nshows error E-4012 until then.\n"
Change = Callable[[Image.Image], Image.Image]


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in parsing processes."""
    monkeypatch.setenv("OMP_THREAD_LIMIT", "1")


def _page(text: str = SENTENCE * 2, size: int = 32) -> Image.Image:
    image = Image.new("L", (1100, 600), 255)
    ImageDraw.Draw(image).multiline_text((70, 60), text, fill=0, font=ImageFont.load_default(size), spacing=16)
    return image


def _read(image: Image.Image, languages: str = "eng+fra") -> OcrPage:
    return ocr.read_page(1, image, ocr.choose_languages(languages, "a test"), ExtractRules())


def _first_paragraph(prose: str) -> str:
    return prose.split("\n\n", maxsplit=1)[0]


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_pages_in_any_rotation_are_read_and_their_rotation_is_told(degrees: int) -> None:
    page = _read(_page().rotate(degrees, expand=True))
    assert "falls below two bar" in page.text
    assert page.rotation == degrees
    assert page.languages == "eng+fra"
    assert (page.confidence or 0) > 85


@pytest.mark.parametrize("degrees", [5, -9])
def test_pages_askew_are_read(degrees: int) -> None:
    askew = _page().rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=255)
    page = _read(askew)
    assert "falls below two bar" in page.text
    assert page.rotation == 0


def test_a_page_askew_and_on_its_side_is_read() -> None:
    page = _read(_page().rotate(95, Image.Resampling.BICUBIC, expand=True, fillcolor=255))
    assert "falls below two bar" in page.text
    assert page.rotation == 90


@pytest.mark.parametrize("degrees", [0, 180])
def test_a_page_of_too_few_letters_for_orientation_is_read(degrees: int) -> None:
    picture = _page("Invoice number 8842", 40).crop((0, 0, 600, 180)).rotate(degrees)
    with Sheet(picture) as sheet:
        assert sheet.orientation(30) is None
    page = _read(picture)
    assert page.text == "Invoice number 8842"
    assert page.rotation == degrees


def _shaded(image: Image.Image) -> Image.Image:
    return Image.fromarray((np.asarray(image) * np.linspace(0.2, 1.0, image.width)[None, :]).astype(np.uint8))


def _grained(image: Image.Image) -> Image.Image:
    grain = np.random.default_rng(0).normal(0, 25, (image.height, image.width))
    return Image.fromarray((np.asarray(image) * 0.6 + 60 + grain).clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize(
    "change",
    [
        ImageOps.invert,
        _shaded,
        _grained,
        lambda image: image.convert("CMYK"),
        lambda image: image.convert("1"),
        lambda image: Image.fromarray(np.asarray(image).astype(np.uint16) * 16),
        lambda image: image.point([225 + value // 9 for value in range(256)]),
    ],
    ids=["inverted", "shaded", "grained", "cmyk", "bits", "deep", "faint"],
)
def test_poor_and_odd_pictures_are_read(change: Change) -> None:
    assert "falls below two bar" in _read(change(_page())).text


def test_accents_are_read() -> None:
    truth = _first_paragraph(FRENCH)
    page = _read(photograph(typeset(truth), 200))
    assert characters_right(truth, page.text) > 0.985
    assert "François" in _read(photograph(typeset(FRENCH.split("\n\n")[1]), 200)).text


def test_small_type_is_read_at_a_second_look() -> None:
    truth = _first_paragraph(ENGLISH)
    page = _read(photograph(typeset(truth, points=6, columns=110), 100))
    assert characters_right(truth, page.text) > 0.9


def test_noise_shapes_and_blank_paper_give_no_text() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (400, 400), dtype=np.uint8))
    shapes, dice = Image.new("L", (800, 800), 255), random.Random(0)
    for _ in range(25):
        x, y, r = dice.randrange(700), dice.randrange(700), dice.randrange(20, 120)
        ImageDraw.Draw(shapes).ellipse((x, y, x + r, y + r), outline=dice.randrange(120), width=3)
    for image in (noise, shapes, Image.new("L", (600, 800), 255)):
        assert _read(image).paragraphs == ()


def test_a_page_that_is_half_guessed_is_kept_and_marked_or_refused() -> None:
    page = _read(photograph(typeset(_first_paragraph(ENGLISH), points=8, columns=110), 64))
    assert page.problem == "ocr-unsure" or page.warning == "low-confidence"
    assert page.confidence is not None
    assert page.confidence < ocr.LOW_CONFIDENCE


def test_the_time_for_a_page_is_kept() -> None:
    rules = ExtractRules(ocr_page_seconds=0.01)
    with pytest.raises(OcrTimeoutError):
        ocr.recognise(_page(), ocr.choose_languages("eng", "a test"), rules)


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "webp", "bmp", "tif"])
def test_formats_of_pictures(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"page.{suffix}"
    _page(SENTENCE).save(path)
    extracted = extract(path)
    assert "falls below two bar" in extracted.text
    [report] = extracted.pages
    assert (report.decision, report.reason, report.languages) == ("ocr", "image", "eng+fra")


def test_what_the_camera_says_of_its_orientation_is_heeded(tmp_path: Path) -> None:
    path, exif = tmp_path / "photo.jpg", Image.Exif()
    exif[0x0112] = 6
    _page(SENTENCE).rotate(90, expand=True).save(path, exif=exif)
    [report] = extract(path).pages
    assert (report.decision, report.rotation) == ("ocr", 0)


def test_pages_of_a_tiff_are_read_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "pages.tif"
    first, *others = (_page(f"Sheet number {number} of the invoice", 40).convert("1") for number in (11, 12, 13))
    first.save(path, save_all=True, append_images=others, compression="group4")
    found: list[OcrPage] = []
    recognise(path, [3, 1], found.append)
    assert [(page.number, page.text) for page in found] == [
        (3, "Sheet number 13 of the invoice"),
        (1, "Sheet number 11 of the invoice"),
    ]


def test_a_damaged_page_of_a_tiff_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "pages.tif"
    _page("First sheet").save(path, save_all=True, append_images=[_page("Second sheet")], compression="tiff_lzw")
    whole = path.read_bytes()
    with Image.open(path) as image:
        start = image.tag_v2[273][0]  # type: ignore[attr-defined]
    path.write_bytes(whole[:start] + b"\xff" * 3000 + whole[start + 3000 :])
    pages = run_extractor(Job(path, "image/tiff")).pages
    assert [(page.decision, page.problem) for page in pages] == [("ocr", "page-damaged"), ("ocr", "")]


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "giant.png"
    Image.new("1", (35_000, 6_000), 1).save(path)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("it was unpacked"))
    with pytest.raises(PermanentError) as caught:
        run_extractor(Job(path, "image/png"))
    assert caught.value.code == "bomb"


def test_a_jpeg_of_too_many_pixels_is_unpacked_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, sizes = tmp_path / "large.jpg", []

    def note(number: int, image: Image.Image, *_: object) -> OcrPage:
        sizes.append(image.size)
        return OcrPage(number, ("read",))

    monkeypatch.setattr("pipelines.extract.image.OCR_PIXELS", 200_000)
    monkeypatch.setattr("pipelines.extract.ocr.read_page", note)
    _page().save(path)
    run_extractor(Job(path, "image/jpeg"))
    assert sizes == [(550, 300)]


def _scan(dpi: float, size: tuple[float, float] = (300.0, 200.0)) -> pdfium.PdfDocument:
    """A PDF page that one picture covers at a resolution."""
    document = pdfium.PdfDocument.new()
    page = document.new_page(*size)
    bitmap = pdfium.PdfBitmap.from_pil(Image.new("L", (int(size[0] * dpi / 72), int(size[1] * dpi / 72)), 200))
    image = pdfium.PdfImage.new(document)
    image.set_bitmap(bitmap)
    image.set_matrix(pdfium.PdfMatrix().scale(*size))
    page.insert_obj(image)
    page.gen_content()
    return document


@pytest.mark.parametrize(
    ("scan", "wanted", "dpi"), [(72, 200, 200), (160, 200, 160), (250, 200, 250), (600, 200, 300), (600, 400, 400)]
)
def test_scans_are_drawn_at_their_own_resolution_within_bounds(
    monkeypatch: pytest.MonkeyPatch, scan: int, wanted: int, dpi: int
) -> None:
    drawn: list[Image.Image] = []

    def note(number: int, image: Image.Image, *_: object) -> OcrPage:
        drawn.append(image)
        return OcrPage(number)

    monkeypatch.setattr("pipelines.extract.ocr.read_page", note)
    page = _scan(scan)[0]
    pdf_picture.read_page(1, page, ocr.choose_languages("eng", "a test"), ExtractRules(ocr_dpi=wanted))
    assert drawn[0].width == pytest.approx(300 * dpi / 72, abs=2)
    assert drawn[0].mode == "L"


def test_huge_pages_are_drawn_within_the_limit_of_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Image.Image] = []

    def note(number: int, image: Image.Image, *rest: object) -> OcrPage:
        drawn.append(image)
        larger = rest[-1]
        assert callable(larger)
        assert larger(2.0) is None
        return OcrPage(number)

    monkeypatch.setattr("pipelines.extract.ocr.read_page", note)
    document = pdfium.PdfDocument.new()
    page = document.new_page(14_000, 10_000)
    pdf_picture.read_page(1, page, ocr.choose_languages("eng", "a test"), ExtractRules())
    assert 0.98 * MAX_PIXELS < drawn[0].width * drawn[0].height <= 1.01 * MAX_PIXELS


def test_pandas_is_not_imported_for_ocr() -> None:
    import subprocess
    import sys

    program = (
        "from pipelines.extract.ocr import tesseract; import sys; assert tesseract.languages();"
        "assert 'pytesseract' in sys.modules and 'pandas' not in sys.modules; import pandas"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("one", "other", "distance"), [("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2)]
)
def test_edits_are_counted(one: str, other: str, distance: int) -> None:
    assert edits(one, other) == distance


def test_the_share_of_characters_read_right_folds_white_space() -> None:
    assert characters_right("a  b\nc", "a b c") == 1
    assert characters_right("abcd", "abxd") == 0.75
    assert characters_right("ab", "wholly other") == 0
