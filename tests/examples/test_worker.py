"""`examples/worker/jobs.py`: a payment is booked and mailed, others are quarantined or end as failed."""

from pathlib import Path

import psycopg

from allswell.worker import Worker, send, setup
from allswell.worker.process import load_handlers
from tests.worker.stage import until

FOLDER = Path(__file__).parents[2] / "examples" / "worker"


def test_the_shop_handles_its_messages(pg_url: str) -> None:
    setup(pg_url, "orders")
    worker = Worker(pg_url, "orders", poll_interval=0.1, handlers=load_handlers("jobs:handlers", str(FOLDER)))
    with psycopg.connect(pg_url) as connection:
        connection.execute("CREATE TABLE orders (id int, due int, paid int DEFAULT 0, mailed bool DEFAULT false)")
        connection.execute("INSERT INTO orders VALUES (7, 1200)")
        for payload in ({"order": 7, "cents": 1200}, {"order": 8, "cents": 5}, {"order": 7, "cents": -5}):
            send(connection, "orders", "order.paid", payload)
    with worker:
        until(lambda: worker.counts()["handled"] == 2, "the payment and the mail")
        until(lambda: worker.counts()["failed"] == worker.counts()["quarantined"] == 1, "the other two")
    with psycopg.connect(pg_url) as connection:
        assert connection.execute("SELECT * FROM orders").fetchall() == [(7, 1200, 1200, True)]
