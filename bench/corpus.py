"""A made-up collection of any size, the same for the same seed: text, vectors, and questions about it.

Words follow Zipf's law with the offset of Mandelbrot, function words of English among them; half of a chunk's other
words come from its topic. Some words stand in half of all chunks, some codes in three. Vectors lie around the centres
of topics; centres and spread share one decaying spectrum, as those of language models do (a cloud that spreads alike in
all directions has no near neighbours to find).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

DIMENSIONS = 384
TOPICS = 500
VOCABULARY = 30_000
TOPIC_WORDS = 80
CODES = 60
ROWS_A_CODE = 3
FAR_ROWS = 20
FUNCTION_WORDS = tuple(
    word
    for line in (
        "the of and to in a is that for it was on are as with his they at be this from have or by one had not",
        "but what all were when we there can an your which their if will",
    )
    for word in line.split()
)
HALF_WORDS = ("server", "customer", "pressure", "invoice")
"""Each stands in half of the chunks."""
KINDS = ("a rare code", "two rare words", "a word in half the rows", "a long question")
FILTERS: Mapping[str, dict[str, Any]] = {"none": {}, "25 %": {"quarter": 1}, "0.2 %": {"part": 77}}

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: a text, and its vector."""

    text: str
    vector: Vectors


@dataclass(frozen=True, slots=True)
class Corpus:
    """Chunks and questions.

    Attributes:
        texts: one of 80 to 120 words for each chunk.
        vectors: shape `(chunks, DIMENSIONS)`, of length 1.
        metadata: `quarter` is the same for a quarter of the chunks, `part` for one in 500, `far` marks `far_rows`.
        questions: of each of `KINDS`.
        far: a question from whose vector no rows are farther than `far_rows`.
    """

    texts: Sequence[str]
    vectors: Vectors
    metadata: Sequence[dict[str, Any]]
    questions: Mapping[str, Sequence[Question]]
    far: Question
    far_rows: Sequence[int]

    def rows_with(self, metadata: Mapping[str, Any]) -> NDArray[np.int64]:
        """Positions of the chunks whose metadata contains this."""
        wanted = metadata.items()
        return np.array([at for at, held in enumerate(self.metadata) if wanted <= held.items()], dtype=np.int64)


def build_corpus(chunks: int, questions: int, *, seed: int = 7) -> Corpus:
    """Make up a collection.

    Args:
        chunks: how many; at least 300, since every code stands in three.
        questions: how many of each kind.
        seed: of all that is random.
    """
    random = np.random.default_rng(seed)
    words = np.array([*_content_words(random), *FUNCTION_WORDS, *HALF_WORDS, *(f"QX-{4700 + n}" for n in range(CODES))])
    topics = random.integers(0, TOPICS, chunks)
    starts, drawn = _draw_words(random, topics)
    coded = random.choice(chunks, (CODES, ROWS_A_CODE), replace=False)
    for number, rows in enumerate(coded):
        drawn[starts[rows] + random.integers(10, 70, ROWS_A_CODE)] = len(words) - CODES + number
    ends = [*starts[1:], len(drawn)]
    texts = [_prose(words[drawn[start:end]]) for start, end in zip(starts, ends, strict=True)]

    spectrum = (1 + np.arange(DIMENSIONS, dtype=np.float32)) ** -0.5
    centres = random.standard_normal((TOPICS, DIMENSIONS), dtype=np.float32) * spectrum

    def near(topic: NDArray[np.int64]) -> Vectors:
        spread = random.standard_normal((len(topic), DIMENSIONS), dtype=np.float32) * spectrum
        vectors = centres[topic] + np.float32(0.6) * spread
        result: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return result

    vectors = near(topics)
    chunk_of = np.repeat(np.arange(chunks), np.diff([*starts, len(drawn)]))
    holders = np.bincount(np.unique(chunk_of * len(words) + drawn) % len(words), minlength=len(words))

    def content(row: int, low: int, high: int) -> NDArray[np.int64]:
        found = np.unique(drawn[starts[row] : ends[row]])
        return found[(found < VOCABULARY) & (holders[found] >= low) & (holders[found] <= high)]

    asked: dict[str, list[Question]] = {kind: [] for kind in KINDS}
    rows = iter(random.permutation(np.tile(np.arange(chunks), 20)))
    for number in range(questions):
        code, row = (11 + number) % CODES, 0
        texts_of = {KINDS[0]: (f"what does {words[len(words) - CODES + code]} mean", int(coded[code, 0]))}
        while len(rare := content(row := int(next(rows)), 2, 50)) < 2:
            pass
        texts_of[KINDS[1]] = (" ".join(words[random.choice(rare, 2, replace=False)]), row)
        texts_of[KINDS[2]] = (HALF_WORDS[number % len(HALF_WORDS)], int(next(rows)))
        while len(mixed := content(row := int(next(rows)), 2, chunks)) < 12:
            pass
        texts_of[KINDS[3]] = (" ".join(words[random.choice(mixed, 12, replace=False)]), row)
        for kind, (text, row) in texts_of.items():
            asked[kind].append(Question(text, near(topics[[row]])[0]))

    far = asked[KINDS[3]][0]
    far_rows = [int(row) for row in np.argsort(vectors @ far.vector)[:FAR_ROWS]]
    metadata: list[dict[str, Any]] = [{"quarter": n % 4, "part": n % 500} for n in range(chunks)]
    for row in far_rows:
        metadata[row]["far"] = True
    return Corpus(texts, vectors, metadata, asked, far, far_rows)


def _content_words(random: np.random.Generator) -> list[str]:
    onsets = [*"bcdfgklmnprstvz", *(first + "r" for first in "bcdgpt"), "pl", "st"]
    syllables = [onset + vowel for onset, vowel in product(onsets, "aeiou")]
    endings = ["", "", "l", "m", "n", "r", "t", "x"]
    found: dict[str, None] = {}
    while len(found) < VOCABULARY:
        parts = [syllables[n] for n in random.integers(0, len(syllables), random.integers(2, 5))]
        found["".join(parts) + endings[random.integers(len(endings))]] = None
    return list(found)


def _draw_words(random: np.random.Generator, topics: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each chunk starts in the run of words, and the words, as positions in the list of all."""
    lengths = random.integers(80, 121, len(topics))
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    total = int(lengths.sum())
    drawn = _zipf(random, VOCABULARY, total)
    of_topics = random.integers(200, VOCABULARY, (TOPICS, TOPIC_WORDS))
    kind = random.random(total)
    by_topic = kind < 0.28
    drawn[by_topic] = of_topics[np.repeat(topics, lengths)[by_topic], _zipf(random, TOPIC_WORDS, int(by_topic.sum()))]
    functional = kind > 0.58
    drawn[functional] = VOCABULARY + _zipf(random, len(FUNCTION_WORDS), int(functional.sum()))
    for number in range(len(HALF_WORDS)):
        rows = np.flatnonzero(random.random(len(topics)) < 0.5)
        drawn[starts[rows] + random.integers(72, 74, len(rows)) + 2 * number] = (
            VOCABULARY + len(FUNCTION_WORDS) + number
        )
    return starts, drawn


def _zipf(random: np.random.Generator, words: int, count: int) -> NDArray[np.int64]:
    weights = (np.arange(words) + 2.7) ** -1.05
    return np.searchsorted(np.cumsum(weights / weights.sum()), random.random(count)).clip(max=words - 1)


def _prose(words: NDArray[np.str_]) -> str:
    sentences = (" ".join(words[at : at + 14]) for at in range(0, len(words), 14))
    return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences)
