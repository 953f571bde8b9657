-- A text is embedded once a model, whichever documents hold it.
create table embedding_cache (
  model       text not null,
  text_hash   bytea not null,
  embedding   vector not null,
  created_at  timestamptz not null default now(),
  primary key (model, text_hash)
);
comment on table embedding_cache is 'Vectors by content: key is the model and the SHA-256 of the text that was embedded';

create table index_models (
  only_row    boolean primary key default true check (only_row),
  model       text not null,
  dimensions  int not null,
  set_at      timestamptz not null default now()
);
comment on table index_models is 'The one model whose vectors stand in documents: a query must use the same';
