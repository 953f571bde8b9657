-- Runs with versions that know 013_embedding_budget.sql.
-- Tenants share the tables and see nothing of each other: an API key may be bound to one, database roles are given
-- tenants (020_access.sql), a chunk is of its source's tenant, and word frequencies are counted for each tenant.

alter table api_keys add column tenant text check (tenant <> '');
comment on column api_keys.tenant is 'The key is good for this tenant only; null: for any';

create table tenant_roles (
  role        regrole not null,
  access      text not null check (access in ('owner', 'worker', 'reader')),
  tenant      text check (tenant <> ''),
  pass        uuid not null unique default gen_random_uuid(),
  granted_at  timestamptz not null default now(),
  check ((access = 'reader') = (tenant is not null))
);
create unique index tenant_roles_once on tenant_roles (role, coalesce(tenant, ''));
comment on table tenant_roles is
  'Database roles that may use the tables: their owner and workers all of them, a reader the documents of its tenants. '
  'Written by grant_worker(), grant_reader(), revoke_access() and apply_access()';
comment on column tenant_roles.pass is 'Whoever shows it to search_documents() acts as this role, see caller_passes';
-- Before the functions that ask for it: a question that came before them, and waits for their locks, does not see what
-- comes with them.
insert into tenant_roles (role, access) select relowner, 'owner' from pg_class where oid = 'documents'::regclass;

-- Within a security definer function nobody can tell which role called it: the role that logged in may be another one,
-- as when a superuser refreshes a reader's materialized view, or autovacuum evaluates its index expressions. So the
-- caller brings along what only that role can read; current_user in a view is who asks, and not the view's owner.
create view caller_passes with (security_barrier) as
select t.pass
from tenant_roles t
where case
  when (select rolsuper or rolbypassrls from pg_catalog.pg_roles where rolname = current_user)
       or exists (select from tenant_roles o where o.access = 'owner' and pg_has_role(current_user, o.role, 'usage'))
  then t.access = 'owner'
  else pg_has_role(current_user, t.role, 'usage')
end;
grant select on caller_passes to public;
comment on view caller_passes is 'Passes of the role that asks; of a role above all others that of the tables'' owner';

-- A chunk that names another tenant than its source would show that source's passages to the wrong people.
create unique index sources_id_tenant on sources (id, tenant);
alter table documents add constraint documents_source_tenant
  foreign key (source_id, tenant) references sources (id, tenant) on delete cascade not valid;

