-- Runs with versions that know 013_embedding_budget.sql.
-- Outside a transaction, each statement by itself.
-- Whoever claims looks first for leases that ran out. They are looked for here and nowhere else: said as (… is true), the
-- condition fits no other index. Where statistics lag behind a flood, the planner takes sources_due for as good, and each
-- claim would read all that waits.
drop index concurrently if exists sources_leased;
create index concurrently sources_leased on sources (lease_until) where (state = 'leased') is true;
