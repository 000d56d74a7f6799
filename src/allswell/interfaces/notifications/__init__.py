"""Sinks: those outside who are told what happens. Each follows the journal by itself and is in nobody's way."""
