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
return (
  with spelled as materialized (
    select case
      when value collate "C" !~ '[^\x01-\x7E]' then value
      else
        -- Compatibility would turn the figure of a footnote into a figure of the code before it.
        regexp_replace(regexp_replace(regexp_replace(regexp_replace(replace(replace(
          value collate "C", U&'\2019', ''''), U&'\02BC', ''''),
          '[\u2010-\u2013\u2212\uFE63\uFF0D]', '-', 'g'),
          '[\u00A0\u2007\u2009\u202F\u2014\u2015\uFE58]', ' ', 'g'),
          '[\u00AD\u200B\u2060\u2120\u2122\uFEFF]', '', 'g'),
          '([0-9])([\u00B9\u00B2\u00B3\u2070-\u2079\u00BC-\u00BE\u2460-\u2473])', '\1 \2', 'g')
      end as t
  )
  select case when t is nfkc normalized then t else normalize(t, nfkc) end from spelled
);
comment on function plain_characters(text) is
  'One character for each thing: compatibility forms folded; hyphens and short dashes -; long dashes and all spaces a '
  'plain space; apostrophes one. Soft hyphens, what has no width, and trade marks are gone';

create function identifier_key(token text) returns text
language plpgsql immutable strict parallel safe
as $$
declare
  t text collate "C" := token;
begin
  if t ~ '[^ -~]' then
    -- lower() knows these letters in some locales only.
    t := translate(regexp_replace(normalize(t, nfd), '[\u0300-\u036F]', '', 'g'),
                   'ΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩАБВГДЕЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯЄІҐÆØŒĐŁÞÐ',
                   'αβγδεζηθικλμνξοπρστυφχψωабвгдежзийклмнопрстуфхцчшщъыьэюяєіґæøœđłþð');
  end if;
  t := lower(t);
  if t ~ '^(?:[a-z]+[- ]?[0-9]+[a-z]*|[a-z0-9_]+)$' then
    return translate(t, '- ', '');
  end if;

  if translate(t, '/\', '') <> t then
    -- A path, an address, a number with a slash: https://www.example.org/a/ is example.org/a, 2024/118 is 2024-118.
    if t ~ '^[0-9]+(?:/[0-9]+)+$' then
      return replace(t, '/', '-');
    end if;
    return regexp_replace(replace(t, '\', '/'), '^(?:[a-z][a-z0-9]*://)?(www[.])?[.]{0,2}/*|[/.,;:!?]+$'
                                                '|(?<![0-9])[- ]|[- ](?![0-9])', '', 'g');
  end if;
  if t like '%@%.%' then
    return t;
  end if;

  -- UUID, MAC address, IBAN, money: written with separators or without.
  if t ~ '^(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{2}(?:[-:][0-9a-f]{2}){5}'
         '|[0-9a-f]{4}[.][0-9a-f]{4}[.][0-9a-f]{4}|[a-z]{2}[0-9]{2} [0-9a-z]{4} .*)$' then
    return translate(t, '-:. ', '');
  end if;
  if t ~ '^(?:[0-9]{1,3}(?:[ ,''][0-9]{3})+[.]|[0-9]{1,3}(?:[ .][0-9]{3})*,)[0-9]{2}$' then
    return regexp_replace(t, '[^0-9]|[0-9]{2}$', '', 'g') || '.' || right(t, 2);
  end if;
  if length(translate(t, '0123456789abcdef', '')) <= 7
     and t ~ '^(?:(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}'
             '|(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,5})?::(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,5})?)$' then
    return host(t::inet);
  end if;
  -- Phone numbers, ISBNs, account numbers: grouped by whoever wrote them. Not addresses like 192.168.10.25.
  if length(translate(t, '-() .+', '')) >= 9
     and t ~ '^(?:[(]?[0-9][-() 0-9]{7,}[0-9x]|[+][-().0-9 ]+|00[1-9][-().0-9 ]+'
             '|0[1-9](?:[.][0-9]{2}){4}|[0-9]{3}[.][0-9]{3}[.][0-9]{4})$' then
    return regexp_replace(t, '^00(?=[1-9][0-9]{0,2}[- .(])|[(]0[)]|[^0-9x]', '', 'g');
  end if;
  if t ~ '^v[- .]?[0-9]+[.][0-9]' then
    return ltrim(t, 'v-. ');
  end if;

  if t ~ '^-?[0-9]+,[0-9]+ ?[^-0-9]' then  -- 3,5 kW
    t := replace(t, ',', '.');
  end if;
  -- Between two digits a separator tells neighbours apart: L. 121-3 is not L. 12-13, v2.3.1 is not v2.31.
  return coalesce(substring(t from '^(?:[.]|-(?=[0-9]))'), '')
         || regexp_replace(t, '(?<![0-9])[-.:@, ]|[-.:@, ](?![0-9])', '', 'g');
end $$;
comment on function identifier_key(text) is
  'One form for all spellings of an identifier: E-4012, e 4012 and E4012 are e4012';

-- In steps rather than in one query: a query of so many parts takes longer to start than most texts to read.
create function identifiers(value text, loose boolean default false) returns text[]
language plpgsql immutable strict parallel safe
set search_path from current
as $$
declare
  -- In the C collation: what is a letter must not hang on the locale of the database.
  t       text collate "C" := plain_characters(value);
  run     text collate "C";
  word    text collate "C";
  body    text collate "C";
  head    text collate "C";
  token   text collate "C";
  form    text collate "C";
  key     text collate "C";
  heads   text[] := '{}';
  tokens  text[] := '{}';
  digits  text[] := '{}';
  codes   text[];
  parts   text[];
  forms   text[] := '{}';
  keys   text[] := '{}';
  section boolean;
  named   boolean;
  speaks  boolean;
  alone   boolean;
begin
  -- What holds a figure or a sign, with the word before a number: few of the words of prose. Chinese, Japanese and
  -- Korean run on without spaces, so their letters end an identifier.
  for run in
    select translate(m.part[1], E'\n\r\t', '   ')
    from regexp_matches(t, replace('[«-]+[.]?\s[0-9][«0-9_@/\\:.,+#-]*'
                                   '|[«0-9_@/\\:.,+#-]*[0-9_@+#:/\\][«0-9_@/\\:.,+#-]*'
                                   '|(?:^|[\s("])[.][«]{2,}',
                                   '«', 'A-Za-z\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u024F'
                                        '\u0370-\u03FF\u0400-\u052F\u1E00-\u1EFF'), 'g') as m(part)
  loop
    continue when strpos(run, '://') > 0;
    word := case when strpos(run, ' ') > 1 and right(run, 1) <> ' ' then split_part(run, ' ', 1) end;
    body := rtrim(ltrim(substr(run, coalesce(length(word), 0) + 1), ' (",-@+'), '.,:-/\@');
    if body !~ '[,+#:]|[.]{3}'
       or body ~ '^(?:[A-Za-z]+\+\+[0-9]{0,2}|[A-Za-z]#|#[0-9]+|.*@.+[.].+'  -- C++17, C#, #123, mail
                 '|[0-9]{1,2}(?:,[0-9]{1,2})+-\D.*|[0-9]{1,3}(?:,[0-9]{3})+(?:[.][0-9]+)?'  -- 2,4-D and 1,250.00
                 '|[0-9A-Fa-f]{0,4}(?::{1,2}[0-9A-Fa-f]{0,4}){2,7})$' then  -- IPv6, MAC
      parts := array[body];
    elsif body ~ '[A-Za-z](?:\+\+[0-9]{0,2}|#)(?:[/\\,:]|$)' then
      parts := regexp_split_to_array(body, '[/\\,:]+');
    else
      parts := regexp_split_to_array(body, '[,+#]+|[.]{3,}|(?<![0-9:]):(?!:)|(?<!:):(?![0-9:])');
    end if;
    foreach token in array parts loop
      token := rtrim(case when token like '%@%.%' then substring(token from '[^:,/#]+@.+')
                          when left(token, 2) = '__' then token
                          else btrim(token, '_') end, '.-/\@');
      if token <> '' then
        heads := array_append(heads, rtrim(word, '.'));
        tokens := array_append(tokens, token);
      end if;
    end loop;
  end loop;

  -- What has spaces or other signs inside. These stand after the runs and have no word before them.
  if strpos(t, '://') > 0 or strpos(t, ':\') > 0 then
    tokens := tokens || array(
      select m.part[1]
      from regexp_matches(t, '[A-Za-z][A-Za-z0-9]*://[^\s<>"''()\[\]{}]+'
                             '|[A-Za-z]:\\(?:[^\\/:*?"<>|\n]{1,60}\\)*[^\\/:*?"<>|\s,;()]*', 'g') as m(part));
  end if;
  if t ~ '[0-9]' then
    digits := array(
      select m.part[1] from regexp_matches(t, '[A-Za-z_]*[+(]?[0-9][0-9 ().,''-]{5,}[0-9]', 'g') as m(part));
    tokens := tokens || array(
      select case when strpos(m.part[1], '°') > 0 then m.part[1] else ltrim(m.part[1], '-') end
      from regexp_matches(t, '[A-Za-z_0-9.,-]*[0-9] ?(?:[kKMmμ]?[Vv]|[kKMm]?[Ww]|[kKM][Ww]h|m?Ah|mA|'
                             '[kKMG]?Hz|[kmg]?hz|[mcknμ]m|[kmμ]g|bar|[hkM]?Pa|[KMGTkmgt]i?[Bbo]|'
                             '°[CFcf]|dB|Nm|ml|mL|ms|[kM]?Ω|€)'
                             '(?![\w\u00C0-\u024F])', 'g') as m(part)
      where m.part[1] ~ '^-?[0-9]+(?:[.,][0-9]+)?[ °A-Za-zμ€]');
  end if;
  foreach run in array digits loop
    -- Numbers in groups: telephone, ISBN, company, card, social security, money.
    if left(run, 1) in ('+', '(') or left(run, 1) between '0' and '9' and translate(run, ' ,(+', '') <> run then
      tokens := tokens || array(
        select m.part[1]
        from regexp_matches(run, $re$(?x)
               (?: \m0[1-9] (?: [ .-]?[0-9]{2} ){4}
                 | \m0[0-9]{2,4} [ ][0-9]{3,4} [ ][0-9]{3,4}
                 | (?: [+] | \m00 )[1-9][0-9]{0,2} [ .-]? (?: [(]0[)][ ]? )?
                     [(]?[0-9]{1,4}[)]? (?: [ .-]?[0-9]{2,4} ){2,4}
                 | (?: [(][0-9]{3}[)][ ]? | \m[0-9]{3}[ .-] ) [0-9]{3}[ .-][0-9]{4}
                 | \m[0-9]{3} (?: [ ][0-9]{3} ){2} (?: [ ][0-9]{5} )?
                 | \m[0-9]{4} (?: [ ][0-9]{4} ){3}
                 | \m97[89] (?: [ ][0-9]{1,7} ){3} [ ][0-9]
                 | \m[12] (?: [ ][0-9]{2} ){3} (?: [ ][0-9]{3} ){2} (?: [ ][0-9]{2} )?
                 | \m[0-9]{1,3} (?: [ ,'][0-9]{3} )+ [.][0-9]{2}
                 | \m[0-9]{1,3} (?: [ .][0-9]{3} )+ ,[0-9]{2}
               ) \M$re$, 'g') as m(part));
    end if;
  end loop;
  if exists (select from unnest(digits) as d where length(translate(d, '0123456789', '')) <= length(d) - 8) then
    parts := array(
      select m.part[1]
      from regexp_matches(t, '\m[A-Za-z]{2}[0-9]{2} [0-9A-Za-z]{4}(?: (?:[0-9][0-9A-Za-z]{3}|[0-9A-Za-z]{3}[0-9])){2,6}'
                             '(?: [0-9][0-9A-Za-z]{0,2})?\M', 'g') as m(part));  -- IBAN
    if parts <> '{}' then
      tokens := array(select case when exists (select from unnest(parts) as a where left(a, 4) = u) then '' else u end
                      from unnest(tokens) with ordinality as u(u, n) order by n) || parts;
    end if;
  end if;

  for i in 1 .. cardinality(tokens) loop
    token := tokens[i];
    head := heads[i];
    continue when token = '';
    section := false;
    named := false;
    alone := true;
    if head is not null then
      section := lower(head) = any (
        '{art,arts,article,articles,chapter,chapitre,chap,title,titre,annex,annexe,appendix,part,partie,section,'
        'sections,sec,livre,book,volume,vol,tome}'::text[]);
      -- Which word before a number is part of its name: SKU 8842-B, L. 121-3, but not 'from 2.3.1'.
      named := section
        or length(head) <= 4
           and (loose or length(head) = 1 or head ~ '^[^a-z]')
           and (length(head) > 1 and head = upper(head)
                or lower(head) <> all (
                  '{a,an,as,at,by,do,i,if,in,is,it,of,on,or,so,to,up,we,all,and,any,are,but,can,did,for,get,had,'
                  'has,how,its,not,now,off,one,our,out,per,the,use,was,who,why,you,does,each,from,have,into,'
                  'last,like,more,most,next,only,over,some,such,than,that,them,then,they,this,till,uses,what,'
                  'when,will,with,your,à,y,au,ai,ce,ci,de,du,en,et,il,je,la,le,ne,où,ou,sa,se,si,un,aux,ces,'
                  'des,est,les,mais,ont,par,pas,peu,que,qui,ses,son,sur,une,vos,chez,dans,deux,donc,dont,elle,'
                  'leur,nous,plus,pour,puis,quel,sans,sont,sous,tous,tout,vers,vous,n,no,nos,nr,num,ver,fax,'
                  'tel,tél}'::text[]));
      -- Some numbers say enough without it: 8842-B, an order number, an address, a date.
      speaks := token ~ '[A-Za-z]|^[0-9]{6,}$|^[0-9]{1,3}(?:[.][0-9]{1,3}){3}|^[0-9]{4}-[0-9]{2}-';
      alone := not named
        or case when section then not loose
                when length(head) = 1 then token ~ '[A-Za-z]'
                else not loose or head <> upper(head) or speaks end;
      -- A question for SKU 8842-B is also answered by a row that says 8842-B alone, and as well.
      if named and not (loose and speaks and not section and length(head) > 1 and length(token) > 4) then
        forms := array_append(forms, case when section then left(lower(head), 3) else head || '-' end || token);
      end if;
    end if;
    continue when not alone;

    if translate(token, '/\', '') <> token then
      -- What has slashes is one thing or a list: E-4012/E-4013 are two codes, AB/123-4 is one.
      if token ~ '[0-9_]|^[.]{0,2}[/\\].*[/\\]|:' then
        parts := array_remove(regexp_split_to_array(token, '[/\\?&=#]+'), '');
        codes := array(select p from unnest(parts) with ordinality as u(p, n)
                        where p ~ '[0-9].*[A-Za-z]|[A-Za-z].*[0-9]|_|^[0-9]+[.][0-9]' order by n);
        if token ~ ':|^[/\\]' or codes <> parts then
          forms := array_append(forms, token);
          if loose then
            codes := case when codes[cardinality(codes)] = parts[cardinality(parts)]
                           then codes[cardinality(codes):] else '{}' end;
          end if;
        end if;
        forms := forms || codes;
      end if;
    elsif token ~ '[0-9].*[A-Za-z\u00C0-\u024F\u0370-\u052F]|[A-Za-z\u00C0-\u024F\u0370-\u052F].*[0-9]'
                  '|[A-Za-z0-9]_+[A-Za-z0-9]|^__|[0-9][-.:, °][0-9]|[A-Za-z](?:\+\+|#)$'
                  '|^#?[0-9]{6,}$|^#[0-9]|::|@.+[.]|^[.]|[°€]|^[+(]'
          and token !~ '^[0-9]{1,2}(?:[nr]d|st|th|er|ère|eme|ème|e)$' then
      forms := array_append(forms, token);
    end if;

    -- Codes from-to are keys by both ends.
    if strpos(token, '-') > 1 then
      parts := regexp_match(token, '^(([A-Za-z]+)-?[0-9]+)-(\2-?[0-9]+)$');
      if parts is not null then
        forms := forms || array[parts[1], parts[3]];
      end if;
    end if;
    if not loose then
      -- A text is also keys by a part of what it says: 2024-118 of REF-2024-118; C++ of C++17, the day of a
      -- timestamp, the address of a port, the short form of a commit.
      form := substring(token from '^[A-Za-z]{2,5}-?([0-9]+[-.:]?[0-9A-Za-z].*)$');
      if form ~ '[0-9].*[A-Za-z]|[0-9][-.:][0-9]|^[0-9]{6,}$' then
        forms := array_append(forms, form);
      end if;
      form := substring(token from '^(?:[A-Za-z]\+\+(?=[0-9])|[0-9]{4}-[0-9]{2}-[0-9]{2}(?=T[0-9])'
                                   '|(?:[0-9]{1,3}[.]){3}[0-9]{1,3}(?=[:/])|[0-9a-f]{7}(?=[0-9a-f]{33}$))');
      if form is not null then
        forms := array_append(forms, form);
      end if;
    end if;
  end loop;

  if strpos(t, '§') > 0 then
    forms := forms || array(
      select '§-' || ltrim(m.part[1], '§ ')
      from regexp_matches(t, '§ ?[0-9][0-9A-Za-z]*(?:[-.][0-9A-Za-z]+)*', 'g') as m(part));
  end if;
  if t ~ '[eEtTkKxXnNrR] (?:[A-Z]|[IVXLC]{2,7}|[ivxlc]{1,7})(?![\w-])' then
    forms := forms || array(
      select left(lower(m.part[1]), 3) || split_part(m.part[1], ' ', 2)
      from regexp_matches(t, '[A-Za-z]+ (?:[IVXLC]{1,7}|[ivxlc]{1,7}|[A-Z])(?![\w-]|[.]? ?[0-9])', 'g') as m(part)
      where (loose or right(m.part[1], 1) between 'A' and 'Z')
        and lower(split_part(m.part[1], ' ', 1))
            = any ('{article,chapter,chapitre,annex,annexe,appendix,title,titre,part,partie,section,livre,book,tome}'
                   ::text[]));
  end if;

  foreach form in array forms loop
    key := identifier_key(form);
    if length(key) between 2 and 128 then
      keys := array_append(keys, key);
    end if;
    -- +33 1 23 45 67 89 and 01 23 45 67 89 are one telephone, +32 1 23 45 67 89 is another.
    if form ~ '^(?:[+]|00[1-9][0-9]? ?)' and key ~ '^(?:1[0-9]{10}$|3[0-36]|4[0134569])' then
      key := case when loose then '' else '+' end
             || case when left(key, 1) = '1' then substr(key, 2) else '0' || substr(key, 3) end;
      keys := array_append(keys, key);
    elsif loose and key ~ '^(?:0[1-9][0-9]{8,9}|[2-9][0-9]{9})$' then
      keys := array_append(keys, '+' || key);
    end if;
  end loop;
  return array(select k from unnest(keys) with ordinality as u(k, n) group by k order by min(n));
end $$;
comment on function identifiers(text, boolean) is
  'Identifiers in a text by their keys: error codes, SKUs, versions, article numbers, telephone numbers, paths, '
  'snake_case, C++. A short word before a number (L. 121-3, RFC 7231) counts when capitalised, or always if loose (for '
  'questions, which are often typed in lower case). A text also gives the parts of a long identifier, a question asks '
  'for the whole';

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
