"""What needs what: cycles are found before anything is offered, and named with every member (C4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def find_cycle(needs: Mapping[str, Sequence[str]]) -> list[str] | None:
    """One dependency cycle as its members in order, or None; the same graph always gives the same cycle.

    Needs that are not keys of the mapping are leaves: they exist already and so cannot depend on what is new.
    """
    done: set[str] = set()
    for start in sorted(needs):
        if start in done:
            continue
        path: list[str] = [start]
        on_path = {start: 0}
        pending = [iter(sorted(needs[start]))]
        while pending:
            following = next(pending[-1], None)
            if following is None:
                pending.pop()
                left = path.pop()
                del on_path[left]
                done.add(left)
            elif following in on_path:
                return path[on_path[following] :]
            elif following in needs and following not in done:
                on_path[following] = len(path)
                path.append(following)
                pending.append(iter(sorted(needs[following])))
    return None


def describe_cycle(members: Sequence[str]) -> str:
    """The cycle in words: `A <-> B` for two, `A -> B -> C -> A` for more, `A -> A` for a self-loop."""
    if len(members) == 2:
        return f"{members[0]} <-> {members[1]}"
    return " -> ".join([*members, members[0]])
