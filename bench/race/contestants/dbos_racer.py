"""DBOS: a queue of workflows without steps, on PostgreSQL or SQLite.

A queue is worked on as soon as a launched process registers it, so each round has a queue of its own: filled by a
client first, registered when the draining begins.
"""

import time

import sqlalchemy as sa
from dbos import DBOS, DBOSClient
from protocol import Contestant, serve

CHUNK = 1_000
OPEN = "SELECT count(*) FROM {schema}workflow_status WHERE status IN ('ENQUEUED', 'PENDING')"
LAST = "SELECT max(completed_at) FROM {schema}workflow_status"


class Racer(Contestant):
    """A client, and the process's DBOS once it is needed."""

    def __init__(self, place: str, settings: dict) -> None:
        super().__init__(place, settings)
        self._schema = "" if place.startswith("sqlite") else "dbos."
        self._round = time.time_ns()
        self._launched = False
        self._client = None
        self._engine = None

    def _open(self) -> None:
        if self._client is None:
            self._client = DBOSClient(system_database_url=self.place)
            self._engine = sa.create_engine(self.place.replace("postgresql://", "postgresql+psycopg://"))

    def _launch(self) -> None:
        if self._launched:
            return
        DBOS(
            config={
                "name": "race",
                "system_database_url": self.place,
                "application_version": "1",
                "console_log_level": "CRITICAL",
                "sys_db_pool_size": self.settings["pool"],
            }
        )

        @DBOS.workflow(name="noop")
        def noop() -> None:
            pass

        @DBOS.workflow(name="stamped")
        def stamped(sent: float) -> None:
            self.picked(sent)

        DBOS.launch()
        self._launched = True

    def setup(self) -> None:
        """Launching makes the tables."""
        self._launch()
        self._open()

    def prepare(self) -> None:
        """Launching takes a while."""
        self._launch()
        self._open()

    def enqueue(self, count: int) -> None:
        """Enqueued one by one, 1,000 in a transaction."""
        self._round += 1
        options = {"workflow_name": "noop", "queue_name": f"race-{self._round}", "app_version": "1"}
        for first in range(0, count, CHUNK):
            with self._engine.begin() as connection:
                for _ in range(min(CHUNK, count - first)):
                    self._client.enqueue_in_transaction(connection, options)

    def drain(self) -> float:
        """Register the queue and wait; the last workflow says when it was done."""
        queue = f"race-{self._round}"
        DBOS.register_queue(
            queue,
            worker_concurrency=self.settings["worker_concurrency"],
            polling_interval_sec=self.settings["poll"],
        )
        query = sa.text(OPEN.format(schema=self._schema))
        left = 1
        while left:
            time.sleep(0.1)
            with self._engine.connect() as connection:
                left = connection.execute(query).scalar()
        DBOS.delete_queue(queue)  # or it would be polled for ever
        with self._engine.connect() as connection:
            return connection.execute(sa.text(LAST.format(schema=self._schema))).scalar() / 1000

    def stamp(self) -> None:
        """One workflow."""
        self._open()
        options = {"workflow_name": "stamped", "queue_name": "stamped", "app_version": "1"}
        self._client.enqueue(options, time.time())

    def watch(self) -> None:
        """Its queue threads, which poll: every second unless they are told otherwise."""
        self._launch()
        DBOS.register_queue("stamped", polling_interval_sec=self.settings["poll"])
        while True:
            time.sleep(1)

    def fill(self, count: int) -> None:
        """Copies of a finished workflow's row."""
        self.enqueue(1)
        self.drain()
        others = [name for name in self._columns() if name != "workflow_uuid"]
        table = f"{self._schema}workflow_status"
        numbers = f"generate_series(1, {count}) AS n"
        if not self._schema:
            counting = f"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count})"  # noqa: S608
            numbers = f"({counting} SELECT n FROM s)"  # noqa: S608
        copy = (
            f"INSERT INTO {table} (workflow_uuid, {', '.join(others)})"  # noqa: S608 - its own columns
            f" SELECT 'done-{self._round}-' || n, {', '.join(f'w.{name}' for name in others)}"
            f" FROM {numbers}, (SELECT * FROM {table} WHERE status = 'SUCCESS' LIMIT 1) AS w"
        )
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text(copy))
            if self._schema:
                connection.execute(sa.text("VACUUM (ANALYZE)"))

    def _columns(self) -> list[str]:
        schema = self._schema.rstrip(".") or None
        found = sa.inspect(self._engine).get_columns("workflow_status", schema=schema)
        return [column["name"] for column in found if not column.get("computed") and not column.get("identity")]


if __name__ == "__main__":
    serve(Racer)
