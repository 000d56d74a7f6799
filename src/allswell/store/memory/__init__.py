"""Rows in this process's memory: the store behind `memory:`, and the simulator's model of PostgreSQL."""

from allswell.store.memory.store import AnswerLost, Faults, MemoryStore
from allswell.store.memory.tables import Database, OnCommit

__all__ = ["AnswerLost", "Database", "Faults", "MemoryStore", "OnCommit"]
