"""`POST /search`: a question in, the best passages out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from pipelines.search import MOST_HITS, Hit, Mode, Options, check_model, embed_question, search
from pipelines.types import Vector
from worker.receivers.auth import Caller, require
from worker.receivers.context import Context, Shared
from worker.receivers.fields import MOST_ID, Language, Metadata, mend
from worker.receivers.intake import check_language

MOST_QUERY_CHARACTERS = 20_000
MOST_SOURCES = 10_000

router = APIRouter(tags=["search"])


def _no_filter(value: Any) -> Any:
    return {} if value is None else value


def _words(value: Any) -> Any:
    return mend(value).replace("\ufffd", " ") if isinstance(value, str) else value


class Question(BaseModel):
    """What to look for and how; only `query` is needed."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"query": "How long is the notice period?", "k": 5},
                {"query": "E-4711", "mode": "keyword", "filter": {"department": "legal"}, "neighbours": 1},
            ]
        },
    )

    query: Annotated[str, BeforeValidator(_words)] = Field(
        min_length=1,
        max_length=MOST_QUERY_CHARACTERS,
        validation_alias=AliasChoices("query", "query_text"),
        description="A question, some words, or a code",
    )
    k: int = Field(
        10,
        ge=1,
        le=MOST_HITS,
        validation_alias=AliasChoices("k", "top_k", "match_count"),
        description="How many passages; also taken as `top_k` or `match_count`",
    )
    mode: Mode = Field("hybrid", description="Which legs take part; auto looks at the question")
    filter: Annotated[Metadata, BeforeValidator(_no_filter)] = Field(
        default_factory=dict, description="Metadata that a hit must contain"
    )
    sources: list[Annotated[int, Field(ge=1, le=MOST_ID)]] | None = Field(
        None, max_length=MOST_SOURCES, description="Ids of the documents that a hit must come from"
    )
    language: Language | None = Field(None, description="Language that a hit must be in")
    since: datetime | None = Field(None, description="Only passages added at or after this time")
    until: datetime | None = Field(None, description="Only passages added before this time")
    query_language: Language | None = Field(None, description="Language of the question; left out, it is detected")
    alpha: float | None = Field(None, ge=0, le=1, allow_inf_nan=False, description="Share of the vector leg")
    rrf_k: int | None = Field(None, ge=1, le=1_000_000, description="Fuse by reciprocal rank with this k")
    highlight: bool = Field(False, description="Also give snippets with the words of the question marked")
    neighbours: int = Field(0, ge=0, le=100, description="Passages to show before and after each hit")

    def options(self, tenant: str) -> Options:
        """The same for the search itself, among the documents of a tenant."""
        return Options(
            k=self.k,
            mode=self.mode,
            filter=self.filter,
            sources=self.sources,
            language=self.language,
            since=_aware(self.since),
            until=_aware(self.until),
            query_language=self.query_language,
            alpha=self.alpha,
            rrf_k=self.rrf_k,
            highlight=self.highlight,
            neighbours=self.neighbours,
            tenant=tenant,
        )


class Ranks(BaseModel):
    """1-based rank in each leg; null where that leg did not find it."""

    vector: int | None
    keyword: int | None
    identifier: int | None


class Passage(BaseModel):
    """One passage that answers."""

    id: int
    uri: str | None = Field(description="Of the document; null for rows that others inserted without one")
    content: str
    metadata: dict[str, Any] = Field(
        description="Title, filename, page, section and what was sent with the document",
        examples=[{"title": "Handbook", "filename": "handbook.pdf", "page": 12}],
    )
    score: float = Field(description="Higher is better; comparable within one answer only")
    ranks: Ranks
    similarity: float | None = Field(description="Cosine with the question; null without its vector")
    snippet: str | None

    @classmethod
    def of(cls, hit: Hit) -> Passage:
        """The passage as it is answered."""
        return cls.model_validate(hit.as_json())


class Answer(BaseModel):
    """The passages, best first."""

    hits: list[Passage]
    mode: Mode


@router.post("/search", summary="Find passages by meaning and by exact code")
async def ask(context: Shared, question: Question, caller: Annotated[Caller, Depends(require("search"))]) -> Answer:
    """Embeds the question with the model of the index and fuses what the legs find. One call is all it takes."""
    keyword = question.mode == "keyword"
    vector = None if keyword else await context.lanes.embedding.run(_embedded, context, question)
    return await context.lanes.search.run(_answer, context, question, caller.tenant, vector)


def _embedded(context: Context, question: Question) -> Vector:
    embedder = context.embedder()
    with context.connection() as connection:
        check_language(connection, question.language)  # before an endpoint is paid
        check_model(connection, embedder)
    return embed_question(question.query, embedder)


def _answer(context: Context, question: Question, tenant: str, vector: Vector | None) -> Answer:
    with context.connection() as connection:
        check_language(connection, question.language)  # else a word misspelt would look like nothing found
        hits = search(connection, question.query, None, question.options(tenant), vector=vector)
    return Answer(hits=[Passage.of(hit) for hit in hits], mode=question.mode)


def _aware(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time and time.tzinfo is None else time
