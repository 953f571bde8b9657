-- Runs with versions that know 013_embedding_budget.sql.
-- That of both columns (014_tenants.sql) is checked by now.
alter table documents drop constraint documents_source_id_fkey;

-- Frequencies over all tenants would tell each of them which words the others write.
alter table lexeme_statistics add column tenant text not null default 'default';
alter table lexeme_statistics alter column tenant drop default;
alter table lexeme_statistics drop constraint lexeme_statistics_pkey;
alter table lexeme_statistics add primary key (lexeme, tenant);
comment on column lexeme_statistics.documents is
  'Rows of the tenant in documents that hold it, scaled up where a sample was counted';

alter table index_statistics add column tenant text not null default 'default' check (tenant <> '');
alter table index_statistics alter column tenant drop default;
alter table index_statistics drop column only_row;
alter table index_statistics add primary key (tenant);
comment on table index_statistics is 'How large each tenant''s index was when its lexeme_statistics were refreshed';
update index_statistics set changes = 9223372036854775807;  -- so that they are counted again, now by tenant
