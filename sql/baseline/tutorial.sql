-- The hybrid search that tutorials print, over our rows: one language for all, every word demanded (websearch), rows
-- numbered before they are limited, ranks joined by RRF with k = 50. What `gristmill eval --baseline tutorial` and the
-- benchmark compare with; never part of a migration.
create table if not exists tutorial_documents (
  id         bigint primary key,
  content    text,
  fts        tsvector generated always as (to_tsvector('english', content)) stored,
  embedding  vector
);

create or replace function tutorial_search(
  query_text text, query_embedding vector, match_count int, full_text_weight float8 default 1,
  semantic_weight float8 default 1, rrf_k int default 50
) returns table (id bigint, score float8)
language sql stable
set search_path from current
as $$
  with full_text as (
    select id, row_number() over (order by ts_rank_cd(fts, websearch_to_tsquery('english', query_text)) desc) as rank_ix
    from tutorial_documents
    where fts @@ websearch_to_tsquery('english', query_text)
    order by rank_ix
    limit least(match_count, 30) * 2
  ),
  semantic as (
    select id, row_number() over (order by embedding <=> query_embedding) as rank_ix
    from tutorial_documents
    order by rank_ix
    limit least(match_count, 30) * 2
  )
  select coalesce(f.id, s.id),
         coalesce(1.0 / (rrf_k + f.rank_ix), 0.0) * full_text_weight
           + coalesce(1.0 / (rrf_k + s.rank_ix), 0.0) * semantic_weight as score
  from full_text f
  full outer join semantic s on f.id = s.id
  order by score desc
  limit least(match_count, 30)
$$;
