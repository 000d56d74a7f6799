"""Every bound of the PostgreSQL store, by name, so that an error can say which one passed; times are seconds."""

from __future__ import annotations

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the store waits for what; none of these waits is endless."""

    connect_timeout: float = 5
    """For a connection to each of the URL's hosts."""
    network_timeout: float = 15
    """After which a peer that acknowledges nothing counts as dead (TCP keepalive and user timeout)."""
    statement_timeout: float = 15
    """For one statement of a unit of work; the server ends it."""
    lock_timeout: float = 5
    """For a row that another transaction holds; the server ends the wait."""
    idle_timeout: float = 10
    """For a process that has gone quiet inside a transaction: the server ends its session and frees its locks."""
    transact_timeout: float = 30
    """For a whole unit of work, its time in the queue included; then its connection is given up."""
    view_timeout: float = 15
    """For a view, a page of the journal or a cursor."""
    settle_timeout: float = 60
    """For the server to say how a transaction ended whose commit answer was lost."""
    migrate_timeout: float = 120
    """For bringing the schema up to date, the wait for another process that does so included."""
    close_timeout: float = 5
    """For work under way when the store is closed."""
    listen_check: float = 20
    """How long a listener may hear nothing before it proves by a round trip that it still would."""
    listen_timeout: float = 5
    """For that round trip, and for every notification; beyond it the listener is replaced."""
    vacuum_every: int = 20_000
    """After how many tasks claimed or withdrawn by this process the tables that turn over are vacuumed."""
    vacuum_timeout: float = 10
    """For that vacuum; the server ends it."""
    prepare_threshold: int | msgspec.UnsetType | None = msgspec.UNSET
    """After how many uses a statement is prepared; None: never.

    Left out, it is at once, or never where a pooler stands in between. One that carries prepared statements in
    transaction mode (PgBouncer 1.21 with `max_prepared_statements`) can be given 0 by hand.
    """
