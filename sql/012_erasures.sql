-- What was erased for good: receipts without content, and what is to stay out. A uri stands here only as a salted hash,
-- so that nobody finds out from these tables what was erased who does not know the uri already.

create table erasure_salt (
  only_row  boolean primary key default true check (only_row),
  salt      bytea not null default sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
);
insert into erasure_salt default values;
comment on table erasure_salt is 'Hashed together with every uri, once drawn for this installation';

create function erasure_hash(tenant text, uri text) returns bytea
language sql stable
begin atomic
  select sha256(salt || convert_to(jsonb_build_array(tenant, uri)::text, 'UTF8')) from erasure_salt;
end;
comment on function erasure_hash(text, text) is
  'Under which hash a document was erased; with null for the uri, a whole tenant';

create table erasures (
  id           bigint generated always as identity primary key,
  erased_at    timestamptz not null default now(),
  who          text not null,
  scope        text not null check (scope in ('document', 'tenant')),
  hash         bytea not null,
  kept_out     boolean not null,
  counts       jsonb not null default '{}',
  bytes        bigint not null default 0,
  finished_at  timestamptz
);
create index erasures_unfinished on erasures (erased_at) where finished_at is null;
comment on table erasures is 'Receipts: that something was erased, when and by whom, and how much; not what';
comment on column erasures.who is 'os: and the account that ran the command, or key: and the name of the API key';
comment on column erasures.hash is 'erasure_hash() of what was erased';
comment on column erasures.kept_out is 'It was to be kept out from then on';
comment on column erasures.counts is 'Rows by table, and files of the spool';
comment on column erasures.bytes is 'Of the text in the chunks and of the files in the spool, together';
comment on column erasures.finished_at is
  'When embedding cache and statistics were rid of it; until then housekeeping does it again';

create table kept_out (
  hash   bytea primary key,
  since  timestamptz not null default now()
);
comment on table kept_out is 'erasure_hash() of documents and tenants that must not come back';

create function is_kept_out(tenant text, uri text) returns boolean
language sql stable
begin atomic
  select exists (select from kept_out k where k.hash in (erasure_hash(tenant, uri), erasure_hash(tenant, null)));
end;
comment on function is_kept_out(text, text) is 'Whether a document was erased to stay out, by itself or with its tenant';

create function skip_kept_out() returns trigger
language plpgsql
set search_path from current
as $$
begin
  -- Whoever erases holds a lock that no insert passes, and this looks after it: nothing slips through between the two.
  return case when is_kept_out(new.tenant, new.uri) then null else new end;
end $$;
comment on function skip_kept_out() is 'A document that is kept out gets no row, whoever tells of it';

create trigger sources_skip_kept_out before insert on sources
  for each row execute function skip_kept_out();
