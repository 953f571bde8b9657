"""The statements of page ranges; what each promises is told in `worker.page_ranges`.

Whoever locks both locks the source before its ranges: the other order would deadlock with a commit.
"""

from __future__ import annotations

HOLD_SOURCE = "select state, delays from sources where id = %s for update"

HOLD_CLAIMED = "select from sources where id = %s and token = %s for update"

HOLD_RANGE = "select attempts from page_ranges where id = %s and token = %s for update"

PARKED = "select version, content_hash, recipe, location, name from page_ranges where source_id = %s limit 1"

RESULTS = """
select result from page_ranges where source_id = %(source)s and content_hash = %(content_hash)s and recipe = %(recipe)s
"""

FORGET_OTHERS = """
delete from page_ranges where source_id = %(source)s and (content_hash, recipe) <> (%(content_hash)s, %(recipe)s)
"""

KEEP = """
update page_ranges set version = %(version)s, location = %(location)s, name = %(name)s
where source_id = %(source)s
returning ordinal, pages
"""

ADD = """
insert into page_ranges (source_id, version, content_hash, recipe, location, name, ordinal, pages)
values (%(source)s, %(version)s, %(content_hash)s, %(recipe)s, %(location)s, %(name)s, %(ordinal)s, %(pages)s)
"""

# Parking is no failed attempt, and whatever ended earlier ones was survived. The delays stay: a source that is given
# back and parked over and over must not spin.
PARK = """
update sources s set
  state = case when s.version = s.leased_version and unfinished.ranges > 0 then 'reading' else 'pending' end,
  attempts = 0, next_at = now(), token = null, lease_until = null, holder = null,
  error_code = null, error_cause = null, error_remedy = null,
  pages = %(total)s, pages_done = %(total)s - unfinished.pages, updated_at = now()
from (
  select count(*) as ranges, coalesce(sum(cardinality(pages) - pages_done), 0) as pages
  from page_ranges where source_id = %(source)s and state <> 'done'
) unfinished
where s.id = %(source)s
returning s.state, unfinished.ranges
"""

CLAIM = """
update page_ranges r set
  state = 'leased', token = gen_random_uuid(), attempts = r.attempts + 1,
  lease_until = now() + make_interval(secs => %(lease)s), holder = %(holder)s, updated_at = now()
from sources s
where s.id = r.source_id and r.id = (
  select id from page_ranges
  where (state = 'pending' and next_at <= now()) or (state = 'leased' and lease_until < now())
  order by ordinal, id
  limit 1
  for update skip locked
)
returning r.id, r.source_id, s.uri, r.location, r.name, r.content_hash, r.recipe, r.pages, r.attempts, r.delays,
  r.token,
  (select coalesce(array_agg((page->>'number')::int), '{}') from jsonb_array_elements(r.result) page) as done
"""

RENEW = """
update page_ranges set lease_until = now() + make_interval(secs => %(lease)s) where id = %(id)s and token = %(token)s
"""

# Attempts are counted for the page that is being read: this one is done, the next one begins with the attempt it is in.
SAVE = """
update page_ranges set
  result = result || %(page)s, attempts = 1, delays = 0,
  state = case when finished then 'done' else 'leased' end,
  token = case when not finished then token end,
  lease_until = case when not finished then now() + make_interval(secs => %(lease)s) end,
  holder = case when not finished then holder end,
  updated_at = now()
from (
  select id as held, jsonb_array_length(result) + 1 = cardinality(pages) as finished from page_ranges where id = %(id)s
) before
where id = held and token = %(token)s and %(number)s = any(pages)
  and not result @> jsonb_build_array(jsonb_build_object('number', %(number)s::int))
returning state
"""

PROGRESS = """
update sources s set
  pages_done = s.pages - unfinished.pages,
  state = case when unfinished.ranges = 0 then 'pending' else s.state end,
  next_at = case when unfinished.ranges = 0 then now() else s.next_at end,
  updated_at = now()
from (
  select count(*) as ranges, coalesce(sum(cardinality(pages) - pages_done), 0) as pages
  from page_ranges where source_id = %(source)s and state <> 'done'
) unfinished
where s.id = %(source)s and s.state = 'reading'
returning s.state
"""

POSTPONE = """
update page_ranges set
  state = 'pending', attempts = %(attempts)s, delays = delays + %(delays)s,
  next_at = now() + make_interval(secs => %(delay)s), token = null, lease_until = null, holder = null,
  error_code = %(code)s, error_cause = %(cause)s, error_remedy = %(remedy)s, updated_at = now()
where id = %(id)s and token = %(token)s
"""

FORGET = "delete from page_ranges where source_id = %s"

GIVE_BACK = """
update sources set state = 'pending', delays = delays + 1, next_at = now() + make_interval(secs => %(delay)s),
  updated_at = now()
where id = %(source)s and state = 'reading'
"""

RELEASE = """
update sources set state = 'pending', next_at = now(), updated_at = now()
where id = any(array(
  select id from sources w
  where state = 'reading' and not exists (select from page_ranges where source_id = w.id and state <> 'done')
  for update skip locked
))
"""

DUE = """
select count(*) from (
  select from page_ranges
  where (state = 'pending' and next_at <= now()) or (state = 'leased' and lease_until < now())
  limit %s
) due
"""
