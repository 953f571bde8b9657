-- Syncs: places that documents come from by themselves (a wiki, a site, a bucket), each kept in step by runs that
-- take turns under a lease, and what is remembered of every document there until the next run.

create table syncs (
  id            bigint generated always as identity primary key,
  tenant        text not null default 'default',
  name          text not null,
  kind          text not null,
  next_at       timestamptz,
  asked_at      timestamptz,
  not_before    timestamptz,
  full_at       timestamptz,
  token         uuid,
  lease_until   timestamptz,
  holder        text,
  cursor        jsonb not null default '{}',
  recipe        text,
  failures      int not null default 0,
  begun_at      timestamptz,
  ended_at      timestamptz,
  succeeded_at  timestamptz,
  confirmed_at  timestamptz,
  counts        jsonb not null default '{}',
  notices       jsonb not null default '[]',
  error_code    text,
  error_cause   text,
  error_remedy  text,
  created_at    timestamptz not null default now(),
  unique (tenant, name)
);

comment on table syncs is 'One row a sync of GRISTMILL_SYNCS: when it is due, who runs it, how the last run ended';
comment on column syncs.kind is 'Type of its connector: notion, sitemap, pages, feed, bucket, folder';
comment on column syncs.next_at is 'When its schedule has it due; null: it has none';
comment on column syncs.asked_at is 'Somebody asked for a run, whatever the schedule says';
comment on column syncs.not_before is 'The provider asked to wait, or a run failed: no run before';
comment on column syncs.full_at is 'When everything is to be listed again rather than what has changed; null: next time';
comment on column syncs.token is 'Set by a claim; a run whose token is gone is fenced and writes nothing more';
comment on column syncs.lease_until is 'A lease that ran out may be claimed by anybody';
comment on column syncs.holder is 'host:pid of the claimer, for people';
comment on column syncs.cursor is 'Left by the last run that went well, for the connector';
comment on column syncs.recipe is 'Digest of the settings that everything was last listed with; others list it again';
comment on column syncs.failures is 'Runs in a row that did not go well, for the growth of the back-off';
comment on column syncs.confirmed_at is 'When a person last had all deleted that was gone: that is not held against what goes later';
comment on column syncs.counts is 'Of the last run: listed, visited, new, changed, unchanged, moved, removed, failed, ...';
comment on column syncs.notices is 'Of the last run: why its listing was not complete, why nothing was deleted';

create table synced (
  sync_id        bigint not null references syncs (id) on delete cascade,
  key            text not null,
  source_id      bigint not null references sources (id) on delete cascade,
  version        text,
  state          jsonb not null default '{}',
  check_at       timestamptz,
  visited_at     timestamptz not null,
  first_seen     timestamptz not null,
  failures       int not null default 0,
  refused        text,
  misses         int not null default 0,
  missing_since  timestamptz,
  removed_at     timestamptz,
  primary key (sync_id, key)
);

create index synced_source on synced (source_id);
create index synced_due on synced (sync_id, check_at) where check_at is not null;
create index synced_version on synced (sync_id, version) where version is not null;

comment on table synced is 'What a sync remembers of each document that it keeps in step';
comment on column synced.key is 'What the connector calls the document: a page id, an address, the name of an object';
comment on column synced.source_id is 'Its row in the ledger; several keys may turn out to be one document';
comment on column synced.version is 'As the provider told it at the last visit that went well; null: not settled';
comment on column synced.state is 'What the connector wants to know at the next visit: validators, the interval, children';
comment on column synced.check_at is 'When it is to be visited whatever a listing says; null: when its version changes';
comment on column synced.first_seen is 'A document that came during a run is not missed by its listing';
comment on column synced.failures is 'Visits in a row that failed';
comment on column synced.refused is
  'Version that the last failed visit, or look that did not find it, was about: another is worth a visit before its time';
comment on column synced.misses is 'Looks in a row that did not find it';
comment on column synced.missing_since is 'The first of those';
comment on column synced.removed_at is 'When it left the index for that; the row stays until a later look confirms it';

create table sync_hints (
  sync_id      bigint not null references syncs (id) on delete cascade,
  key          text not null,
  received_at  timestamptz not null default clock_timestamp(),
  primary key (sync_id, key)
);

comment on table sync_hints is 'Documents that a provider told of (webhooks), to be visited soon; a hint is a wake-up, no more';
