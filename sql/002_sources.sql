-- The ledger: one row for each document that exists out there. It is level-triggered: a row is due when
-- done_version < version, whatever messages were lost, doubled or late.
create table sources (
  id              bigint generated always as identity primary key,
  tenant          text not null default 'default',
  uri             text not null,
  kind            text not null default 'file',
  version         bigint not null default 1,
  done_version    bigint not null default 0,
  state           text not null default 'pending'
                  check (state in ('pending', 'leased', 'reading', 'done', 'failed', 'dead', 'deleted')),
  attempts        int not null default 0,
  delays          int not null default 0,
  token           uuid,
  leased_version  bigint,
  lease_until     timestamptz,
  holder          text,
  next_at         timestamptz not null default now(),
  error_code      text,
  error_cause     text,
  error_remedy    text,
  location        text,
  parent_id       bigint references sources (id) on delete cascade,
  depth           int not null default 0,
  filename        text,
  language        text,
  fingerprint     text,
  content_hash    bytea,
  recipe          text,
  mime            text,
  title           text,
  metadata        jsonb not null default '{}',
  report          jsonb not null default '{}',
  pages           int,
  pages_done      int,
  chunks          int,
  tokens          bigint,
  event_at        timestamptz not null default now(),
  searchable_at   timestamptz,
  created_at      timestamptz not null default now(),
  updated_at      timestamptz not null default now(),
  unique (tenant, uri),
  check ((state = 'leased') = (token is not null))
);

create index sources_due on sources (next_at, id) where state in ('pending', 'leased');
create index sources_state on sources (state, updated_at);
create index sources_location on sources (location) where location is not null;
create index sources_parent on sources (parent_id) where parent_id is not null;
create index sources_uri_prefix on sources (tenant, uri text_pattern_ops);

comment on table sources is 'Ledger: one row a document out there; what must be done with it and what has been done';
comment on column sources.uri is 'Identity of the document within its tenant, e.g. file:///srv/drop/a.pdf';
comment on column sources.kind is
  'Where the bytes are: file (at the uri), upload, text, attachment, synced and enclosure (in the spool, under location), url (fetched from location)';
comment on column sources.location is 'Name of the bytes in the spool; address of a url; null for a synced one that could not be had yet';
comment on column sources.parent_id is
  'The document that this one was found inside of (an e-mail, a PDF with attachments) or comes with (a file of a page)';
comment on column sources.depth is 'How many documents it was found inside of; 0 for one that came by itself';
comment on column sources.filename is 'What people call the document; its suffix is a hint at the format';
comment on column sources.language is 'Text search configuration the producer gave; null detects it for each chunk';
comment on column sources.version is 'Raised by every event (new, changed, renamed, deleted, retried)';
comment on column sources.state is
  'pending: due; leased: a worker has it; reading: its pages are with the OCR workers (page_ranges); the rest are ends';
comment on column sources.done_version is 'Highest version that was worked off; due while below version';
comment on column sources.attempts is 'Attempts on this version, counted when claimed';
comment on column sources.delays is 'Postponements in a row, for the growth of the back-off; not all of them are attempts';
comment on column sources.token is 'Set by a claim; a worker whose token is gone is fenced and its work dropped';
comment on column sources.lease_until is 'A lease that ran out may be claimed by anybody';
comment on column sources.holder is 'host:pid of the claimer, for people';
comment on column sources.next_at is 'Not claimed before (back-off) and not announced again before';
comment on column sources.fingerprint is 'What the producer saw (size, mtime, inode): a rescan that sees the same changes nothing';
comment on column sources.content_hash is 'SHA-256 of the bytes last indexed';
comment on column sources.recipe is 'Digest of the settings they were indexed with: same hash and recipe, nothing to do';
comment on column sources.report is 'Per-page decisions and warnings of the last extraction';
comment on column sources.pages_done is 'Pages read so far while leased or reading, by all workers together';
comment on column sources.event_at is 'When the event that raised version arrived';
comment on column sources.searchable_at is 'When done_version was committed; minus event_at it is the time to searchable';
