-- Repeatable, revision 2: applied again whenever it has changed.
-- What a question means to the lexical leg.

create function languages_present(tenants text[] default null) returns setof text
language sql stable parallel safe
begin atomic
  -- A loose index scan: one index probe a language instead of a pass over the table.
  with recursive step (tenant, language) as (
    select null, (select language from documents order by language limit 1) where tenants is null
    union all
    select t, (select d.language from documents d where d.tenant = t order by d.language limit 1) from unnest(tenants) as t
    union all
    select tenant, case when tenant is null
      then (select d.language from documents d where d.language > step.language order by d.language limit 1)
      else (select d.language from documents d where d.tenant = step.tenant and d.language > step.language
            order by d.language limit 1) end
    from step where language is not null
  )
  select distinct language from step where language is not null;
end;
comment on function languages_present(text[]) is 'The languages that documents holds, of all tenants or of these';

create function question_languages(query_text text, tenants text[] default null) returns text[]
language sql stable parallel safe
begin atomic
  with words as materialized (
    select distinct lower(token) as word
    from ts_parse('default', query_text)
    where tokid in (1, 2) and length(token) > 1  -- words of letters only
  ),
  scored as materialized (
    select name, (select count(*) from words where to_tsvector(text_search_config(name), word) = ''::tsvector) as stops
    from languages_present(tenants) as name
  )
  select coalesce(array_agg(name order by name), '{}')
  from scored
  where stops = (select max(stops) from scored) or name = 'simple';
end;
comment on function question_languages(text, text[]) is
  'The languages present in which the most words of the question are stop words: people put stop words into questions. '
  'All languages where it has none, as a bare code or a name';

create function is_sentence(query_text text, languages text[]) returns boolean
language sql stable parallel safe
begin atomic
  select query_text ~ '[?？]\s*$'
         or coalesce((select max((select count(*) from ts_parse('default', regexp_replace(query_text, '"[^"]*"', ' ', 'g'))
                                  where tokid in (1, 2) and length(token) > 1
                                    and to_tsvector(text_search_config(name), token) = ''::tsvector))
                      from unnest(languages) as name), 0) >= 2;
end;
comment on function is_sentence(text, text[]) is
  'Whether a question is put in a sentence (a question mark, or two stop words outside quotes) rather than in keywords';

-- The websearch syntax that people know: "a phrase" must stand in the passage, -word must not. Only among keywords: in
-- a sentence quotes and dashes are punctuation, and taking them for rules loses the answer. A minus counts only before
-- a word of letters, so that -4012 and -B stay parts of codes.
create function question_filter(query_text text, languages text[]) returns tsquery
language sql stable parallel safe
begin atomic
  with asked as materialized (
    select plain_characters(query_text) as text where not is_sentence(query_text, languages)
  ),
  phrases as (
    select part[1] as phrase from asked, regexp_matches(text, '"([^"]+)"', 'g') as part
  ),
  wanted as (
    select (select string_agg('(' || q::text || ')', ' | ')
            from unnest(languages) as name,
                 lateral (values (phraseto_tsquery(text_search_config(name), phrase)),
                                 (phraseto_tsquery(text_search_config(name), f_unaccent(phrase)))) as v(q)
            where numnode(q) > 0) as one
    from phrases
  ),
  unwanted as (
    select (select string_agg(quote_literal(lexeme), ' | ')
            from unnest(languages) as name,
                 unnest(tsvector_to_array(to_tsvector(text_search_config(name), part[1]))) as lexeme) as one
    from asked,
         regexp_matches(regexp_replace(text, '"[^"]*"', ' ', 'g'), '(?:^|\s)-([[:alpha:]][[:alpha:]]+)\M', 'g') as part
  )
  select string_agg(rule, ' & ')::tsquery
  from (select '(' || one || ')' from wanted where one is not null
        union all
        select '!(' || one || ')' from unwanted where one is not null) as rules(rule);
end;
comment on function question_filter(text, text[]) is
  'What the quoted phrases and -words of keywords demand of a passage; null where there are none, or in a sentence';

create function question_lexemes(query_text text, languages text[], tenants text[] default null)
returns table (lexeme text, kind text, documents int, idf float8, weight float8)
language sql stable parallel safe
begin atomic
  with asked as materialized (
    select case when is_sentence(query_text, languages) then plain_characters(query_text)
                else regexp_replace(plain_characters(query_text), '(^|\s)-[[:alpha:]][[:alpha:]]+\M', ' ', 'g')
           end as text
  ),
  spelled as materialized (
    select u.lexeme, s.kind, max(cardinality(u.positions)) as occurrences
    from asked, unnest(languages) as name,
         lateral (values ('word', text), ('spelling', f_unaccent(text))) as s(kind, spelling),
         unnest(to_tsvector(text_search_config(name), spelling)) as u
    group by 1, 2
  ),
  found as (
    select lexeme, kind, occurrences from spelled s
    where kind = 'word' or not exists (select from spelled w where w.lexeme = s.lexeme and w.kind = 'word')
    union all
    select code, 'identifier', 1 from asked, unnest(identifier_lexemes(identifiers(text, true))) as code
  ),
  counted as materialized (
    select f.lexeme, f.kind, f.occurrences,
           -- Those of an identifier are counted now, they are few; whatever the snapshot lacks is rare. Subqueries, or
           -- the planner, who knows not how few lexemes a question has, would read the whole snapshot.
           case when f.kind = 'identifier' and tenants is null
                then (select count(*) from (select from documents d where d.fts @@ quote_literal(f.lexeme)::tsquery
                                            limit 10000) as hits)
                when f.kind = 'identifier'
                then (select count(*) from (select from documents d
                                            where d.fts @@ quote_literal(f.lexeme)::tsquery and d.tenant = any (tenants)
                                            limit 10000) as hits)
                else coalesce((select sum(s.documents) from lexeme_statistics s
                               where s.lexeme = f.lexeme and (tenants is null or s.tenant = any (tenants))), 1)
           end as documents,
           greatest((select sum(i.documents) from index_statistics i
                     where tenants is null or i.tenant = any (tenants)), 1) as total
    from found f
  )
  select c.lexeme, c.kind, c.documents::int, v.idf,
         v.idf * c.occurrences * case c.kind when 'spelling' then 0.25 else 1 end
  from counted c,
       lateral (select ln(1 + greatest(c.total - c.documents + 0.5, 0.5) / (c.documents + 0.5))) as v(idf)
  where c.documents > 0;
end;
comment on function question_lexemes(text, text[], text[]) is
  'What BM25 looks for: kind is word (a stem as asked), spelling (the stem without accents, for passages written so; at a '
  'quarter of the weight) or identifier (only such as some passage holds), each with its document frequency among all '
  'tenants or these, its BM25 idf, and its weight in the score';
