-- Pages that wait for OCR: a long scan is cut into ranges, which all OCR workers of an installation share out.

create table page_ranges (
  id            bigint generated always as identity primary key,
  source_id     bigint not null references sources (id) on delete cascade,
  version       bigint not null,
  content_hash  bytea not null,
  recipe        text not null,
  location      text,
  name          text not null,
  ordinal       int not null,
  pages         int[] not null check (cardinality(pages) > 0),
  result        jsonb not null default '[]',
  pages_done    int generated always as (jsonb_array_length(result)) stored,
  state         text not null default 'pending' check (state in ('pending', 'leased', 'done')),
  attempts      int not null default 0,
  delays        int not null default 0,
  token         uuid,
  lease_until   timestamptz,
  holder        text,
  next_at       timestamptz not null default now(),
  error_code    text,
  error_cause   text,
  error_remedy  text,
  created_at    timestamptz not null default now(),
  updated_at    timestamptz not null default now(),
  unique (source_id, ordinal),
  check ((state = 'leased') = (token is not null)),
  check ((state = 'done') = (jsonb_array_length(result) = cardinality(pages)))
);

create index page_ranges_due on page_ranges (ordinal, id) where state in ('pending', 'leased');
create index page_ranges_location on page_ranges (location) where location is not null;

comment on table page_ranges is
  'Pages of a source in state reading, in parts that OCR workers claim; gone once the source is committed';
comment on column page_ranges.version is 'Version of the source that the bytes were last read for';
comment on column page_ranges.content_hash is 'SHA-256 of the bytes whose pages these are; with other bytes they are void';
comment on column page_ranges.recipe is 'What OCR depends on: version of our reader, languages, dpi';
comment on column page_ranges.location is 'Name of the bytes in the spool; null: they are at the uri of the source';
comment on column page_ranges.name is 'What the document is called; its suffix is a hint at the format';
comment on column page_ranges.ordinal is
  'Position among the ranges of its source: claimed in this order, so that documents take turns';
comment on column page_ranges.pages is '1-based page numbers, in the order they are read';
comment on column page_ranges.result is 'One object a finished page, as pipelines.types.OcrPage; also pages that failed';
comment on column page_ranges.pages_done is 'The page after these is the one being read';
comment on column page_ranges.attempts is 'Attempts on the page being read, counted when claimed';
comment on column page_ranges.delays is 'Postponements in a row, for the growth of the back-off';
comment on column page_ranges.token is 'Set by a claim; a worker whose token is gone is fenced and its work dropped';
comment on column page_ranges.lease_until is 'A lease that ran out may be claimed by anybody';
comment on column page_ranges.holder is 'host:pid of the claimer, for people';
comment on column page_ranges.next_at is 'Not claimed before (back-off)';
comment on column page_ranges.error_code is 'Of the last attempt that failed';
