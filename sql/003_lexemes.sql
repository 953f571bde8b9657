-- From text to lexemes: stems in the row's own language, with and without accents, and identifiers as lexemes of
-- their own, so that E-4012 is one exact term instead of 'e' and '-4012'.

-- unaccent() is only stable because its dictionary is looked up by name; bound to the dictionary it is immutable.
create function f_unaccent(value text) returns text
language sql immutable strict parallel safe
return unaccent('unaccent'::regdictionary, value);
comment on function f_unaccent(text) is 'unaccent() that may stand in a generated column';

-- text rather than a regconfig column: pg_upgrade refuses every table that holds a regconfig.
create function text_search_config(language text) returns regconfig
language sql immutable strict parallel safe
return language::regconfig;
comment on function text_search_config(text) is
  'Text search configuration by name; an error names one that does not exist';

create function plain_characters(value text) returns text
language sql immutable strict parallel safe
return translate(normalize(value, nfkc),
                 U&'\2010\2011\2012\2013\2014\2015\2212\FE58\FE63\FF0D\2019\02BC\00A0\2007\2009\202F\00AD\200B',
                 '----------''''    ');
comment on function plain_characters(text) is
  'One character for each thing: compatibility forms folded, all dashes -, all apostrophes one, all spaces plain, soft '
  'hyphens and zero-width spaces gone';

create function identifier_key(token text) returns text
language sql immutable strict parallel safe
return case
  -- Phone numbers, ISBNs, account numbers: grouped by whoever wrote them. Not addresses like 192.168.10.25.
  when token ~ '^[0-9][-. 0-9]+$' and length(regexp_replace(token, '[^0-9]', '', 'g')) >= 9
       and token !~ '^[0-9]{1,3}([.][0-9]{1,3}){3}$'
    then regexp_replace(token, '[^0-9]', '', 'g')
  -- Between two digits a separator tells neighbours apart: L. 121-3 is not L. 12-13, v2.3.1 is not v2.31.
  else regexp_replace(lower(token), '(?<![0-9])[-_.:@ ]|[-_.:@ ](?![0-9])', '', 'g')
end;
comment on function identifier_key(text) is
  'One form for all spellings of an identifier: E-4012, e 4012 and E4012 are e4012';

create function identifiers(value text, loose boolean default false) returns text[]
language sql immutable strict parallel safe
return (
  with plain as materialized (
    select plain_characters(value) as t
  ),
  compact as (
    select m.part[1] as token, m.at
    from plain,
         regexp_matches(plain.t, '[A-Za-z0-9_À-ÖØ-öø-ÿ]+(?:[-.:@][A-Za-z0-9_À-ÖØ-öø-ÿ]+)*(?:\+\+|#)?', 'g')
           with ordinality as m(part, at)
    where m.part[1] ~ '[0-9].*[[:alpha:]]|[[:alpha:]].*[0-9]|_[[:alnum:]]|[0-9][-.:][0-9]|[[:alpha:]](\+\+|#)$|^[0-9]{9,}$'
  ),
  spaced as (
    select m.part[1] || '-' || m.part[2] as token, m.at
    from plain,
         regexp_matches(plain.t,
                        case when loose then '\m([A-Za-z]{1,4})\.?\s([0-9][0-9A-Za-z]*(?:[-.:][0-9A-Za-z]+)*)'
                             else '\m([A-Z][A-Za-z]{0,3})\.?\s([0-9][0-9A-Za-z]*(?:[-.:][0-9A-Za-z]+)*)' end, 'g')
           with ordinality as m(part, at)
  ),
  grouped as (
    select regexp_replace(m.part[1], '[^0-9A-Z]', '', 'g') as token, m.at
    from plain,
         regexp_matches(plain.t, '\m([0-9A-Z]{1,4}(?:[ .-][0-9A-Z]{1,4}){3,9})\M', 'g') with ordinality as m(part, at)
    where length(regexp_replace(m.part[1], '[^0-9]', '', 'g')) >= 9
      and m.part[1] !~ '^[0-9]{1,3}([.][0-9]{1,3}){3}$'
  )
  select coalesce(array_agg(key order by kind, at), '{}')
  from (
    select distinct on (key) key, kind, at
    from (select 1, token, at from compact
          union all select 2, token, at from spaced
          union all select 3, token, at from grouped) as found(kind, token, at),
         lateral identifier_key(token) as key
    where length(key) between 2 and 64
    order by key, kind, at
  ) once
);
comment on function identifiers(text, boolean) is
  'Identifiers in a text by their keys, in order: error codes, SKUs, versions, article numbers, phone numbers, '
  'snake_case, C++. A short word before a number (L. 121-3, RFC 7231) counts when capitalised, or always if loose '
  '(for questions, which are often typed in lower case)';

create function identifier_lexemes(keys text[]) returns text[]
language sql immutable strict parallel safe
return (select coalesce(array_agg(distinct '~' || key), '{}') from unnest(keys) as key);
comment on function identifier_lexemes(text[]) is
  'The lexemes of identifiers, ~e4012: no parser makes one that begins so, they clash with no word';

create function document_fts(language text, context text, content text) returns tsvector
language sql immutable parallel safe
begin atomic
  -- Materialised, or each use would compute it again.
  with text_of as materialized (
    select plain_characters(coalesce(context || E'\n', '') || coalesce(content, '')) as whole
  ),
  vectors as materialized (
    select whole,
           to_tsvector(text_search_config(language), whole) as stems,
           to_tsvector(text_search_config(language), f_unaccent(whole)) as bare_stems
    from text_of
  )
  select stems
         || setweight(ts_delete(bare_stems, tsvector_to_array(stems)), 'C')
         || array_to_tsvector(identifier_lexemes(identifiers(whole)))
  from vectors;
end;
comment on function document_fts(text, text, text) is
  'The tsvector of one chunk: stems with accents, further stems without (unaccent before stemming breaks French), '
  'and identifier lexemes. A stem is counted once where both spellings agree; those without accents have weight C';

-- BM25 as a sparse vector: what depends on the document only (saturated term frequency, length) is stored with it,
-- what depends on the collection (inverse document frequency) comes with the question, and one inner product in C
-- multiplies them. k1 = 1.2, b = 0.75 (Robertson, Zaragoza 2009). The average length is fixed, so that a vector never
-- has to be computed again because other documents came.
create function bm25_average_length() returns float8
language sql immutable parallel safe
return 100;
comment on function bm25_average_length() is 'Lexemes in an average chunk, for the length normalisation of BM25';

-- Hash partitioning relies on hashtextextended, so it must and does stay the same from version to version.
create function lexeme_dimension(lexeme text) returns int
language sql immutable strict parallel safe
return (hashtextextended(lexeme collate "C", 0) & 268435455)::int + 1;
comment on function lexeme_dimension(text) is 'The dimension of a lexeme in a BM25 vector: a hash of 28 bits, from 1';

create function bm25_vector(fts tsvector) returns sparsevec
language sql immutable strict parallel safe
begin atomic
  with terms as (
    select lexeme_dimension(lexeme) as dimension, sum(coalesce(cardinality(positions), 1))::float8 as tf,
           -- Second spellings and identifiers are not more text; what matches only without its accents counts less.
           sum(cardinality(positions)) filter (where weights[1] = 'D') as words,
           max(case weights[1] when 'C' then 0.5 else 1 end) as trust
    from unnest(fts)
    group by 1
  ),
  length as (
    select coalesce(sum(words), 0) as lexemes from terms
  ),
  weighted as (
    select dimension, trust * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * lexemes / bm25_average_length())) as weight
    from terms, length
    order by weight desc
    limit 16000  -- what a sparsevec can hold
  )
  select ('{' || coalesce(string_agg(dimension || ':' || weight::float4, ',' order by dimension), '')
          || '}/268435456')::sparsevec
  from weighted;
end;
comment on function bm25_vector(tsvector) is
  'The document''s half of BM25: weight of each lexeme, by lexeme_dimension(). Inner product with the idf of a '
  'question''s lexemes is the score';
