"""Which languages Tesseract is to read a page in."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pipelines.errors import PermanentError
from pipelines.extract.ocr import tesseract

_CODES_TO_PACKAGES = {"eng": "tesseract-ocr"}
_MOST_OTHERS = 3

# The languages of each script as orientation and script detection names it, the most written first.
_SCRIPTS = {
    "Latin": "eng fra deu spa por ita nld pol tur vie ces ron hun swe dan nor fin cat slk hrv slv lit lav est ind msa",
    "Fraktur": "frk deu_latf deu",
    "Han": "chi_sim chi_tra jpn",
    "Hiragana": "jpn",
    "Katakana": "jpn",
    "Japanese": "jpn",
    "Hangul": "kor",
    "Korean": "kor",
    "Cyrillic": "rus ukr bul srp bel mkd kaz",
    "Arabic": "ara fas urd",
    "Hebrew": "heb yid",
    "Greek": "ell grc",
    "Devanagari": "hin mar nep san",
    "Bengali": "ben asm",
    "Gujarati": "guj",
    "Gurmukhi": "pan",
    "Tamil": "tam",
    "Telugu": "tel",
    "Kannada": "kan",
    "Malayalam": "mal",
    "Oriya": "ori",
    "Sinhala": "sin",
    "Thai": "tha",
    "Lao": "lao",
    "Khmer": "khm",
    "Myanmar": "mya",
    "Tibetan": "bod",
    "Georgian": "kat",
    "Armenian": "hye",
    "Ethiopic": "amh tir",
    "Cherokee": "chr",
    "Syriac": "syr",
    "Thaana": "div",
}


@dataclass(frozen=True, slots=True)
class OcrLanguages:
    """Which of the wanted languages are installed; `warnings` names those that are not.

    Attributes:
        code: Tesseract codes with `+` between.
        orientation: whether the data that finds orientation and script is installed too.
    """

    code: str
    orientation: bool
    warnings: tuple[str, ...] = ()


def choose_languages(wanted: str, what: str) -> OcrLanguages:
    """The wanted languages as far as their data is installed.

    Args:
        wanted: codes with `+` between.
        what: what needs OCR, for the error: `page 3 is a scan`.

    Raises:
        PermanentError: `ocr_unavailable` where Tesseract, or data for every wanted language, is missing.
    """
    codes = [code for code in wanted.split("+") if code]
    packages = " ".join(dict.fromkeys(["tesseract-ocr", *(_package(code) for code in codes)]))
    remedy = f"install tesseract-ocr (Debian: apt-get install {packages}), then `gristmill retry`"
    installed = installed_languages()
    if installed is None:
        raise PermanentError("ocr_unavailable", f"{what} and tesseract is not installed", remedy)
    usable = [code for code in codes if code in installed]
    missing = [code for code in codes if code not in installed]
    if not usable:
        raise PermanentError(
            "ocr_unavailable",
            f"{what} and tesseract has no data for {', '.join(codes) or 'any language'}",
            remedy,
        )
    warnings = tuple(
        f"OCR without language {code}: its data is not installed (Debian: apt-get install {_package(code)})"
        for code in missing
    )
    return OcrLanguages("+".join(usable), "osd" in installed, warnings)


@functools.cache
def installed_languages() -> frozenset[str] | None:
    """Codes of the languages Tesseract has data for (`osd` among them); None where it is not installed."""
    return tesseract.languages()


def fits(script: str, code: str) -> bool:
    """Whether one of the languages in `code` is written in the script, or that is not known."""
    known = _written_in(script)
    return not known or bool(set(known) & set(code.split("+")))


def other_languages(script: str, code: str) -> str | None:
    """Installed languages of a script that are not in `code`, with `+` between; the most written come first."""
    installed = installed_languages() or frozenset()
    used = code.split("+")
    others = [one for one in _written_in(script) if one in installed and one not in used][:_MOST_OTHERS]
    # Together with the wanted ones where they share a script: the page may hold both.
    return "+".join([*used, *others] if fits(script, code) else others) if others else None


def advice(script: str) -> str:
    """What to install so that pages in a script can be read."""
    packages = [_package(code) for code in _written_in(script)[:2]]
    return f"written in {script} script: install {' or '.join(packages)} and name it in GRISTMILL_OCR_LANGUAGES"


def _written_in(script: str) -> list[str]:
    return _SCRIPTS.get(script, "").split()


def _package(code: str) -> str:
    return _CODES_TO_PACKAGES.get(code, f"tesseract-ocr-{code.lower().replace('_', '-')}")
