"""Celery on Redis: an unacknowledged message is delivered again after the visibility timeout; results go by task id."""

import sys
import time

from celery import Celery, states
from story import ACCEPTED, REFUSED, Story

url = f"redis+socket://{sys.argv[1]}"
story = Story("visibility_timeout of 1 s (task_acks_late)")
app = Celery("zombie", broker=url, backend=url)
app.conf.broker_transport_options = {"visibility_timeout": 1}
app.conf.task_acks_late = True


@app.task(name="noop")
def noop() -> None:
    """Nothing."""


sent = noop.delay()
first, second = app.connection_for_read(), app.connection_for_read()
queue = app.amqp.queues["celery"]
held = queue(first.channel()).get()
story.say("A", "queue(channel).get()", f"task {held.headers['id'][:8]}")
time.sleep(1.3)
channel = second.channel()
channel.qos.restore_visible(interval=1)  # what every worker's poller does by itself now and then
again = queue(channel).get()
story.say("B", "queue(channel).get()", f"task {again.headers['id'][:8]}")
assert held.headers["id"] == again.headers["id"]
answer = app.backend.store_result(sent.id, "from A", states.SUCCESS)
story.say("A", "backend.store_result(task_id, 'from A', SUCCESS)", answer)
story.say("A", "message.ack()", held.ack())
result = app.AsyncResult(sent.id)
state = f"{result.state}, result {result.result!r}"
accepted = result.state == states.SUCCESS
story.say(
    "B", "backend.store_result(task_id, 'from B', SUCCESS)", app.backend.store_result(sent.id, "from B", states.SUCCESS)
)
story.say("B", "message.ack()", again.ack())
story.end(ACCEPTED if accepted else REFUSED, f"after A's calls, while B holds the task: {state}")
