"""The PostgreSQL store: any number of processes on one server, PostgreSQL 14 or newer."""

from allswell.store.postgres.connection import PostgresSettings
from allswell.store.postgres.store import PostgresStore

__all__ = ["PostgresSettings", "PostgresStore"]
