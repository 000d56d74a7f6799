"""A throwaway PostgreSQL server for tests.

    with Cluster() as pg:
        url = pg.create_database()      # a fresh database, owned by an ordinary role
        ...
        pg.kill()                       # SIGKILL, the whole server
        pg.start()                      # crash recovery, same URLs

It is a real server with fsync on and passwords asked for, in a folder of its own, up in about a second. It
goes when the process that made it goes, however that ends.
"""

from allswell.testing.postgres.binaries import find_binaries
from allswell.testing.postgres.cluster import Cluster
from allswell.testing.postgres.failure import ServerFailed

__all__ = ["Cluster", "ServerFailed", "find_binaries"]
