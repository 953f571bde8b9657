-- Runs with versions that know 013_embedding_budget.sql.
-- Outside a transaction, each statement by itself.
-- What reads the whole table: nobody waits for it.
drop index concurrently if exists documents_tenant_language;
create index concurrently documents_tenant_language on documents (tenant, language);
drop index concurrently if exists documents_tenant;
alter table documents validate constraint documents_source_tenant;
