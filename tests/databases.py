"""Databases of a PostgreSQL server for one test after the other: each test finds an empty one that nobody else sees.

Making a database and removing it costs the server more than most tests do with it: a template is copied, and there is a
checkpoint. So one that is as it was made, once our schema is gone from it, goes to the next test; any other is removed.
"""

from __future__ import annotations

import psycopg

from allswell.testing.postgres import Cluster

_END_OTHERS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_CONTENT = """
SELECT 'database', datdba::text, datconnlimit::text, datallowconn::text, coalesce(datacl::text, '')
FROM pg_database WHERE datname = current_database()
UNION ALL SELECT 'setting', setrole::text, setconfig::text, '', '' FROM pg_db_role_setting
WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
UNION ALL SELECT 'schema', nspname, nspowner::text, coalesce(nspacl::text, ''), ''
FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_'
UNION ALL SELECT 'relation', relname, relnamespace::text, relowner::text, coalesce(relacl::text, '')
FROM pg_class WHERE oid >= 16384
UNION ALL SELECT 'function', proname, pronamespace::text, '', '' FROM pg_proc WHERE oid >= 16384
UNION ALL SELECT 'extension', extname, '', '', '' FROM pg_extension
UNION ALL SELECT 'prepared', gid, '', '', '' FROM pg_prepared_xacts WHERE database = current_database()
ORDER BY 1, 2, 3, 4, 5
"""
"""All that a test could leave behind in a database beside our own schema."""


class Databases:
    """The databases of one server."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._free: list[str] = []
        self._as_made: dict[str, list[tuple[str, ...]]] = {}

    def take(self) -> str:
        """The URL of an empty database."""
        if self._free:
            return self._free.pop()
        url = self._cluster.create_database()
        with self._connect(url) as connection:
            self._as_made[url] = connection.execute(_CONTENT).fetchall()
        return url

    def give_back(self, url: str) -> None:
        """Let the next test have it, if it is as it was made; nobody is connected to it any more."""
        try:
            with self._connect(url) as connection:
                connection.execute(_END_OTHERS)
                connection.execute("DROP SCHEMA IF EXISTS allswell CASCADE")
                if connection.execute(_CONTENT).fetchall() == self._as_made[url]:
                    self._free.append(url)
                    return
        except psycopg.Error:
            pass  # whatever was done to it, it goes
        self._cluster.drop_database(url)

    def _connect(self, url: str) -> psycopg.Connection[tuple[str, ...]]:
        return psycopg.connect(self._cluster.admin_url(url.rpartition("/")[2]), autocommit=True)
