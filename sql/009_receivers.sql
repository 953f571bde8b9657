-- What the receivers must remember: who may come in, what has been answered, whom to call back.

create table api_keys (
  id            bigint generated always as identity primary key,
  name          text not null unique,
  key_hash      bytea not null unique,
  scopes        text[] not null check (scopes <@ array['ingest', 'search', 'admin'] and scopes <> '{}'),
  created_at    timestamptz not null default now(),
  last_used_at  timestamptz
);
comment on table api_keys is 'API keys by the SHA-256 of the key; the key itself is shown once and kept nowhere';
comment on column api_keys.scopes is 'ingest: documents in and out; search: ask; admin: both, and keys';

create table idempotency_keys (
  scope       text not null,
  key         text not null,
  request     bytea not null,
  status      int,
  response    jsonb,
  created_at  timestamptz not null default now(),
  primary key (scope, key)
);
comment on table idempotency_keys is 'Answers given to requests with an Idempotency-Key, for the same request again';
comment on column idempotency_keys.scope is 'API key and path, so that two clients may use the same key';
comment on column idempotency_keys.request is 'SHA-256 of the request: the same key with another request is refused';
comment on column idempotency_keys.status is 'Null while the first request is being answered';

create table callbacks (
  id            bigint generated always as identity primary key,
  source_id     bigint not null references sources (id) on delete cascade,
  version       bigint not null,
  url           text not null,
  attempts      int not null default 0,
  next_at       timestamptz not null default now(),
  delivered_at  timestamptz,
  error         text,
  unique (source_id, version, url)
);
create index callbacks_due on callbacks (next_at) where delivered_at is null;
comment on table callbacks is 'Addresses to call when a version of a source is done, failed or dead; an outbox';

create table webhook_deliveries (
  receiver     text not null,
  delivery     text not null,
  received_at  timestamptz not null default now(),
  primary key (receiver, delivery)
);
comment on table webhook_deliveries is 'Webhook deliveries seen, so that a replay is refused';

-- n8n's nodes insert without an id or a conflict clause, so a workflow that runs again would double its rows.
create function skip_known_row() returns trigger
language plpgsql
set search_path from current
as $$
begin
  new.content_hash := sha256(convert_to(new.content, 'UTF8'));
  if tg_op = 'INSERT' then
    -- Two runs at once cannot see each other's rows: the second waits here until the first has committed.
    perform pg_advisory_xact_lock(tg_relid::bigint);
    if exists (
      select from documents d
      where d.source_id is null
        and d.content_hash = new.content_hash
        and d.metadata = new.metadata
        and d.tenant = new.tenant
        and d.id <> new.id  -- an upsert by id is meant for its row
    ) then
      return null;
    end if;
  end if;
  return new;
end $$;
comment on function skip_known_row() is
  'A row that others insert a second time, with the same content and metadata, is left out silently';

create index documents_foreign on documents (content_hash) where source_id is null;
create trigger documents_skip_known before insert or update of content on documents
  for each row when (new.source_id is null) execute function skip_known_row();
