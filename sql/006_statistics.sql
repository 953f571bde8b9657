-- In how many chunks a lexeme stands, for the inverse document frequency. A snapshot that is taken again in the
-- background when enough has changed: nothing is counted while documents are written.
create table lexeme_statistics (
  lexeme     text primary key,
  documents  int not null
);
comment on table lexeme_statistics is
  'Document frequency of lexemes as of the last refresh; those seen only once are left out';
comment on column lexeme_statistics.documents is 'Rows of documents that hold it, scaled up where a sample was counted';

create table index_statistics (
  only_row      boolean primary key default true check (only_row),
  documents     bigint not null,
  changes       bigint not null,
  refreshed_at  timestamptz not null default now()
);
comment on table index_statistics is 'How large the index was when lexeme_statistics was refreshed';
comment on column index_statistics.changes is 'Rows written since the server began to count, as of then';

create function index_changes() returns bigint
language sql stable
begin atomic
  select coalesce((select n_tup_ins + n_tup_upd + n_tup_del from pg_stat_all_tables
                   where relid = 'documents'::regclass), 0);
end;
comment on function index_changes() is 'Rows of documents written since the server began to count';

create function statistics_due(share float8 default 0.1) returns boolean
language sql stable
begin atomic
  select coalesce((select index_changes() < changes or index_changes() - changes > documents * share
                   from index_statistics),
                  true);
end;
comment on function statistics_due(float8) is
  'Whether so large a share of the index was written since the last refresh that it is time for another';

create function refresh_statistics(sample int default 50000) returns bigint
language plpgsql
set search_path from current
as $$
declare
  seen    bigint := (select count(*) from documents);
  rate    float8 := least(1, sample::float8 / greatest(seen, 1));
  counted bigint := index_changes();
  rows_of text := format('select fts from %s', 'documents'::regclass)
                  || case when rate < 1 then format(' tablesample bernoulli (%s)', rate * 100) else '' end;
begin
  create temporary table if not exists fresh_statistics (lexeme text, documents int) on commit delete rows;
  truncate fresh_statistics;
  -- A stem as such; one that stands only for a word without its accents (weight C) where there is no such stem.
  insert into fresh_statistics
    select word, least(seen, round(ndoc / rate)) from ts_stat(rows_of, 'd') where ndoc > 1;
  insert into fresh_statistics
    select word, least(seen, round(ndoc / rate)) from ts_stat(rows_of, 'c')
    where ndoc > 1 and not exists (select from fresh_statistics f where f.lexeme = word);
  insert into lexeme_statistics as s
    select * from fresh_statistics order by lexeme
    on conflict (lexeme) do update set documents = excluded.documents where s.documents <> excluded.documents;
  delete from lexeme_statistics s
    where not exists (select from fresh_statistics f where f.lexeme = s.lexeme);
  insert into index_statistics (documents, changes) values (seen, counted)
    on conflict (only_row) do update
    set documents = excluded.documents, changes = excluded.changes, refreshed_at = now();
  return seen;
end $$;
comment on function refresh_statistics(int) is
  'Count again in how many chunks each lexeme stands, in all rows or in a sample of about so many. Returns the rows in '
  'the index. The service does it by itself; without it, run it from time to time';
