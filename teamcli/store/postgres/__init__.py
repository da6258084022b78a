"""A team's state in PostgreSQL. Loaded only if a store is configured, because it needs the extra `postgres`."""
