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

create function identifiers(value text, loose boolean default false) returns text[]
language sql immutable strict parallel safe
return (
  with plain as (
    select translate(normalize(value, nfkc),
                     U&'\2010\2011\2012\2013\2014\2015\2212\FE58\FE63\FF0D\00A0\2007\2009\202F\00AD',
                     '----------    ') as t
  ),
  compact as (
    select lower(m.part[1]) as token, m.at
    from plain,
         regexp_matches(plain.t, '[A-Za-z0-9_À-ÖØ-öø-ÿ]+(?:[-.][A-Za-z0-9_À-ÖØ-öø-ÿ]+)*(?:\+\+|#)?', 'g')
           with ordinality as m(part, at)
  ),
  spaced as (
    select lower(m.part[1] || '-' || m.part[2]) as token, m.at
    from plain,
         regexp_matches(plain.t,
                        case when loose then '\m([A-Za-z]{1,4})\.?\s([0-9][0-9A-Za-z]*(?:[-.][0-9A-Za-z]+)*)'
                             else '\m([A-Z][A-Za-z]{0,3})\.?\s([0-9][0-9A-Za-z]*(?:[-.][0-9A-Za-z]+)*)' end, 'g')
           with ordinality as m(part, at)
  )
  select coalesce(array_agg(token order by kind, at), '{}')
  from (
    select token, 1 as kind, at from compact
    where token ~ '[0-9].*[a-zà-öø-ÿ]|[a-zà-öø-ÿ].*[0-9]|_[a-z0-9]|[0-9][-.][0-9]|[a-z](\+\+|#)$'
    union all
    select token, 2, at from spaced
  ) found
  where length(token) between 2 and 64
);
comment on function identifiers(text, boolean) is
  'Identifiers in a text, lower case, in order: error codes, SKUs, versions, article numbers, snake_case, C++. Dashes '
  'of all kinds are one. A short word before a number (L. 121-3, RFC 7231) counts when capitalised, or always if loose '
  '(for questions, which are often typed in lower case)';

create function identifier_lexemes(found text[]) returns text[]
language sql immutable strict parallel safe
return (
  select coalesce(array_agg(distinct lexeme), '{}')
  from unnest(found) as token,
       lateral (values ('#' || token), ('~' || regexp_replace(token, '[-_.]', '', 'g'))) as spelled(lexeme)
  where length(lexeme) > 2
);
comment on function identifier_lexemes(text[]) is
  'Two lexemes an identifier: #e-4012 as written, ~e4012 squeezed so that E4012 and E-4012 meet';

create function document_fts(language text, context text, content text) returns tsvector
language sql immutable parallel safe
begin atomic
  select stems
         || ts_delete(bare_stems, tsvector_to_array(stems))
         || array_to_tsvector(identifier_lexemes(identifiers(whole)))
  from (select coalesce(context || E'\n', '') || coalesce(content, '')) as t(whole),
       lateral (select to_tsvector(text_search_config(language), whole),
                       to_tsvector(text_search_config(language), f_unaccent(whole))) as v(stems, bare_stems);
end;
comment on function document_fts(text, text, text) is
  'The tsvector of one chunk: stems with accents, further stems without (unaccent before stemming breaks French), '
  'and identifier lexemes. A stem is counted once where both spellings agree';
