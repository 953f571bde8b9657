-- Repeatable, revision 2: applied again whenever it has changed.
-- Fused search: one function, usable from psql, n8n, PostgREST and Python alike.

create function question_mode(query_text text) returns text
language sql immutable parallel safe
return case
  -- Nothing but a phrase in quotes, or nothing but identifiers: what is asked for is that, not something like it.
  when query_text ~ '^\s*"[^"]+"\s*$' then 'keyword'
  when identifiers(query_text, true) <> '{}'
       and not exists (select from regexp_split_to_table(btrim(query_text), '[\s,;]+') as word
                       where length(word) > 4 and identifiers(word) = '{}')
       and cardinality(regexp_split_to_array(btrim(query_text), '\s+')) <= 3 then 'keyword'
  else 'hybrid'
end;
comment on function question_mode(text) is
  'What mode auto means for a question: keyword for a bare identifier or a phrase in quotes, else hybrid';

create function highlighted(language text, content text, words text[]) returns text
language sql stable parallel safe
return ts_headline(
  text_search_config(language), content,
  (select string_agg(quote_literal(l), ' | ')::tsquery from unnest(words) as l),
  'StartSel=**, StopSel=**, MaxFragments=2, MaxWords=40, MinWords=15, FragmentDelimiter=" … "');
comment on function highlighted(text, text, text[]) is
  'Up to two fragments of a passage around the words of the question, these between **';

create function with_neighbours(hits bigint[], reach int) returns table (id bigint, passage text)
language sql stable parallel safe
begin atomic
  with windows as (
    select h.id, h.place, d.source_id, d.chunk_index - reach as first, d.chunk_index + reach as last, d.content
    from unnest(hits) with ordinality as h(id, place), documents d
    where d.id = h.id
  ),
  -- Gaps and islands: a window that begins after all earlier ones have ended, not even touching, begins an island.
  marked as (
    select *, case when source_id is not null
                        and first <= 1 + max(last) over (partition by source_id order by first, place
                                                         rows between unbounded preceding and 1 preceding)
                   then 0 else 1 end as begins
    from windows
  ),
  islands as (
    select *, sum(begins) over (partition by source_id order by first, place) as island
    from marked
  ),
  merged as (
    select source_id, min(first) as first, max(last) as last, min(place) as place,
           (array_agg(id order by place))[1] as id
    from islands
    where source_id is not null
    group by source_id, island
  )
  select m.id, p.passage
  from merged m,
       lateral (select string_agg(d.content, E'\n\n' order by d.chunk_index) as passage
                from documents d
                where d.source_id = m.source_id and d.chunk_index between m.first and m.last) p
  union all
  select w.id, w.content from windows w where w.source_id is null;
end;
comment on function with_neighbours(bigint[], int) is
  'Hits (best first) with so many chunks before and after each from the same document, in order; hits whose passages '
  'overlap or touch become one, under the id of the best of them';

create function vector_index_scans() returns bigint
language sql volatile
begin atomic
  select sum(pg_stat_get_xact_numscans(i.indexrelid))::bigint
  from pg_index i join pg_class c on c.oid = i.indexrelid join pg_am a on a.oid = c.relam
  where i.indrelid = 'documents'::regclass and a.amname = 'hnsw';
end;
comment on function vector_index_scans() is 'How often the HNSW index was used in this transaction';

create function caller_pass() returns uuid[]
language sql stable
begin atomic
  select coalesce(array_agg(pass), '{}') from caller_passes;
end;
comment on function caller_pass() is
  'What search_documents() tells its caller by: the default of an argument is evaluated as the caller, what the function '
  'does itself is not';

create function search_documents(
  query_text       text,
  query_embedding  vector default null,
  match_count      int default 10,
  mode             text default 'hybrid',
  filter           jsonb default '{}',
  sources          bigint[] default null,
  language         text default null,
  since            timestamptz default null,
  until            timestamptz default null,
  query_language   text default null,
  alpha            float8 default null,
  rrf_k            int default null,
  pool             int default 100,
  highlight        boolean default false,
  neighbours       int default 0,
  tenant           text default null,
  pass             uuid[] default caller_pass()
) returns table (
  id               bigint,
  content          text,
  metadata         jsonb,
  score            float8,
  vector_rank      int,
  keyword_rank     int,
  identifier_rank  int,
  similarity       float8,
  snippet          text
)
language plpgsql stable security definer  -- under policies Postgres uses neither the index of words nor that of metadata
set search_path from current
set hnsw.iterative_scan = 'strict_order'
set hnsw.ef_search = 100
set plan_cache_mode = 'force_generic_plan'  -- but for the legs
set jit = off
set enable_seqscan = off  -- small tables and odd statistics must not tempt the planner
as $$
#variable_conflict use_column
declare
  tenants        text[] := visible_tenants(search_documents.tenant, pass);
  depth          int := greatest(pool, match_count);
  by_vector      boolean;
  by_words       boolean;
  languages      text[];
  lexemes        text[] := '{}';
  lexeme_weights float8[];
  words          text[] := '{}';
  word_idfs      float8[] := '{}';
  codes          text[] := '{}';
  code_idfs      float8[] := '{}';
  weights        sparsevec;
  candidates     tsquery;
  common_only    boolean;
  pooled         boolean;
  few            boolean;  -- candidates of the lexical leg
  must           tsquery;
  vector_ids     bigint[] := '{}';
  vector_distances float8[];
  scans          bigint;
  exactly        boolean;
  mixed          boolean;  -- with others' rows
  keyword_ids    bigint[] := '{}';
  keyword_scores float8[];
  code_ids       bigint[] := '{}';
  coverage       float8 := 0;
  trust          float8;  -- in the lexical leg
  share          float8;  -- of the vector leg
begin
  if mode not in ('hybrid', 'keyword', 'vector', 'auto') then
    raise exception 'mode % is not known', quote_literal(mode)
      using errcode = 'invalid_parameter_value', hint = 'use hybrid, keyword, vector or auto';
  end if;
  if mode = 'auto' then
    mode := question_mode(query_text);
  end if;
  by_words := mode <> 'vector';
  share := coalesce(alpha, case when rrf_k is null then 0.525 else 0.5 end);
  by_vector := mode <> 'keyword' and query_embedding is not null;
  if mode = 'vector' and query_embedding is null then
    raise exception 'a vector search needs query_embedding' using errcode = 'invalid_parameter_value';
  end if;

  if by_words then
    languages := case when query_language is null then question_languages(query_text, tenants) else array[query_language] end;
    must := question_filter(query_text, languages);

    select coalesce(array_agg(q.lexeme), '{}'), array_agg(q.weight),
           coalesce(array_agg(q.lexeme) filter (where q.kind = 'word'), '{}'),
           coalesce(array_agg(q.idf) filter (where q.kind = 'word'), '{}'),
           coalesce(array_agg(q.lexeme) filter (where q.kind = 'identifier' and q.documents <= rare), '{}'),
           coalesce(array_agg(q.idf) filter (where q.kind = 'identifier' and q.documents <= rare), '{}'),
           -- Common words would bring in half the table and change little: left out while rarer ones remain. They
           -- still count towards the score.
           string_agg(quote_literal(q.lexeme), ' | ') filter (where q.documents <= greatest(common, rarest))::tsquery,
           coalesce(sum(q.documents) filter (where q.documents <= greatest(common, rarest)), 0) <= 1000,
           min(q.documents) > min(common)
    into lexemes, lexeme_weights, words, word_idfs, codes, code_idfs, candidates, few, common_only
    from (select *, min(documents) over () as rarest from question_lexemes(query_text, languages, tenants)) q,
         (select greatest(1000, coalesce(sum(i.documents), 0) * 0.1) as common,
                 greatest(10, coalesce(sum(i.documents), 0) * 0.02) as rare
          from index_statistics i where tenants is null or i.tenant = any (tenants)) s;

    select ('{' || string_agg(dimension || ':' || weight::float4, ',' order by dimension) || '}/268435456')::sparsevec
    into weights
    from (select lexeme_dimension(q.lexeme) as dimension, sum(q.weight) as weight
          from unnest(lexemes, lexeme_weights) as q(lexeme, weight) group by 1) w;
  end if;

  -- A leg is planned for the filters it is given. Everything else is planned once a connection: planning the questions'
  -- functions took longer than running them.
  perform set_config('plan_cache_mode', 'force_custom_plan', true);

  if by_vector then
    scans := vector_index_scans();
    -- To the graph a tenant is a filter that it knows nothing of. A small one is measured in full, which is quick; for
    -- others the walk is wider, or it would end among neighbours that lie nearer to the question.
    select of_tenants <= least(10000, of_all * 0.9), of_tenants < of_all * 0.9
    into exactly, mixed
    from (select sum(i.documents) filter (where i.tenant = any (tenants)) as of_tenants, sum(i.documents) as of_all
          from index_statistics i) s;
    exactly := exactly is true;
    perform set_config('hnsw.ef_search',
                       (case when mixed then 1000 else least(1000, greatest(100, depth)) end)::text, true);
  end if;

  if by_vector and not exactly then
    -- The order must stand where the limit stands: numbering first and limiting after it scans the whole table.
    select coalesce(array_agg(n.id order by n.distance, n.id), '{}'), array_agg(n.distance order by n.distance, n.id)
    into vector_ids, vector_distances
    from (select d.id, d.embedding <=> query_embedding as distance
          from documents d
          where d.embedding is not null
            and (tenants is null or d.tenant = any (tenants))
            and (filter = '{}' or d.metadata @> filter)
            and (sources is null or d.source_id = any (sources))
            and (search_documents.language is null or d.language = search_documents.language)
            and (since is null or d.created_at >= since)
            and (until is null or d.created_at < until)
            and (must is null or d.fts @@ must)
          order by d.embedding <=> query_embedding
          limit depth) n;

    -- HNSW gives up after hnsw.max_scan_tuples: what passes the filters may all lie further away. Then all of it is
    -- measured, without an index that this order could come from.
    exactly := cardinality(vector_ids) < depth and vector_index_scans() > scans;
  end if;

  if exactly then
    select coalesce(array_agg(n.id order by n.distance, n.id), '{}'), array_agg(n.distance order by n.distance, n.id)
    into vector_ids, vector_distances
    from (select d.id, (d.embedding <=> query_embedding) + 0 as distance
          from documents d
          where d.embedding is not null
            and (tenants is null or d.tenant = any (tenants))
            and (filter = '{}' or d.metadata @> filter)
            and (sources is null or d.source_id = any (sources))
            and (search_documents.language is null or d.language = search_documents.language)
            and (since is null or d.created_at >= since)
            and (until is null or d.created_at < until)
            and (must is null or d.fts @@ must)
          order by 2, 1
          limit depth) n;
  end if;

  if candidates is not null then
    -- Where even the rarest word stands in a tenth of the table, words tell little: they only order what the vector
    -- leg has found, if that is enough.
    pooled := by_vector and common_only and cardinality(vector_ids) >= depth;
    -- `is true` keeps the filter from its index: a large bitmap for a few rows, and Postgres, which must look again at
    -- what a jsonb index finds, looks at fts again with it.
    select coalesce(array_agg(w.id order by w.score desc, w.id), '{}'), array_agg(w.score order by w.score desc, w.id)
    into keyword_ids, keyword_scores
    from (select d.id, -(d.bm25 <#> weights) as score
          from documents d
          where case when pooled then d.id = any (vector_ids) else true end
            and case when pooled then (d.fts @@ candidates) is true
                     else d.fts @@ case when must is null then candidates else candidates && must end end
            and (tenants is null or d.tenant = any (tenants))
            and (pooled or filter = '{}' or case when few then (d.metadata @> filter) is true else d.metadata @> filter end)
            and (sources is null or d.source_id = any (sources))
            and (search_documents.language is null or d.language = search_documents.language)
            and (since is null or d.created_at >= since)
            and (until is null or d.created_at < until)
          order by 2 desc, 1
          limit depth) w;

    -- How much of what the question says, by idf, the best of the first five passages says too.
    select coalesce(max(said), 0) / nullif((select sum(idf) from unnest(word_idfs) as idf), 0)
    into coverage
    from unnest(keyword_ids[1:5]) as top(id),
         lateral (select d.fts from documents d where d.id = top.id limit 1) d,
         lateral (select sum(idf) as said from unnest(words, word_idfs) as q(lexeme, idf)
                  where q.lexeme = any (tsvector_to_array(d.fts))) c;
  end if;
  trust := least(1, 1.5 * coalesce(coverage, 1));

  if codes <> '{}' then
    select coalesce(array_agg(c.id order by round(c.idf::numeric, 6) desc, c.distance, c.id), '{}')
    into code_ids
    from (select *, max(idf) over () as best
          from (select d.id, d.embedding <=> query_embedding as distance,
                       (select sum(q.idf) from unnest(codes, code_idfs) as q(lexeme, idf)
                        where d.fts @@ quote_literal(q.lexeme)::tsquery) as idf
                from documents d
                where d.fts @@ (select (string_agg(quote_literal(l), ' | '))::tsquery from unnest(codes) as l)
                  and (must is null or d.fts @@ must)
                  and (tenants is null or d.tenant = any (tenants))
                  and (filter = '{}' or case when few then (d.metadata @> filter) is true else d.metadata @> filter end)
                  and (sources is null or d.source_id = any (sources))
                  and (search_documents.language is null or d.language = search_documents.language)
                  and (since is null or d.created_at >= since)
                  and (until is null or d.created_at < until)) found
         ) c
    where c.idf >= 0.8 * c.best;
    code_ids := code_ids[1:depth];
  end if;

  perform set_config('plan_cache_mode', 'force_generic_plan', true);

  return query
  with ranked as (
    select coalesce(v.id, k.id, c.id) as id, v.place as vector_place, k.place as keyword_place,
           c.place as identifier_place, v.distance, k.score
    from unnest(vector_ids, vector_distances) with ordinality as v(id, distance, place)
    full join unnest(keyword_ids, keyword_scores) with ordinality as k(id, score, place) on k.id = v.id
    full join unnest(code_ids) with ordinality as c(id, place) on c.id = coalesce(v.id, k.id)
  ),
  measured as (
    -- Only what the other leg has not measured: the vector lies out of line, and so may the rest of the row.
    select r.*,
           case when by_vector then
             1 - coalesce(r.distance, (select d.embedding <=> query_embedding from documents d where d.id = r.id))
           end as cosine,
           case when weights is not null then
             coalesce(r.score, (select -(d.bm25 <#> weights) from documents d where d.id = r.id))
           end as bm25
    from ranked r
  ),
  -- Each leg's own pool gives the scale; a row that only the other leg found is measured on it too.
  scaled as (
    select m.*,
           case when cosine is not null then
             greatest(0, coalesce((cosine - min(cosine) filter (where vector_place is not null) over ())
                      / nullif(max(cosine) filter (where vector_place is not null) over ()
                               - min(cosine) filter (where vector_place is not null) over (), 0), 1))
           else 0 end as near,
           case when weights is not null then
             greatest(0, coalesce((bm25 - min(bm25) filter (where keyword_place is not null) over ())
                      / nullif(max(bm25) filter (where keyword_place is not null) over ()
                               - min(bm25) filter (where keyword_place is not null) over (), 0), 1))
           else 0 end as said
    from measured m
  ),
  fused as (
    select s.*,
           case
             when rrf_k is not null then
               coalesce(share * 2 / (rrf_k + vector_place), 0)
               + coalesce((1 - share) * 2 * trust / (rrf_k + keyword_place), 0)
               + coalesce(1.0 / (rrf_k + identifier_place), 0)
             when not by_vector then bm25 + case when identifier_place is not null then max(bm25) over () else 0 end
             when not by_words then cosine
             else
               -- Half by score, which knows how much better one is, half by rank, which no outlier upsets.
               0.5 * (share * near + (1 - share) * trust * said)
               + 0.5 * (coalesce(share * 10 / (10 + vector_place), 0)
                        + coalesce((1 - share) * trust * 10 / (10 + keyword_place), 0))
               + case when identifier_place is not null then 1 else 0 end
           end as fused_score
    from scaled s
    order by fused_score desc, s.id
    limit match_count
  )
  select f.id, coalesce(n.passage, d.content), d.metadata, f.fused_score, f.vector_place::int, f.keyword_place::int,
         f.identifier_place::int, f.cosine,
         case when highlight then highlighted(d.language, d.content, words) end
  from fused f
  left join with_neighbours((select array_agg(g.id order by g.fused_score desc, g.id) from fused g
                             where neighbours > 0), neighbours) n on n.id = f.id,
       lateral (select * from documents d where d.id = f.id limit 1) d
  where neighbours <= 0 or n.id is not null
  order by f.fused_score desc, f.id;
end $$;
comment on function search_documents(text, vector, int, text, jsonb, bigint[], text, timestamptz, timestamptz, text,
                                     float8, int, int, boolean, int, text, uuid[]) is
  'Fused search with its reasons. Three legs, each at most pool deep: nearest vectors, BM25 over any word of the '
  'question, and rows that hold its identifiers. Fused by score and rank: alpha is the share of the vector leg (0.525), '
  'the lexical leg is trusted as far as it covers the question, an identifier is worth a full point. With rrf_k by '
  'reciprocal rank fusion instead (Cormack, Clarke, Buettcher 2009). mode: hybrid, keyword, vector, or auto, which looks '
  'at the question. Only rows that contain filter (jsonb @>), come from sources, are in language, were added from since '
  'and before until. Among keywords "quoted phrases" must and -words must not stand in a row. query_language: of the '
  'question, else it is detected. neighbours: so many chunks before and after each hit, touching hits merged. tenant: only '
  'of this one; without it of all that the caller may see (visible_tenants()), which row level security would not let '
  'the indexes serve, so this function runs as its owner and looks after it itself; pass is not for callers to give. A leg '
  'that did not find a row has a null rank; ties go by id';

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
  from search_documents(query_text, query_embedding, match_count, filter => hybrid_search.filter,
                        alpha => case when semantic_weight <> full_text_weight
                                      then semantic_weight / (full_text_weight + semantic_weight) end,
                        rrf_k => hybrid_search.rrf_k)
         with ordinality as s (id, content, metadata, score, vr, kr, ir, similarity, snippet, place),
       lateral (select * from documents d where d.id = s.id limit 1) d
  order by s.place;
end $$;
comment on function hybrid_search(text, vector, int, int, float8, float8, jsonb) is
  'Drop-in for the hybrid_search of the tutorials: rows of documents, best first. Giving rrf_k asks for reciprocal rank '
  'fusion; see search_documents() for everything else';

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
  'Nearest documents by cosine, as Supabase, LangChain and n8n call it; similarity is 1 - cosine distance. Of all tenants '
  'that row level security lets the caller see: the setting gristmill.tenant is not looked at';

create function match_documents_hybrid(
  query_embedding  vector,
  match_count      int default 10,
  filter           jsonb default '{}'
) returns table (id bigint, content text, metadata jsonb, similarity float8)
language plpgsql stable
set search_path from current
as $$
begin
  return query
  select s.id, s.content, s.metadata, s.score
  from search_documents(coalesce(filter ->> 'query_text', ''), query_embedding, coalesce(match_count, 10),
                        filter => match_documents_hybrid.filter - 'query_text') s;
end $$;
comment on function match_documents_hybrid(vector, int, jsonb) is
  'match_documents with fused search, for nodes that can only be told another function name: the question goes into '
  'the filter as query_text. similarity is the fused score';
