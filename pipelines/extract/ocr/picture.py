"""The picture of a page made fit for Tesseract: grey, dark on light, within its limits of size, upright, straight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

MAX_PIXELS = 40_000_000
MAX_SIDE = 32_000
_SMALL_SIDE = 1_000
_LOW_SIDE = 2_000
_STRIP_PIXELS = 4_000_000
_DEEP_MODES = frozenset({"I", "F", "I;16", "I;16L", "I;16B", "I;16N"})

_COPY_SIDE = 900
_MOST_POINTS = 40_000
_FEWEST_POINTS = 200
_WIDEST = 15.0
_LEAST_SKEW = 2.5
_LEAST_PEAK = 1.25
_INK_CONTRAST = 24
_TRACE_CONTRAST = 6
_MARGIN = 40
_PATCH = 24
_UNEVEN = 48
_SAMPLE_SIDE = 256
_GRAINY = 0.08


@dataclass(frozen=True, slots=True)
class Lean:
    """How the lines of a page lie.

    Attributes:
        skew: degrees, counter-clockwise, to turn the picture by so that they are straight; 0 where that is not clear.
        sideways: they seem to run up or down the page.
    """

    skew: float
    sideways: bool


def prepare(image: Image.Image) -> Image.Image:
    """A picture of any mode as Tesseract reads it best: 8-bit grey, dark on light, transparency as white paper.

    It is at most `MAX_PIXELS` in area and `MAX_SIDE` in either side; small ones are doubled.
    """
    return _dark_on_light(_fit(_grey(image)))


def turn(image: Image.Image, degrees: int) -> Image.Image:
    """The picture turned clockwise by 0, 90, 180 or 270 degrees."""
    steps = {90: Image.Transpose.ROTATE_270, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_90}
    return image.transpose(steps[degrees]) if degrees else image


def trim(image: Image.Image) -> Image.Image:
    """A grey picture without the empty margins that Tesseract would have to look at."""
    copy = _copy(image)
    factor = -(-image.width // copy.width)
    box = Image.fromarray(_ink_map(copy, _TRACE_CONTRAST)).getbbox()
    if box is None:
        return image
    margin = _MARGIN + factor
    left, top = (max(0, at * factor - margin) for at in box[:2])
    right, bottom = min(image.width, box[2] * factor + margin), min(image.height, box[3] * factor + margin)
    return image.crop((left, top, right, bottom))


def straighten(image: Image.Image, skew: float) -> Image.Image:
    """The picture turned counter-clockwise by a few degrees, on a sheet large enough for its corners."""
    if not skew:
        return image
    # Low type loses its shape when it is turned pixel by pixel.
    if max(image.size) < _LOW_SIDE:
        image = enlarge(image, 1.5) or image
    paper = int(np.percentile(np.asarray(image.reduce(max(1, min(image.size) // 100))), 75))
    return image.rotate(skew, Image.Resampling.BICUBIC, expand=True, fillcolor=paper)


def enlarge(image: Image.Image, factor: float) -> Image.Image | None:
    """The picture larger by a factor, or by less where the limits demand it; None where that is hardly larger."""
    width, height = image.size
    factor = min(factor, (MAX_PIXELS / (width * height)) ** 0.5, MAX_SIDE / max(width, height))
    if factor < 1.2:
        return None
    return image.resize((int(width * factor), int(height * factor)), Image.Resampling.BICUBIC)


def smooth(image: Image.Image) -> Image.Image:
    """The picture without specks (a median) and without the grain that is left (a slight blur)."""
    return image.filter(ImageFilter.MedianFilter(3)).filter(ImageFilter.GaussianBlur(1))


def grainy(image: Image.Image) -> bool:
    """Whether the paper in the middle of a grey picture is so full of specks or grain that Tesseract sees no text."""
    left, top = (max(0, side // 2 - _SAMPLE_SIDE // 2) for side in image.size)
    sample = image.crop((left, top, min(left + _SAMPLE_SIDE, image.width), min(top + _SAMPLE_SIDE, image.height)))
    values = np.asarray(sample).astype(np.int16)
    calm = np.asarray(sample.filter(ImageFilter.MedianFilter(3))).astype(np.int16)
    paper = np.abs(calm - np.percentile(calm, 70)) < 40
    return bool((np.abs(values - calm)[paper] > 20).mean() > _GRAINY)


def uneven(image: Image.Image) -> bool:
    """Whether the paper of a grey picture is much darker in some parts: a shadow, a fold, a coloured box."""
    copy = np.asarray(_copy(image))
    rows, columns = (side // _PATCH for side in copy.shape)
    if rows < 2 or columns < 2:
        return False
    patches = copy[: rows * _PATCH, : columns * _PATCH].reshape(rows, _PATCH, columns, _PATCH)
    paper = np.percentile(patches, 80, axis=(1, 3))
    dark, light = np.percentile(paper, (10, 90))
    return bool(light - dark > _UNEVEN)


def ink(image: Image.Image) -> float:
    """Share of a grey picture that differs from the paper around it, 0 to 1."""
    return float(_ink_map(_copy(image)).mean())


def lean(image: Image.Image) -> Lean:
    """Find how the lines of a grey picture lie, from the profiles of its ink at many angles.

    Ink projected along the lines falls in sharp ridges, across them it does not: the sum of squares of the
    profile peaks at the angle of the lines (Postl, 1986).
    """
    y, x = np.nonzero(_ink_map(_copy(image)))
    if y.size < _FEWEST_POINTS:
        return Lean(0.0, False)
    step = -(-y.size // _MOST_POINTS)
    across, along = x[::step].astype(np.float32), y[::step].astype(np.float32)
    angle, peak = _sharpest(along, across)
    other_angle, other_peak = _sharpest(across, along)
    sideways = other_peak > 1.15 * peak and other_peak >= _LEAST_PEAK
    if sideways:
        angle, peak = -other_angle, other_peak
    clear = peak >= _LEAST_PEAK and _LEAST_SKEW <= abs(angle) < _WIDEST
    return Lean(-angle if clear else 0.0, sideways)


def _sharpest(v: NDArray[np.float32], u: NDArray[np.float32]) -> tuple[float, float]:
    """The angle at which the profile along `v` is sharpest, and how much sharper than at most others."""
    coarse = np.arange(-_WIDEST, _WIDEST + 0.5, 1.0)
    scores = np.array([_sharpness(v, u, angle) for angle in coarse])
    best = float(coarse[int(scores.argmax())])
    fine = best + np.arange(-0.75, 0.76, 0.25)
    fine_scores = np.array([_sharpness(v, u, angle) for angle in fine])
    return float(fine[int(fine_scores.argmax())]), float(fine_scores.max() / np.median(scores))


def _sharpness(v: NDArray[np.float32], u: NDArray[np.float32], degrees: float) -> float:
    slope = np.radians(degrees)
    rows = v * np.float32(np.cos(slope)) + u * np.float32(np.sin(slope))
    counts = np.bincount((rows - rows.min()).astype(np.int32)).astype(np.float64)
    return float((counts**2).sum())


def _copy(image: Image.Image) -> Image.Image:
    return image.reduce(max(1, round(max(image.size) / _COPY_SIDE)))


def _ink_map(copy: Image.Image, contrast: int = _INK_CONTRAST) -> NDArray[np.bool_]:
    """Where the picture is darker than its surroundings: shadows and coloured paper are not ink."""
    factor = min(24, *copy.size)
    paper = copy.reduce(factor).resize(copy.size, Image.Resampling.BILINEAR)
    darker: NDArray[np.bool_] = np.asarray(paper).astype(np.int16) - np.asarray(copy) > contrast
    return darker


def _grey(image: Image.Image) -> Image.Image:
    if image.mode == "L" and "transparency" not in image.info:
        return image
    span = _span(image) if image.mode in _DEEP_MODES else None
    grey = Image.new("L", image.size)
    # In strips: a large picture in full colour twice over would not fit in the memory allowed.
    height = max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, height):
        strip = image.crop((0, top, image.width, min(top + height, image.height)))
        strip.info = image.info
        grey.paste(_grey_strip(strip, span), (0, top))
    return grey


def _grey_strip(strip: Image.Image, span: tuple[float, float] | None) -> Image.Image:
    if span is not None:
        low, high = span
        values = np.nan_to_num(np.asarray(strip, dtype=np.float32), nan=low, posinf=high, neginf=low)
        return Image.fromarray(((values - low) * (255.0 / ((high - low) or 1.0))).clip(0, 255).astype(np.uint8))
    if strip.mode == "LAB":
        return strip.getchannel("L")
    if strip.has_transparency_data:
        strip = strip.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", strip.size, "white"), strip).convert("L")
    return strip.convert("L") if strip.mode in {"1", "L", "RGB", "P"} else strip.convert("RGB").convert("L")


def _span(image: Image.Image) -> tuple[float, float]:
    """Darkest and lightest value of a picture of more than 8 bits: how many of them are used is not said."""
    values = np.asarray(image)
    finite = values[np.isfinite(values)] if image.mode == "F" else values
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _fit(grey: Image.Image) -> Image.Image:
    width, height = grey.size
    scale = min(1.0, (MAX_PIXELS / (width * height)) ** 0.5, MAX_SIDE / max(width, height))
    if scale == 1.0 and max(width, height) < _SMALL_SIDE:
        scale = 2.0
    if scale == 1.0:
        return grey
    size = (max(1, int(width * scale)), max(1, int(height * scale)))
    return grey.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)


def _dark_on_light(grey: Image.Image) -> Image.Image:
    """Turned to its negative where the paper is dark: Tesseract would read every line twice."""
    histogram = np.array(_copy(grey).histogram())
    total = histogram.sum()
    if histogram[:96].sum() < 0.6 * total or histogram[160:].sum() > 0.35 * total:
        return grey
    return grey.point([255 - value for value in range(256)])
