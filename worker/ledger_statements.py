"""The statements of the ledger; what each promises is told in `worker.ledger`."""

from __future__ import annotations

RECORD = """
insert into sources as s (tenant, uri, kind, fingerprint, metadata, location, filename, language)
values (%(tenant)s, %(uri)s, %(kind)s, %(fingerprint)s, %(metadata)s, %(location)s, %(filename)s, %(language)s)
on conflict (tenant, uri) do update set
  version = s.version + 1,
  kind = excluded.kind,
  state = case when s.state = 'leased' then 'leased' else 'pending' end,
  attempts = case when s.state = 'leased' then s.attempts else 0 end,
  delays = 0,
  next_at = now(),
  error_code = null, error_cause = null, error_remedy = null,
  fingerprint = coalesce(excluded.fingerprint, s.fingerprint),
  location = excluded.location, filename = excluded.filename, language = excluded.language,
  metadata = case when %(keep_metadata)s then s.metadata else excluded.metadata end,
  event_at = now(), updated_at = now()
where %(force)s or s.state = 'deleted' or s.fingerprint is distinct from excluded.fingerprint
returning id, version
"""

# Work that is under way on an earlier version goes on, and what it commits clears the error.
REFUSE = """
insert into sources as s (tenant, uri, kind, state, done_version, error_code, error_cause, error_remedy)
values (%(tenant)s, %(uri)s, %(kind)s, %(state)s, 0, %(code)s, %(cause)s, %(remedy)s)
on conflict (tenant, uri) do update set
  state = case when s.state = 'deleted' or %(settled)s and s.state = 'done' then %(state)s else s.state end,
  error_code = excluded.error_code, error_cause = excluded.error_cause, error_remedy = excluded.error_remedy,
  updated_at = now()
returning id
"""

# Work that is under way has errors of its own.
WELL = """
update sources set error_code = null, error_cause = null, error_remedy = null, updated_at = now()
where id = %s and state = 'done' and error_code is not null
"""

# A row whose last lease ran out without a word, once too often: whatever it holds kills its workers. Not where an event
# came meanwhile: what it holds now nobody has tried. Nor does anybody wait here for one who is about to commit.
# That the state is said so has a reason: sql/016_backlog.sql.
BURY = """
update sources set state = 'dead', token = null, lease_until = null, holder = null, updated_at = now(),
  error_code = 'worker_died',
  error_cause = 'the worker died ' || attempts || ' times while working on this document',
  error_remedy = 'look into the log for its last attempt, then: gristmill retry'
where id = any(array(
  select id from sources
  where (state = 'leased') is true and lease_until < now() and attempts >= %(max_attempts)s
    and version = leased_version
  for update skip locked
))
"""

# Whose lease ran out may have killed his worker: he is tried again at once, and should that end no better, after all
# who wait by then. `next_at` is never ahead for a row that is leased; said of all rows, it keeps what waits for its
# back-off out of the scan. The rows of `pauses` stand in everybody's way (sql/013_embedding_budget.sql). Of an
# embedding pause that ran out, the first claim becomes the scout, and moves the end on for all others until it knows.
CLAIM = """
with scout as (
  update pauses set until = now() + make_interval(secs => %(scouting)s)
  where what = 'embedding' and until <= now()
  returning strikes
)
update sources set
  state = 'leased', token = gen_random_uuid(), leased_version = version,
  attempts = case when state = 'leased' and version <> leased_version then 1 else attempts + 1 end,
  next_at = case when state = 'leased' and version = leased_version then now() else next_at end,
  lease_until = now() + make_interval(secs => %(lease)s), holder = %(holder)s, pages_done = null, updated_at = now()
where id = (
  select id from sources
  where state in ('pending', 'leased') and next_at <= now()
    and (state = 'pending' or (lease_until < now() and (attempts < %(max_attempts)s or version <> leased_version)))
    and not exists (select from pauses where what = 'budget' and until > now())
    and (exists (select from scout) or not exists (select from pauses where what = 'embedding'))
  order by next_at, id
  limit 1
  for update skip locked
)
returning id, tenant, uri, kind, version, attempts, delays, token, content_hash, recipe, done_version, metadata,
  location, filename, language, depth, (select strikes from scout) as scout
"""

RENEW = """
update sources set lease_until = now() + make_interval(secs => %(lease)s),
  pages_done = %(pages_done)s, pages = coalesce(%(pages)s, pages)
where id = %(id)s and token = %(token)s
"""

# Nobody else can change the row until we commit; no row means that the claim no longer stands.
HOLD = "select version from sources where id = %s and token = %s for update"

COMMIT = """
update sources set
  done_version = leased_version,
  state = case when version = leased_version then 'done' else 'pending' end,
  attempts = 0, delays = 0, next_at = now(), token = null, lease_until = null, holder = null,
  error_code = null, error_cause = null, error_remedy = null,
  content_hash = %(content_hash)s, recipe = %(recipe)s, mime = %(mime)s, title = %(title)s,
  pages = %(pages)s, pages_done = %(pages)s, chunks = %(chunks)s, tokens = %(tokens)s, report = %(report)s,
  searchable_at = clock_timestamp(), updated_at = clock_timestamp()
where id = %(id)s
"""

COMMIT_UNCHANGED = """
update sources set
  done_version = leased_version,
  state = case when version = leased_version then 'done' else 'pending' end,
  attempts = 0, delays = 0, next_at = now(), token = null, lease_until = null, holder = null, pages_done = pages,
  error_code = null, error_cause = null, error_remedy = null,
  searchable_at = clock_timestamp(), updated_at = clock_timestamp()
where id = %(id)s and token = %(token)s
"""

FAIL = """
update sources set
  state = case when version <> leased_version then 'pending' else %(state)s end,
  attempts = case when version <> leased_version then 0 else attempts - %(forgive)s end,
  delays = case when version <> leased_version then 0 else delays + 1 end,
  next_at = case when version <> leased_version then now()
                 when %(keep_turn)s then next_at
                 else now() + make_interval(secs => %(delay)s) end,
  token = null, lease_until = null, holder = null,
  error_code = %(code)s, error_cause = %(cause)s, error_remedy = %(remedy)s, updated_at = now()
where id = %(id)s and token = %(token)s
returning state
"""

# The caller has locked the row, so no range can come that this statement does not see.
DELETE = """
with gone as (
  update sources set version = version + 1, done_version = version + 1, state = 'deleted', attempts = 0, delays = 0,
    token = null, lease_until = null, holder = null, fingerprint = null, content_hash = null, chunks = 0,
    error_code = null, error_cause = null, error_remedy = null, event_at = now(), updated_at = now()
  where id = %s
  returning id
)
delete from page_ranges where source_id in (select id from gone)
"""

# What OCR workers have read of a document, kept until it is committed (sql/010_page_ranges.sql).
FORGET_PAGES = "delete from page_ranges where source_id = %s"

FORGET_FAILED_PAGES = """
delete from page_ranges
where source_id = any(%s) and jsonb_path_exists(result, '$[*] ? (@.problem != null)')
"""

# Due again: that size, time and inode are the same does not prove that the content is. The worker compares hashes.
RENAME = """
update sources set uri = %(new)s, fingerprint = coalesce(%(fingerprint)s, fingerprint), version = version + 1,
  state = 'pending', attempts = 0, delays = 0, next_at = now(), token = null, lease_until = null, holder = null,
  event_at = now(), updated_at = now()
where id = %(id)s
"""

# Whoever works on it knows it by another uri.
FENCE = """
update sources set state = 'pending', attempts = 0, delays = 0, next_at = now(),
  token = null, lease_until = null, holder = null
where id = %s and state = 'leased'
"""

RETRY = """
update sources set version = version + 1, state = 'pending', attempts = 0, delays = 0, next_at = now(),
  event_at = now(), updated_at = now()
where state = any(%(states)s) and tenant = %(tenant)s and (%(ids)s::bigint[] is null or id = any(%(ids)s::bigint[]))
  and not (kind = 'synced' and location is null)
returning id
"""

# There are no bytes to try again with: only a visit helps.
RETRY_UNFETCHED = """
select id from sources
where state = any(%(states)s) and tenant = %(tenant)s and (%(ids)s::bigint[] is null or id = any(%(ids)s::bigint[]))
  and kind = 'synced' and location is null
"""

# Due since the last visit, and so at once, by whatever clock runs go.
VISIT_AGAIN = "update synced set check_at = visited_at where source_id = any(%s) and failures > 0"

DUE = """
select count(*) from (
  select from sources
  where state in ('pending', 'leased') and next_at <= now() and (state = 'pending' or lease_until < now())
    and not exists (select from pauses where until > now())
  order by next_at, id
  limit %s
) due
"""

# In a pause as well: nobody may take them, and they wait all the same.
BACKLOG_OF = """
select count(*), extract(epoch from now() - min(next_at))::float8 from (
  select next_at from sources
  where state in ('pending', 'leased') and next_at <= now() and (state = 'pending' or lease_until < now())
    and tenant = %s
  order by next_at, id
  limit %s
) due
"""

BACKLOG = """
select count(*), extract(epoch from now() - min(next_at))::float8 from (
  select next_at from sources
  where state in ('pending', 'leased') and next_at <= now() and (state = 'pending' or lease_until < now())
  order by next_at, id
  limit %s
) due
"""
