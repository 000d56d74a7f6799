"""What somebody who mistyped a name has probably meant: every complaint about an unknown name asks here."""

from __future__ import annotations

from collections.abc import Iterable


def alike(name: str, known: Iterable[str], *, most: int, ratio: float = 0.6) -> list[str]:
    """The known names that are most like this one, the nearest first; small letters and large ones are the same."""
    import difflib  # only mistakes pay for it

    folded: dict[str, str] = {}
    for one in known:
        folded.setdefault(one.casefold(), one)
    return [folded[match] for match in difflib.get_close_matches(name.casefold(), folded, most, ratio)]


def nearest(name: str, known: Iterable[str], *, ratio: float = 0.6) -> str | None:
    """The known name that is most like this one; None if none is like it enough."""
    found = alike(name, known, most=1, ratio=ratio)
    return found[0] if found else None
