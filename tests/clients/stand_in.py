"""Puts the stand-ins on a PATH, each told which stream it prints and how it ends."""

from __future__ import annotations

from pathlib import Path

CAPTURED = Path(__file__).parent / "captured"
_CODES = {"claude-error": 1, "claude-gave-up": 1, "claude-limit": 1, "codex-error": 1, "codex-limit": 1}
"""What the real ones ended with; 0 where nothing stands here."""


def install(folder: Path, stream: str, *, before: str = "", after: str = "") -> Path:
    """A program that prints a stream, with what a shell does before and after; its file."""
    program = folder / stream.partition("-")[0]
    lines = ["#!/bin/sh", before, f"cat '{CAPTURED / stream}.jsonl'", after, f"exit {_CODES.get(stream, 0)}"]
    folder.mkdir(exist_ok=True)
    program.write_text("\n".join(lines) + "\n")
    program.chmod(0o755)
    return program
