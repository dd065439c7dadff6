"""The PostgreSQL store: psycopg's connections, group commit by arrays, joined transactions."""
