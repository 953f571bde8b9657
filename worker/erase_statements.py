"""The statements of an erasure; what each is for is told in `worker.erase`."""

from __future__ import annotations

# No row comes, goes or changes hands while it is held; taken before any row is locked, so that nobody waits for us in
# turn (EXCLUSIVE is the weakest mode that keeps `select … for update` out).
LOCK = "lock table sources in exclusive mode"

# Those of some uris, and everything found inside them or coming with them, at any depth; tombstones as well.
FAMILY = """
with recursive family (id) as (
  select id from (
    select id from sources where tenant = %(tenant)s and uri = any(%(uris)s)
    union all
    select s.id from unnest(%(uris)s::text[]) root (uri) join sources s
      on s.uri ~>=~ (root.uri || '#attachments/') and s.uri ~<~ (root.uri || '#attachments0')
    where s.tenant = %(tenant)s
  ) named
  union
  select c.id from family f join sources c on c.parent_id = f.id
)
select coalesce(array_agg(id order by id), '{}') from family
"""

BATCH_DOCUMENTS = 500
BATCH = (
    "select coalesce(array_agg(id), '{}') from (select id from sources where tenant = %s and id <= %s limit %s) batch"
)

# What of it still exists out there: in a sync, as a file, or inside a document that stays.
RETURNING = """
select s.uri,
  case when exists (select from synced m where m.source_id = s.id and m.removed_at is null) then 'sync'
       when p.state <> 'deleted' and p.id <> all(%(ids)s) then 'parent'
       when s.kind = 'file' then 'file' end
from sources s left join sources p on p.id = s.parent_id
where s.id = any(%(ids)s)
"""

URIS = "select coalesce(array_agg(uri), '{}') from sources where id = any(%(ids)s)"

KEYS = "select sync_id, key from synced where source_id = any(%(ids)s)"

# The newest of what was written about them: bytes that came to the spool later were sent by somebody else.
SPOOLED = """
select coalesce(array_agg(distinct location) filter (where location is not null), '{}'),
  coalesce(extract(epoch from max(updated_at))::float8, 0)
from (
  select location, updated_at from sources where id = any(%(ids)s)
  union all
  select location, updated_at from page_ranges where source_id = any(%(ids)s)
) bytes
"""

TEXT_BYTES = """
select coalesce(sum(octet_length(content) + octet_length(coalesce(context, ''))), 0)::bigint
from documents where source_id = any(%(ids)s)
"""

# A uri of a few characters is part of many a key that has nothing to do with it.
_MENTIONED = "exists (select from unnest(%(uris)s::text[]) u where {0} = u or length(u) > 5 and strpos({0}, u) > 0)"

# Answers given to another tenant stay, whatever uris its documents have. Version 0.1.0 did not say whose they were.
_SCOPE_OF_TENANT = """(starts_with(i.scope, '[' || to_json(%(tenant)s::text)::text || ', ')
          or not starts_with(i.scope, '["'))"""

# A uri that is `signed` or the like is part of every row; what is hashed holds nobody's uri.
_NOT_HASHED = "w.delivery !~ '^(id|signed):[0-9a-f]{64}$'"

DELETIONS = {
    "sync_hints": """
        delete from sync_hints h
        where h.key = any(%(uris)s) and exists (select from syncs y where y.id = h.sync_id and y.tenant = %(tenant)s)
          or exists (select from synced m where (m.sync_id, m.key) = (h.sync_id, h.key) and m.source_id = any(%(ids)s))
    """,
    "synced": "delete from synced where source_id = any(%(ids)s)",
    "page_ranges": "delete from page_ranges where source_id = any(%(ids)s)",
    "callbacks": "delete from callbacks where source_id = any(%(ids)s)",
    "idempotency_keys": f"""
        delete from idempotency_keys i
        where {_SCOPE_OF_TENANT} and ({_MENTIONED.format("i.key")} or jsonb_path_exists(i.response,
          '$.sources[*] ? (@.id == $ids[*] || @.uri == $uris[*])',
          jsonb_build_object('ids', to_jsonb(%(ids)s::bigint[]), 'uris', to_jsonb(%(uris)s::text[]))))
    """,
    "webhook_deliveries": f"delete from webhook_deliveries w where {_NOT_HASHED} and {_MENTIONED.format('w.delivery')}",
    "documents": """
        delete from documents where source_id = any(%(ids)s) or id in (
          select d.id from unnest(%(uris)s::text[]) root (uri) cross join lateral (
            select id from documents
            where source_id is null and tenant = %(tenant)s and metadata @> jsonb_build_object('uri', root.uri)
          ) d
        )
    """,
    "sources": "delete from sources where id = any(%(ids)s)",
}
"""By the table that each is about, in order. Rows that others inserted go as well where they name the uri."""

# What a run left behind that names them. A run that is under way has them in memory: it is fenced and begins anew.
SCRUB = """
with said as (
  select y.id, n.notices,
    exists (select from unnest(%(names)s::text[]) u where strpos(y.cursor::text, to_jsonb(u)::text) > 0) as in_cursor,
    exists (select from unnest(%(names)s::text[]) u where strpos(y.error_cause, u) > 0) as in_error
  from syncs y cross join lateral (
    select coalesce(jsonb_agg(note), '[]') as notices from jsonb_array_elements(y.notices) note
    where not exists (select from unnest(%(names)s::text[]) u where strpos(note #>> '{}', u) > 0)
  ) n
  where y.tenant = %(tenant)s
)
update syncs y set
  notices = said.notices,
  cursor = case when in_cursor then '{}' else y.cursor end,
  full_at = case when in_cursor then null else y.full_at end,
  error_cause = case when in_error then 'what it was about was erased' else y.error_cause end,
  asked_at = case when y.token is not null then coalesce(y.asked_at, now()) else y.asked_at end,
  failures = case when y.token is not null then greatest(y.failures - 1, 0) else y.failures end,
  token = null, lease_until = null, holder = null
from said
where y.id = said.id and (y.id = any(%(syncs)s) or in_cursor or in_error or said.notices <> y.notices)
"""

# Other documents of these syncs that list them, as a page does with those below it: they are visited again.
SCRUB_MEMORIES = """
update synced m set state = '{}', version = null, check_at = coalesce(m.check_at, now())
from syncs y
where y.id = m.sync_id and y.tenant = %(tenant)s
  and exists (select from unnest(%(names)s::text[]) u where strpos(m.state::text, to_jsonb(u)::text) > 0)
"""

# A hash does not tell whose text it was, nor whether it was an older version's: all go that no chunk has any more.
UNUSED_VECTORS = """
delete from embedding_cache c where not exists (select from documents d where d.content_hash = c.text_hash)
"""

RECEIPT = """
insert into erasures (who, scope, hash, kept_out, counts, bytes)
values (%(who)s, %(scope)s, erasure_hash(%(tenant)s, %(uri)s), %(kept_out)s, %(counts)s, %(bytes)s)
returning id, erased_at, who, scope, encode(hash, 'hex') as hash, kept_out, counts, bytes
"""

CORRECT = """
update erasures set counts = %(counts)s, bytes = %(bytes)s where id = %(id)s
returning id, erased_at, who, scope, encode(hash, 'hex') as hash, kept_out, counts, bytes
"""

# Analysing an empty table leaves the statistics of what was in it, most common values and all. Postgres 18 can do that.
CLEAR_STATISTICS = """
select pg_clear_attribute_stats(n.nspname, c.relname, a.attname, false)
from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid
where (c.oid = any(%(tables)s::regclass[])
    or c.oid in (select indexrelid from pg_index where indrelid = any(%(tables)s::regclass[]) and indexprs is not null))
  and a.attnum > 0 and not a.attisdropped
"""
