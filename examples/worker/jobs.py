"""Handlers for the messages of a shop, and what each kind of failure leads to.

export ALLSWELL_STORE=postgresql://localhost/shop
allswell worker setup orders
allswell worker jobs:handlers --queue orders

with psycopg.connect(…) as connection:              # in your own program, in your own transaction
    connection.execute("INSERT INTO orders …")
    send(connection, "orders", "order.paid", {"order": 7, "cents": 1200})
"""

from __future__ import annotations

from typing import Any

import psycopg

from allswell.worker import BusinessFailure, Handlers, Message, Permanent, send

handlers = Handlers()


@handlers.handler("order.paid")
def paid(message: Message, connection: psycopg.Connection[Any]) -> None:
    """Book the payment and have a mail sent; both happen, or neither."""
    order, cents = message.payload["order"], message.payload["cents"]
    if cents <= 0:
        raise Permanent("BAD_AMOUNT", f"order {order} was paid with {cents} cents")
    row = connection.execute(
        "UPDATE orders SET paid = paid + %s WHERE id = %s RETURNING due", (cents, order)
    ).fetchone()
    if row is None:
        raise BusinessFailure("NO_ORDER", f"there is no order {order}")
    send(connection, message.queue, "order.mail", {"order": order})


@handlers.handler("order.mail")
async def mail(message: Message, connection: psycopg.AsyncConnection[Any]) -> None:
    """Note that the mail went out; a real one would call the mail service here, which may happen twice."""
    await connection.execute("UPDATE orders SET mailed = true WHERE id = %s", (message.payload["order"],))
