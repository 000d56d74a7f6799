"""The pure core: rules as functions of (state, command, now, draw). No I/O, no clock, no chance, no async."""
