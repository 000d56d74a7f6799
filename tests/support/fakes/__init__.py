"""Stand-ins for those whom sinks tell: real HTTP servers on this machine that misbehave as they are told.

    with WebhookReceiver() as receiver:
        receiver.script(Status(503), Lose())
        …                                       # post to receiver.url
        receiver.wait_for(3)

Requests take the acts of the script, one each, in the order in which they arrive; when it is used up, `usually` holds,
which is a good answer until it is told otherwise (`always`, and `recover` to end that).
"""

from tests.support.fakes.alert_receiver import AlertReceiver, ChatReceiver, NtfyReceiver
from tests.support.fakes.notion_server import NotionServer
from tests.support.fakes.server import Answered, Asked, Hang, Lose, Slow, StandIn, Status, Well
from tests.support.fakes.webhook_receiver import WebhookReceiver

__all__ = [
    "AlertReceiver",
    "Answered",
    "Asked",
    "ChatReceiver",
    "Hang",
    "Lose",
    "NotionServer",
    "NtfyReceiver",
    "Slow",
    "StandIn",
    "Status",
    "WebhookReceiver",
    "Well",
]
