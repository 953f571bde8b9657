"""Which text search configuration a text wants: detection of its language, in the names Postgres uses.

The detector is `py3langid` (a naive Bayes model over byte n-grams). Its 140 classes are cut down to the
languages that Postgres has a stemmer for and to those that are common, or have a script of their own, and
have none: the latter give `simple`. A language that is in neither group is taken for its nearest kin, which
is what a stemmer wants (Galician is stemmed as Portuguese). Loading takes most of a second, once a process;
the model is plain data, so it survives a fork and may be shared by threads. A chunk of 1,000 characters
takes about 0.4 ms.
"""

from __future__ import annotations

from functools import cache
from typing import Any

SIMPLE = "simple"

CONFIGURATIONS = {
    "ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek",
    "en": "english", "es": "spanish", "eu": "basque", "fi": "finnish", "fr": "french",
    "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian",
    "it": "italian", "lt": "lithuanian", "ne": "nepali", "nl": "dutch", "nn": "norwegian",
    "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian",
    "sv": "swedish", "ta": "tamil", "tr": "turkish",
}  # fmt: skip
"""ISO 639 code to configuration, for what every Postgres since 14 has. `estonian` came with 18 and would
fail on an older server, so Estonian gives `simple`; `yiddish` exists, but the detector does not know the
language."""

_WITHOUT_STEMMER = frozenset({
    "am", "az", "be", "bg", "bn", "cs", "cy", "et", "fa", "gu", "he", "hr", "is", "ja",
    "ka", "kk", "km", "kn", "ko", "lo", "lv", "mk", "ml", "mn", "mr", "mt", "my", "pa",
    "pl", "ps", "si", "sk", "sl", "sq", "sw", "te", "th", "uk", "ur", "vi", "wuu", "yue",
    "zh",
})  # fmt: skip
_NO_LANGUAGE = "zxx"  # the detector's class for numbers, markup and the like

_SAMPLE = 1000  # characters looked at
_SAMPLES = 4  # places of a document looked at
_MIN_LETTERS = 60  # on 60 English letters and fewer the detector starts to err
_MIN_CONFIDENCE = 0.8


@cache
def _identifier() -> Any:
    from py3langid import langid

    identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
    identifier.set_languages({*CONFIGURATIONS, *_WITHOUT_STEMMER, _NO_LANGUAGE})
    return identifier


def _has_letters(text: str) -> bool:
    """Whether there are enough to tell; one of an East Asian script says as much as three, an Indic one as two."""
    count = 0
    for char in text:
        if char.isalpha():
            count += 3 if char >= "\u2e80" else 2 if char >= "\u0900" else 1
            if count >= _MIN_LETTERS:
                return True
    return False


def detect_language(text: str, default: str) -> str:
    """Name of the built-in text search configuration for a text, e.g. `french`.

    Args:
        text: its first 1,000 characters are looked at.
        default: returned where the text is too short to tell, has no language or leaves the detector unsure.

    Returns:
        A name that exists in every Postgres since 14; `simple` for a language surely seen that has no
        stemmer.
    """
    sample = text[:_SAMPLE]
    if not _has_letters(sample):
        return default
    code, confidence = _identifier().classify(sample)
    if confidence < _MIN_CONFIDENCE or code == _NO_LANGUAGE:
        return default
    return CONFIGURATIONS.get(code, SIMPLE)


def document_language(text: str, default: str) -> str:
    """The same for a whole document, from four samples spread evenly over it.

    Each sample votes; where no language has more votes than every other one, the first of them in the text
    wins.
    """
    step = max(_SAMPLE, len(text) // _SAMPLES)
    votes: dict[str, int] = {}
    for start in range(0, min(len(text), step * _SAMPLES), step):
        language = detect_language(text[start : start + _SAMPLE], "")
        if language:
            votes[language] = votes.get(language, 0) + 1
    return max(votes, key=lambda language: votes[language], default=default)
