-- Repeatable, revision 1: applied again whenever it has changed.
-- Who may see what: forced row level security on every table, with a policy for each role that was let in.

create function caller_role() returns name
language sql stable
return coalesce(nullif(current_setting('role'), 'none'), session_user)::name;
comment on function caller_role() is
  'The role that acts, also from within a security definer function: as set by SET ROLE (PostgREST does), else as logged in';

create function visible_tenants(asked text, pass uuid[]) returns text[]
language plpgsql stable
set search_path from current
as $$
declare
  who    name := caller_role();
  chosen text := nullif(current_setting('gristmill.tenant', true), '');
  whole  boolean := exists (select from tenant_roles t
                            where t.access in ('owner', 'worker') and t.pass = any (visible_tenants.pass));
  seen   text[];
begin
  if asked <> chosen then
    raise exception 'tenant % is asked for, and gristmill.tenant is %', quote_literal(asked), quote_literal(chosen)
      using errcode = 'insufficient_privilege', hint = 'ask for none, or: reset gristmill.tenant';
  end if;
  asked := coalesce(asked, chosen);
  if whole and (exists (select from pg_roles where rolname = who and (rolsuper or rolbypassrls))
                or exists (select from tenant_roles t
                           where t.access in ('owner', 'worker') and pg_has_role(who, t.role, 'usage'))) then
    return case when asked is not null then array[asked] end;
  end if;
  -- Of both: whoever logged in may have been made to call this by another role, and a function of the owner's may have
  -- been called by anybody.
  seen := array(select distinct t.tenant from tenant_roles t
                where t.access = 'reader' and pg_has_role(who, t.role, 'usage')
                      and (whole or t.pass = any (visible_tenants.pass)));
  if seen = '{}' or asked <> all (seen) then
    raise exception 'role % may not search %', who, coalesce('tenant ' || quote_literal(asked), 'any tenant')
      using errcode = 'insufficient_privilege',
            hint = format('as the owner of the tables: select grant_reader(%L, ''TENANT'')', who);
  end if;
  return case when asked is null then seen else array[asked] end;
end $$;
comment on function visible_tenants(text, uuid[]) is
  'The tenants that a search looks at, by the role that acts and the passes of the role that called: null for all, which '
  'only the owner of the tables, workers and roles that bypass row level security get. asked, or else the setting '
  'gristmill.tenant, narrows it to one; both must not differ. An error where nothing, or not that one, was granted';

create function apply_access() returns void
language plpgsql
set search_path from current
as $$
declare
  table_name text;
  read_only  text[] := '{gristmill_migrations, gristmill_schema_files, tenant_roles}';  -- to a worker
  place      regclass;
  owner      oid := (select relowner from pg_class where oid = 'documents'::regclass);
  one        record;
begin
  -- Who became the owner lately is kept out by the policy of the one before, and all that follows reads this table.
  if (select relforcerowsecurity from pg_class where oid = 'tenant_roles'::regclass)
     and not exists (select from pg_policy
                     where polrelid = 'tenant_roles'::regclass and polname = 'owner' and polroles = array[owner]) then
    drop policy if exists owner on tenant_roles;
    execute format('create policy owner on tenant_roles to %s using (true) with check (true)', owner::regrole);
  end if;
  delete from tenant_roles t where not exists (select from pg_roles r where r.oid = t.role)
                                   or t.access = 'owner' and t.role <> owner;
  insert into tenant_roles (role, access) values (owner, 'owner') on conflict do nothing;

  for one in select distinct role from tenant_roles
             where access <> 'owner' and not has_schema_privilege(role, current_schema(), 'usage') loop
    execute format('grant usage on schema %I to %s', current_schema(), one.role);
  end loop;

  foreach table_name in array array[
    'api_keys', 'callbacks', 'documents', 'embedding_cache', 'embedding_usage', 'erasure_salt', 'erasures',
    'gristmill_migrations', 'gristmill_schema_files', 'homes', 'idempotency_keys', 'index_models', 'index_statistics',
    'kept_out', 'lexeme_statistics', 'page_ranges', 'pauses', 'sources', 'sync_hints', 'synced', 'syncs', 'tenant_roles',
    'webhook_deliveries'] loop
    place := to_regclass(format('%I.%I', current_schema(), table_name));
    continue when place is null;
    -- Only what differs: each of these statements waits for all readers of its table, and all others wait for it.
    if exists (select from pg_class where oid = place and not (relrowsecurity and relforcerowsecurity)) then
      execute format('alter table %s enable row level security, force row level security', place);
    end if;

    for one in
      with wanted as (
        select 'owner' as name, format('to %s using (true) with check (true)', owner::regrole) as policy
        union all
        select format('worker_%s', role::oid),
               case when table_name = any (read_only) then format('for select to %s using (true)', role)
                    else format('to %s using (true) with check (true)', role) end
        from tenant_roles where access = 'worker'
        union all
        select format('reader_%s', role::oid),
               format('for select to %s using (%s)', role,
                      string_agg(format('tenant = %L', tenant), ' or ' order by tenant))
        from tenant_roles where access = 'reader' and table_name in ('documents', 'sources') group by role
      ),
      found as (
        select polname as name, obj_description(oid, 'pg_policy') as policy from pg_policy
        where polrelid = place and (polname = 'owner' or polname ~ '^(worker|reader)_\d+$')
      )
      select coalesce(w.name, f.name) as name, w.policy as wanted, f.name is not null as found
      from wanted w full join found f on f.name = w.name
      where w.policy is distinct from f.policy
    loop
      if one.found then
        execute format('drop policy %I on %s', one.name, place);
      end if;
      if one.wanted is not null then
        execute format('create policy %I on %s %s', one.name, place, one.wanted);
        execute format('comment on policy %I on %s is %L', one.name, place, one.wanted);
      end if;
    end loop;

    -- Readers may have been given all by default privileges, as on Supabase, and policies rule over neither truncate nor
    -- trigger.
    for one in
      with allowed as (
        select role, access, case
            when access = 'worker' and table_name <> all (read_only) then '{select, insert, update, delete}'::text[]
            when access = 'worker' or table_name in ('documents', 'sources') then '{select}'
            else '{}' end as wanted
        from (select role, max(access) as access from tenant_roles where access <> 'owner' group by role) r
      )
      select role, wanted, held <> '{}' and not wanted @> held as too_much
      from allowed, lateral (select coalesce(array_agg(lower(a.privilege_type)), '{}') as held
                             from pg_class c, aclexplode(c.relacl) a where c.oid = place and a.grantee = role) h
      where not (wanted @> held and held @> wanted)
    loop
      if one.too_much then
        execute format('revoke all on %s from %s', place, one.role);
      end if;
      if one.wanted <> '{}' then
        execute format('grant %s on %s to %s', array_to_string(one.wanted, ', '), place, one.role);
      end if;
    end loop;
  end loop;

  -- Whoever was given the tables by hand before there were policies finds them empty now, without an error.
  for one in
    select distinct r.rolname as role
    from pg_class c, aclexplode(c.relacl) a join pg_roles r on r.oid = a.grantee
    where c.oid = 'documents'::regclass and not (r.rolsuper or r.rolbypassrls) and not pg_has_role(r.oid, owner, 'usage')
          and not exists (select from tenant_roles t where pg_has_role(r.oid, t.role, 'usage'))
  loop
    raise warning 'role % has rights on documents and sees no row of it: grant_reader(%, ''TENANT'') or grant_worker(%) let it',
                  one.role, quote_literal(one.role), quote_literal(one.role);
  end loop;
end $$;
comment on function apply_access() is
  'Bring row level security, policies and grants of all tables in line with tenant_roles; run after every migration. Only '
  'the owner of the tables may';

create function grant_worker(who text) returns void
language plpgsql
set search_path from current
as $$
begin
  perform refuse_powerful(who);
  insert into tenant_roles (role, access) values (quote_ident(who)::regrole, 'worker') on conflict do nothing;
  perform apply_access();
end $$;
comment on function grant_worker(text) is
  'Let a database role run the service: it reads and writes the documents of all tenants, and defines nothing. As the '
  'owner of the tables: select grant_worker(''gristmill_worker'')';

create function grant_reader(who text, tenant text) returns void
language plpgsql
set search_path from current
as $$
begin
  perform refuse_powerful(who);
  insert into tenant_roles (role, access, tenant) values (quote_ident(who)::regrole, 'reader', tenant)
    on conflict do nothing;
  perform apply_access();
end $$;
comment on function grant_reader(text, text) is
  'Let a database role search and read the documents of a tenant, and nothing else; again for a further tenant. As the '
  'owner of the tables: select grant_reader(''acme'', ''acme'')';

create function revoke_access(who text) returns void
language plpgsql
set search_path from current
as $$
declare
  place regclass;
begin
  delete from tenant_roles where role = quote_ident(who)::regrole;
  perform apply_access();
  for place in select distinct c.oid::regclass from pg_class c, aclexplode(c.relacl) a
               where c.relnamespace = current_schema()::regnamespace and c.relkind = 'r'
                     and a.grantee = quote_ident(who)::regrole loop
    execute format('revoke all on %s from %s', place, quote_ident(who)::regrole);
  end loop;
  execute format('revoke usage on schema %I from %s', current_schema(), quote_ident(who)::regrole);
end $$;
comment on function revoke_access(text) is 'Take from a database role what grant_worker() and grant_reader() have given it';

create function refuse_powerful(who text) returns void
language plpgsql stable
set search_path from current
as $$
declare
  whose regrole := quote_ident(who)::regrole;
  place name;
begin
  if exists (select from pg_roles where oid = whose and (rolsuper or rolbypassrls or rolreplication))
     or exists (select from pg_roles
                where rolname in ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program')
                      and pg_has_role(whose, oid, 'member'))
     or pg_has_role(whose, (select relowner from pg_class where oid = 'documents'::regclass), 'member') then
    raise exception 'role % is above row level security: a superuser, one with bypassrls or replication, one that reads '
                    'the server''s files, or a member of the tables'' owner', who
      using errcode = 'invalid_grant_operation', hint = 'create a plain role and grant it to that';
  end if;
  select nspname into place from pg_namespace
  where nspname = any (current_schemas(false)) and not pg_is_other_temp_schema(oid) and oid <> pg_my_temp_schema()
        and has_schema_privilege(whose, oid, 'create');
  if found then
    raise exception 'role % may create objects in schema %, and so put its own in the place of ours', who, place
      using errcode = 'invalid_grant_operation',
            hint = format('revoke create on schema %I from public, %s', place, whose);
  end if;
end $$;
comment on function refuse_powerful(text) is 'An error if a role could not be confined by policies';
