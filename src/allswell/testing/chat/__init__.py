"""Chats for tests: `ChatServer` has real sockets and real limits, `Room` is in memory, on virtual time."""

from allswell.testing.chat.room import Room, RoomChannel
from allswell.testing.chat.rules import ChatRules
from allswell.testing.chat.server import ChatServer, Said

__all__ = ["ChatRules", "ChatServer", "Room", "RoomChannel", "Said"]
