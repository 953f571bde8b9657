-- Repeatable, revision 1: applied again whenever it has changed.
-- Counting in how many chunks of a tenant a lexeme stands.

create function statistics_due(share float8 default 0.1) returns boolean
language sql stable
begin atomic
  select coalesce((select index_changes() < max(changes) or index_changes() - max(changes) > sum(documents) * share
                   from index_statistics),
                  true);
end;
comment on function statistics_due(float8) is
  'Whether so large a share of the index was written since the last refresh that it is time for another';

create function stale_tenants(share float8 default 0.1) returns setof text
language sql stable
begin atomic
  select coalesce(d.tenant, s.tenant)
  from (select tenant, count(*) as documents from documents group by tenant) d
       full join index_statistics s on s.tenant = d.tenant
  where abs(coalesce(d.documents, 0) - coalesce(s.documents, 0)) > coalesce(s.documents, 0) * share;
end;
comment on function stale_tenants(float8) is
  'Tenants whose index has grown or shrunk by more than such a share since their words were counted. Counts all rows '
  'from an index';

create function refresh_statistics(sample int default 50000, of_tenants text[] default null) returns bigint
language plpgsql
set search_path from current
as $$
declare
  tenants text[] := of_tenants;
  counted bigint := index_changes();
  whose   text;
  seen    bigint;
  rate    float8;
  rows_of text;
  total   bigint := 0;
begin
  if of_tenants is null then
    tenants := array(select tenant from index_statistics union select tenant from documents);
  end if;
  create temporary table if not exists fresh_statistics (lexeme text, documents int) on commit delete rows;
  foreach whose in array tenants loop
    seen := (select count(*) from documents where tenant = whose);
    rate := least(1, sample::float8 / greatest(seen, 1));
    rows_of := format('select fts from %s where tenant = %L', 'documents'::regclass, whose)
               || case when rate < 1 then format(' and random() < %s', rate) else '' end;
    truncate pg_temp.fresh_statistics;
    -- A stem as such; one that stands only for a word without its accents (weight C) where there is no such stem.
    insert into pg_temp.fresh_statistics
      select word, least(seen, round(ndoc / rate)) from ts_stat(rows_of, 'd') where ndoc > 1;
    insert into pg_temp.fresh_statistics
      select word, least(seen, round(ndoc / rate)) from ts_stat(rows_of, 'c')
      where ndoc > 1 and not exists (select from pg_temp.fresh_statistics f where f.lexeme = word);
    insert into lexeme_statistics as s (lexeme, tenant, documents)
      select lexeme, whose, documents from pg_temp.fresh_statistics order by lexeme
      on conflict (lexeme, tenant) do update set documents = excluded.documents
      where s.documents <> excluded.documents;
    delete from lexeme_statistics s
      where s.tenant = whose and not exists (select from pg_temp.fresh_statistics f where f.lexeme = s.lexeme);
    if seen > 0 then
      insert into index_statistics (tenant, documents, changes)
        values (whose, seen, case when of_tenants is null then counted
                                  else coalesce((select max(changes) from index_statistics), counted) end)
        on conflict (tenant) do update
        set documents = excluded.documents, changes = excluded.changes, refreshed_at = now();
    else
      delete from index_statistics where tenant = whose;
    end if;
    total := total + seen;
  end loop;
  if of_tenants is null then
    delete from lexeme_statistics where tenant <> all (tenants);
  end if;
  return total;
end $$;
comment on function refresh_statistics(int, text[]) is
  'Count again in how many chunks each lexeme stands, for all tenants or only these, in all rows of a tenant or in a '
  'sample of about so many. Returns how many rows they have. The service does it by itself; without it, run it from '
  'time to time';
