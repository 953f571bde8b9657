-- What search_documents() is measured against, beside sql/baseline/tutorial.sql: the indexes that tutorials make, their
-- function with the filter added where it is easy to add, and the function repaired by somebody who knows Postgres.
alter table tutorial_documents
  add column metadata jsonb not null default '{}',
  alter column embedding type vector(384);
create index on tutorial_documents using gin (fts);
create index on tutorial_documents using gin (metadata jsonb_path_ops);

create function tutorial_search_filtered(query_text text, query_embedding vector, match_count int, filter jsonb)
returns table (id bigint, score float8)
language sql stable
set search_path from current
as $$
  with full_text as (
    select id, row_number() over (order by ts_rank_cd(fts, websearch_to_tsquery('english', query_text)) desc) as rank_ix
    from tutorial_documents
    where fts @@ websearch_to_tsquery('english', query_text) and metadata @> filter
    order by rank_ix
    limit least(match_count, 30) * 2
  ),
  semantic as (
    select id, row_number() over (order by embedding <=> query_embedding) as rank_ix
    from tutorial_documents
    where metadata @> filter
    order by rank_ix
    limit least(match_count, 30) * 2
  )
  select coalesce(f.id, s.id), coalesce(1.0 / (50 + f.rank_ix), 0.0) + coalesce(1.0 / (50 + s.rank_ix), 0.0) as score
  from full_text f
  full outer join semantic s on f.id = s.id
  order by score desc
  limit least(match_count, 30)
$$;

-- Any word instead of every word, and vectors in the order that HNSW can give; the ranking is still ts_rank_cd.
create function tutorial_search_repaired(query_text text, query_embedding vector, match_count int, filter jsonb)
returns table (id bigint, score float8)
language plpgsql stable
set search_path from current
set hnsw.iterative_scan = 'strict_order'
set hnsw.ef_search = 100
set plan_cache_mode = 'force_custom_plan'
as $$
#variable_conflict use_column
declare
  any_word tsquery := replace(plainto_tsquery('english', query_text)::text, '&', '|')::tsquery;
begin
  return query
  with full_text as (
    select w.id, row_number() over (order by w.rank desc, w.id) as rank_ix
    from (select t.id, ts_rank_cd(t.fts, any_word) as rank
          from tutorial_documents t
          where t.fts @@ any_word and (filter = '{}' or t.metadata @> filter)
          order by 2 desc, 1
          limit 100) w
  ),
  semantic as (
    select n.id, row_number() over (order by n.distance, n.id) as rank_ix
    from (select t.id, t.embedding <=> query_embedding as distance
          from tutorial_documents t
          where filter = '{}' or t.metadata @> filter
          order by t.embedding <=> query_embedding
          limit 100) n
  )
  select coalesce(f.id, s.id),
         (coalesce(1.0 / (50 + f.rank_ix), 0.0) + coalesce(1.0 / (50 + s.rank_ix), 0.0))::float8 as score
  from full_text f
  full outer join semantic s on f.id = s.id
  order by 2 desc, 1
  limit match_count;
end $$;
