"""Everything that is defined in the database, as numbered SQL files, and `sql.migrate`, which applies them."""
