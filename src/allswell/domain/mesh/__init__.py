"""Requests between agents: whom they are for, how they are delivered, answered, and counted."""
