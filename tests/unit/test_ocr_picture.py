"""Pictures are made fit for OCR: grey, dark on light, of a size, upright, straight."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont, ImageOps

from pipelines.extract.ocr import picture as ocr_picture

LINES = "The pump stops when the pressure\nfalls below two bar, and the panel\nshows error E-4012 until then.\n" * 3


def _page(size: tuple[int, int] = (1100, 800)) -> Image.Image:
    image = Image.new("L", size, 255)
    ImageDraw.Draw(image).multiline_text((60, 60), LINES, fill=0, font=ImageFont.load_default(36), spacing=20)
    return image


def _dark(image: Image.Image) -> float:
    return float((np.asarray(image) < 128).mean())


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "YCbCr", "HSV", "I", "F"])
def test_every_mode_becomes_the_same_grey_picture(mode: str) -> None:
    page = _page()
    ready = ocr_picture.prepare(page.convert(mode))
    assert ready.mode == "L"
    assert ready.size == page.size
    assert _dark(ready) == pytest.approx(_dark(page), rel=0.1)


@pytest.mark.parametrize("factor", [16, 257])
def test_deep_pictures_are_stretched_to_black_and_white(factor: int) -> None:
    page = _page()
    deep = Image.fromarray(np.asarray(page).astype(np.uint16) * factor)
    assert deep.mode == "I;16"
    ready = ocr_picture.prepare(deep)
    assert ready.getextrema() == (0, 255)
    assert _dark(ready) == pytest.approx(_dark(page), rel=0.02)


def test_infinite_and_missing_values_do_no_harm() -> None:
    values = np.asarray(_page(), dtype=np.float32) / 255
    values[0, :3] = np.nan, np.inf, -np.inf
    assert _dark(ocr_picture.prepare(Image.fromarray(values))) == pytest.approx(_dark(_page()), rel=0.02)


def test_what_is_transparent_is_paper() -> None:
    clear = Image.new("RGBA", (1100, 800), (0, 0, 0, 0))
    clear.putalpha(ImageOps.invert(_page()))
    assert _dark(ocr_picture.prepare(clear)) == pytest.approx(_dark(_page()), rel=0.1)


def test_a_transparent_palette_entry_is_paper() -> None:
    image = _page().convert("1").convert("P")
    assert image.getcolors()[0][1] == 0  # type: ignore[index]  # black
    image.info["transparency"] = 0
    assert _dark(ocr_picture.prepare(image)) < 0.001


def test_light_on_dark_is_turned_round_and_a_picture_with_a_dark_half_is_not() -> None:
    page = _page()
    assert ocr_picture.prepare(ImageOps.invert(page)).tobytes() == page.tobytes()
    half = page.copy()
    half.paste(0, (0, 400, 1100, 800))
    assert ocr_picture.prepare(half).tobytes() == half.tobytes()


def test_sizes_are_kept_within_bounds() -> None:
    assert ocr_picture.prepare(Image.new("L", (400, 100), 255)).size == (800, 200)
    assert ocr_picture.prepare(Image.new("L", (35_000, 20), 255)).width == ocr_picture.MAX_SIDE
    wide, high = ocr_picture.prepare(Image.new("1", (9_000, 6_000), 1)).size
    assert ocr_picture.MAX_PIXELS * 0.99 < wide * high <= ocr_picture.MAX_PIXELS
    assert ocr_picture.enlarge(Image.new("L", (1000, 500), 255), 2.0).size == (2000, 1000)  # type: ignore[union-attr]
    assert ocr_picture.enlarge(Image.new("L", (6_300, 6_300), 255), 2.0) is None


@pytest.mark.parametrize("degrees", [-12.0, -5.0, 3.0, 12.0])
def test_skew_is_found_and_taken_off(degrees: float) -> None:
    askew = _page().rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=255)
    lie = ocr_picture.lean(askew)
    assert lie.skew == pytest.approx(-degrees, abs=0.5)
    assert not lie.sideways
    assert abs(ocr_picture.lean(ocr_picture.straighten(askew, lie.skew)).skew) == 0


def test_lines_that_run_up_the_page_are_seen_with_their_skew() -> None:
    sideways = _page().rotate(94, Image.Resampling.BICUBIC, expand=True, fillcolor=255)
    lie = ocr_picture.lean(sideways)
    assert lie.sideways
    assert lie.skew == pytest.approx(-4, abs=0.5)


def test_straight_pages_and_pictures_without_lines_are_left_alone() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (600, 600), dtype=np.uint8))
    for image in (_page(), noise, Image.new("L", (600, 600), 255)):
        assert ocr_picture.lean(image) == ocr_picture.Lean(0.0, False)
        assert ocr_picture.straighten(image, 0.0) is image


def test_turning_is_clockwise() -> None:
    image = Image.new("L", (4, 2), 255)
    image.putpixel((0, 0), 0)
    assert ocr_picture.turn(image, 90).getpixel((1, 0)) == 0
    assert ocr_picture.turn(image, 180).getpixel((3, 1)) == 0
    assert ocr_picture.turn(image, 270).getpixel((0, 3)) == 0
    assert ocr_picture.turn(image, 0) is image


def test_shadows_grain_and_ink_are_told_apart() -> None:
    page = _page()
    shade = np.linspace(0.3, 1.0, page.width)[None, :]
    shaded = Image.fromarray((np.asarray(page) * shade).astype(np.uint8))
    grain = np.random.default_rng(0).normal(0, 20, (page.height, page.width))
    grained = Image.fromarray((np.asarray(page) * 0.6 + 60 + grain).clip(0, 255).astype(np.uint8))
    assert [ocr_picture.uneven(image) for image in (page, shaded, grained)] == [False, True, False]
    assert [ocr_picture.grainy(image) for image in (page, shaded, grained)] == [False, False, True]
    assert not ocr_picture.grainy(ocr_picture.smooth(grained))
    assert ocr_picture.ink(Image.new("L", (900, 900), 90)) == 0
    assert ocr_picture.ink(page) == pytest.approx(ocr_picture.ink(shaded), rel=0.3)


def test_empty_margins_are_cut_off_and_faint_traces_are_not() -> None:
    sheet = Image.new("L", (2400, 3200), 250)
    ImageDraw.Draw(sheet).text((900, 1500), "Total 8842", fill=20, font=ImageFont.load_default(48))
    wide, high = ocr_picture.trim(sheet).size
    assert 250 < wide < 500
    assert 50 < high < 250
    ImageDraw.Draw(sheet).text((200, 3000), "printed in grey", fill=230, font=ImageFont.load_default(48))
    assert ocr_picture.trim(sheet).size > (1000, 1500)
    blank = Image.new("L", (2400, 3200), 250)
    assert ocr_picture.trim(blank) is blank
