"""PGMQ: a message becomes visible again after its timeout; delete and archive go by the message's id alone."""

import sys
import time
from importlib.metadata import version
from urllib.parse import urlsplit

from pgmq import PGMQueue
from pgmq.install import get_embedded_install_sql, install_pgmq_sql
from story import ACCEPTED, REFUSED, Story

parts = urlsplit(sys.argv[1])
where = {
    "host": parts.hostname,
    "port": str(parts.port),
    "username": parts.username,
    "password": parts.password,
    "database": parts.path[1:],
}
story = Story("visibility timeout of 1 s")
install_pgmq_sql(get_embedded_install_sql(), **where)
queue = PGMQueue(**where, init_extension=False)
queue.create_queue("noop")
queue.send("noop", {"n": 1})
held = queue.read("noop", vt=1)
story.say("A", "queue.read('noop', vt=1)", f"message {held.msg_id}, read_ct {held.read_ct}")
time.sleep(1.2)
again = queue.read("noop", vt=60)
story.say("B", "queue.read('noop', vt=60)", f"message {again.msg_id}, read_ct {again.read_ct}")
assert held.msg_id == again.msg_id
done = queue.archive("noop", held.msg_id)
story.say("A", "queue.archive('noop', msg_id)", done)
story.say("B", "queue.archive('noop', msg_id)", queue.archive("noop", again.msg_id))
story.end(ACCEPTED if done else REFUSED, f"A's call archived the message that B held (pgmq {version('pgmq')})")
