-- Runs with versions that know 013_embedding_budget.sql.
-- How far the database had come when a home last looked: one that is behind what its home remembers was restored.

create table homes (
  id         uuid primary key,
  mark       bigint not null,
  marked_at  timestamptz not null default now()
);
comment on table homes is 'Home directories that keep house for this database, each with the last mark it has made here';
comment on column homes.mark is
  'Raised here before it is raised in the home: where this one is lower, the database went back in time';
