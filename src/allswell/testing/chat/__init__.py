"""A chat server for tests of anything that talks over one; see `ChatServer` for how it is used."""

from allswell.testing.chat.rules import ChatRules
from allswell.testing.chat.server import ChatServer, Said

__all__ = ["ChatRules", "ChatServer", "Said"]
