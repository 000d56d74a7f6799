"""Dramatiq on Redis: messages of a worker whose heartbeat is stale are requeued; an ack counts only for who has it."""

import sys
import time

from dramatiq.brokers.redis import RedisBroker
from dramatiq.message import Message
from story import ACCEPTED, REFUSED, Story

url = f"unix://{sys.argv[1]}"
story = Story("heartbeat_timeout of 1 s without a call to the broker")


def broker() -> RedisBroker:
    """A process's broker, as it were: each has its own id; maintenance runs at every call."""
    made = RedisBroker(url=url, heartbeat_timeout=1_000, maintenance_chance=1_000_000)
    made.declare_queue("default")
    return made


first, second = broker(), broker()
first.enqueue(Message("default", "noop", (), {}, {}))
held = next(first.consume("default"))
story.say("A", "next(broker.consume('default'))", f"message {held.message_id[:8]}")
time.sleep(1.3)
consumer = second.consume("default")
again = None
while again is None:  # the first call's maintenance requeues, the next fetches
    again = next(consumer)
story.say("B", "next(broker.consume('default'))", f"message {again.message_id[:8]}")
assert held.message_id == again.message_id
consumer_of_first = first.consume("default")
story.say("A", "consumer.ack(message)", consumer_of_first.ack(held))
left = second.do_qsize("default")
story.say("B", "consumer.ack(message)", consumer.ack(again))
ended = second.do_qsize("default")
accepted = left == 0
after = f"do_qsize is {left} after A's ack and {ended} after B's; A is not told, and what its actor did stands"
story.end(ACCEPTED if accepted else REFUSED, after)
