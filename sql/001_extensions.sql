-- pgvector and unaccent. Where both exist already (Supabase, a database prepared by its owner) a plain role may run
-- this; elsewhere it takes a role that may create extensions. Supabase keeps extensions in a schema of that name.
do $$
declare
  place text := case when to_regnamespace('extensions') is not null then ' with schema extensions' else '' end;
  wanted text;
begin
  foreach wanted in array array['vector', 'unaccent'] loop
    if not exists (select from pg_extension where extname = wanted) then
      execute format('create extension if not exists %I%s', wanted, place);
    end if;
  end loop;
  if (select string_to_array(extversion, '.')::int[] < array[0, 8] from pg_extension where extname = 'vector') then
    raise exception 'pgvector 0.8 or newer is needed' using errcode = 'feature_not_supported',
      hint = 'run: alter extension vector update';
  end if;
  -- A role without superuser may name hnsw.* settings only once the library has been loaded.
  perform '[1]'::vector <=> '[2]'::vector;
end $$;
