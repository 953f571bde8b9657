-- What keeps all workers from taking documents for a while: trouble with the embedder that is not a document's own, and
-- the day's budget of tokens.
create table pauses (
  what        text primary key check (what in ('embedding', 'budget')),
  since       timestamptz not null default now(),
  until       timestamptz not null,
  strikes     int not null default 1,
  code        text not null,
  cause       text not null,
  remedy      text not null
);

comment on table pauses is 'While a row stands, no document is claimed, but by the one scout that an embedding pause lets through at a time';
comment on column pauses.until is
  'budget: it is over then. embedding: one claim then goes through to find out, and this is moved on until it is back';
comment on column pauses.strikes is 'Pauses in a row, for the growth of the back-off';

create table embedding_usage (
  day         date primary key,
  tokens      bigint not null
);

comment on table embedding_usage is
  'Estimated tokens of texts sent to the embedder, by UTC day; counted where GRISTMILL_EMBED_TOKENS_PER_DAY is set';
comment on column embedding_usage.tokens is 'Counted before they are sent; given back where the endpoint refused';

alter table index_models add column served text;
comment on column index_models.served is
  'Name under which the endpoint answers for the model, as first met: another name is another model until this is null';
