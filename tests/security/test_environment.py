"""What agents are handed on: never what is Allswell's own, whatever pattern fits it."""

from __future__ import annotations

from allswell.runtime.process import allowed_environment


def test_a_pattern_never_hands_on_the_stores_address() -> None:
    host = {"ALLSWELL_STORE": "postgresql://u:p@h/d", "ALLSWELL_SECRET": "another's", "ANTHROPIC_KEY": "k", "PATH": "/"}
    for pattern in ("*", "A*", "ALLSWELL_*"):
        kept = allowed_environment(environ=host, more=(pattern,))
        assert not [name for name in kept if name.startswith("ALLSWELL_")], pattern
    assert "ANTHROPIC_KEY" in allowed_environment(environ=host, more=("A*",))
    assert "ALLSWELL_STORE" in allowed_environment(environ=host, more=("ALLSWELL_STORE",)), "who names it means it"
