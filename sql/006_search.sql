-- Search, usable from psql, n8n, PostgREST and Python alike.

create function languages_present() returns setof text
language sql stable parallel safe
begin atomic
  -- A loose index scan: one index probe a language instead of a pass over the table.
  with recursive step as (
    (select language from documents order by language limit 1)
    union all
    select (select d.language from documents d where d.language > step.language order by d.language limit 1)
    from step where step.language is not null
  )
  select language from step where language is not null;
end;
comment on function languages_present() is 'The languages that documents holds';

create function keyword_query(query_text text) returns tsquery
language sql stable parallel safe
begin atomic
  select string_agg(quote_literal(lexeme), ' | ')::tsquery
  from (
    select distinct unnest(tsvector_to_array(to_tsvector(text_search_config(l.name), q.spelling))) as lexeme
    from languages_present() as l(name), (values (query_text), (f_unaccent(query_text))) as q(spelling)
    union
    select unnest(identifier_lexemes(identifiers(query_text, true)))
  ) wanted;
end;
comment on function keyword_query(text) is
  'Any word of the question, stemmed in every language present, and its identifiers; null where there is none';

create function identifier_query(query_text text) returns tsquery
language sql immutable parallel safe
begin atomic
  select string_agg(quote_literal(lexeme), ' | ')::tsquery
  from unnest(identifier_lexemes(identifiers(query_text, true))) as lexeme;
end;
comment on function identifier_query(text) is 'The identifiers of the question, in either spelling; null without one';

create function search_documents(
  query_text       text,
  query_embedding  vector default null,
  match_count      int default 10,
  mode             text default 'hybrid',
  filter           jsonb default '{}',
  rrf_k            int default null,
  pool             int default 100,
  keyword_weight   float8 default 1,
  vector_weight    float8 default 1
) returns table (
  id               bigint,
  content          text,
  metadata         jsonb,
  score            float8,
  vector_rank      int,
  keyword_rank     int,
  identifier_rank  int,
  similarity       float8
)
language plpgsql stable
set search_path from current
set hnsw.iterative_scan = 'strict_order'
set hnsw.ef_search = 200
set plan_cache_mode = 'force_custom_plan'
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
  k           int := coalesce(rrf_k, 20);
  words       tsquery := case when mode <> 'vector' then keyword_query(query_text) end;
  codes       tsquery := case when mode <> 'vector' then identifier_query(query_text) end;
  use_vector  boolean := mode <> 'keyword' and query_embedding is not null;
begin
  if mode not in ('hybrid', 'keyword', 'vector') then
    raise exception 'mode % is not known', quote_literal(mode)
      using errcode = 'invalid_parameter_value', hint = 'use hybrid, keyword or vector';
  end if;
  if mode = 'vector' and query_embedding is null then
    raise exception 'a vector search needs query_embedding' using errcode = 'invalid_parameter_value';
  end if;
  return query
  with nearest as (
    -- The order must stand where the limit stands: numbering first and limiting after it scans the whole table.
    select n.id, n.distance, row_number() over (order by n.distance, n.id) as place
    from (select d.id, d.embedding <=> query_embedding as distance
          from documents d
          where use_vector and d.embedding is not null and (filter = '{}' or d.metadata @> filter)
          order by d.embedding <=> query_embedding
          limit pool) n
  ),
  worded as (
    select w.id, row_number() over (order by w.rank desc, w.id) as place
    from (select d.id, ts_rank(d.fts, words, 1) as rank
          from documents d
          where d.fts @@ words and (filter = '{}' or d.metadata @> filter)
          order by 2 desc, 1
          limit pool) w
  ),
  coded as (
    -- As many of the question's identifiers as possible, then as near as possible.
    select c.id, row_number() over (order by c.hits desc, c.distance, c.id) as place
    from (select d.id, d.embedding <=> query_embedding as distance,
                 (select count(*) from unnest(identifiers(query_text, true)) as token
                  where d.fts @@ identifier_query(token)) as hits
          from documents d
          where d.fts @@ codes and (filter = '{}' or d.metadata @> filter)
          order by 3 desc, 2, 1
          limit pool) c
  ),
  fused as (
    select coalesce(n.id, w.id, c.id) as id,
           coalesce(vector_weight / (k + n.place), 0) + coalesce(keyword_weight / (k + w.place), 0)
             + coalesce(2 * keyword_weight / (k + c.place), 0) as score,
           n.place as vector_place, w.place as keyword_place, c.place as identifier_place
    from nearest n
    full join worded w on w.id = n.id
    full join coded c on c.id = coalesce(n.id, w.id)
    order by 2 desc, 1
    limit match_count
  )
  select d.id, d.content, d.metadata, f.score, f.vector_place::int, f.keyword_place::int, f.identifier_place::int,
         1 - (d.embedding <=> query_embedding)
  -- limit 1: a few rows by their key, which the planner would else turn into a hash join with the whole table.
  from fused f, lateral (select * from documents d where d.id = f.id limit 1) d
  order by f.score desc, d.id;
end $$;
comment on function search_documents(text, vector, int, text, jsonb, int, int, float8, float8) is
  'Fused search with its reasons: three legs (vector, keyword, identifier), each at most pool deep, joined by '
  'reciprocal rank fusion (Cormack, Clarke, Buettcher 2009; k defaults to 20). mode: hybrid, keyword, vector. filter: '
  'metadata containment. A leg that did not find a row has a null rank';

create function hybrid_search(
  query_text        text,
  query_embedding   vector,
  match_count       int default 10,
  rrf_k             int default null,
  full_text_weight  float8 default 1,
  semantic_weight   float8 default 1,
  filter            jsonb default '{}'
) returns setof documents
language plpgsql stable
set search_path from current
as $$
begin
  return query
  select d.*
  from search_documents(query_text, query_embedding, match_count, 'hybrid', filter, rrf_k,
                        greatest(100, match_count), full_text_weight, semantic_weight)
         with ordinality as s (id, content, metadata, score, vr, kr, ir, similarity, place),
       lateral (select * from documents d where d.id = s.id limit 1) d
  order by s.place;
end $$;
comment on function hybrid_search(text, vector, int, int, float8, float8, jsonb) is
  'Drop-in for the hybrid_search of the tutorials: rows of documents, best first';

-- A plain SQL function without settings, so that it is inlined into the caller's query and uses the HNSW index; one
-- overload with these names, since PostgREST finds a function by the names of its arguments. No limit by default:
-- clients put their own filter and limit outside.
create function match_documents(
  query_embedding  vector,
  match_count      int default null,
  filter           jsonb default '{}'
) returns table (id bigint, content text, metadata jsonb, similarity float8)
language sql stable
begin atomic
  select d.id, d.content, d.metadata, 1 - (d.embedding <=> query_embedding)
  from documents d
  where d.metadata @> filter and d.embedding is not null
  order by d.embedding <=> query_embedding
  limit match_count;
end;
comment on function match_documents(vector, int, jsonb) is
  'Nearest documents by cosine, as Supabase, LangChain and n8n call it; similarity is 1 - cosine distance';
