"""How time was spent is told in a tree that stays small, whatever was booked."""

from __future__ import annotations

from allswell.domain.scopes import NAMES_KEPT, OTHERS, Book, ScopeUse, TimeoutReport, book


def test_the_same_is_booked_together_with_what_is_inside() -> None:
    into: Book = {}
    for _ in range(3):
        inner: Book = {}
        book(inner, ScopeUse("sleep", "backoff", 1, 0.5))
        book(into, ScopeUse("llm_call", "", 1, 2.0, 120_000, 1, inner))
    (entry,) = into.values()
    assert (entry.count, entry.seconds, entry.cut) == (3, 6.0, 3)
    assert entry.inner is not None
    assert [(part.count, part.seconds) for part in entry.inner.values()] == [(3, 1.5)]


def test_too_many_names_are_booked_as_others() -> None:
    into: Book = {}
    for number in range(10_000):
        book(into, ScopeUse(f"tool-{number % 99}", f"file-{number}", 1, 0.001))
    assert len(into) == NAMES_KEPT + 1
    assert into[(OTHERS, "")].count == 10_000 - NAMES_KEPT
    assert sum(entry.count for entry in into.values()) == 10_000


def report(**more: object) -> TimeoutReport:
    figures: dict[str, object] = {"kind": "step", "name": "impl", "elapsed": 10.0, "limit": 10.0, "timeout_ms": 10_000}
    return TimeoutReport(**{**figures, **more})  # type: ignore[arg-type]


def test_the_sentence_says_which_scope_fired_and_which_capped_it() -> None:
    assert report().sentence() == "step 'impl' reached its limit of 10s."
    assert report(capped_by=("flow", "build"), limit=4.0, elapsed=4.0).sentence() == (
        "step 'impl' (10s of its own) reached the 4s that flow 'build' had left for it."
    )
    assert report(capped_by=("flow", ""), timeout_ms=None).sentence() == (
        "step 'impl' (no limit of its own) reached the 10s that flow had left for it."
    )
    assert report(elapsed=15.0, abandoned=True).sentence() == (
        "step 'impl' reached its limit of 10s, and ended 5s later; it did not stop within the grace and was given up."
    )
    assert report(limit=-3.0, elapsed=0.0).sentence() == "step 'impl' had no time left when it was entered."


def test_the_tree_shows_the_largest_part_first_and_what_is_left() -> None:
    inner: Book = {}
    book(inner, ScopeUse("sleep", "backoff", 3, 1.0))
    spent = (ScopeUse("tool", "grep", 1, 2.0, 5_000), ScopeUse("llm_call", "", 4, 6.5, 120_000, 1, inner))
    assert report(spent=spent).tree().splitlines() == [
        "step 'impl': 10s, limit 10s, cut",
        "├─ llm_call ×4: 6.5s, limit 2m, cut 1×",
        "│  ├─ sleep 'backoff' ×3: 1s",
        "│  └─ itself: 5.5s",
        "├─ tool 'grep': 2s, limit 5s",
        "└─ itself: 1.5s",
    ]
