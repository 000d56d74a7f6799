"""What an attempt brings: the result of its task, and whether its agent asks instead of being done.

A task is completed with the agent's last message (`result_of`), beside its exit code, its session and how many files it
has changed. An agent that is done, has changed nothing and ends with a question is not done: it asks (`asks_human`).
"""

from __future__ import annotations

from collections.abc import Mapping

from allswell.domain.ids import is_session

_CLOSING = " \t\r\n*_`\"'”’»)]"
"""What may stand behind the sign with which a sentence ends."""
_QUESTION = ("?", "\N{FULLWIDTH QUESTION MARK}", "\N{ARABIC QUESTION MARK}")


def result_of(exit_code: int | None, message: str, session: str | None, changed: int | None) -> dict[str, object]:
    """What a task is completed with by an agent that has said nothing about that itself."""
    result: dict[str, object] = {"exit_code": exit_code}
    if message:
        result["message"] = message
    if session is not None and is_session(session):
        result["session"] = session
    if changed is not None:
        result["changed"] = changed
    return result


def message_in(result: object) -> str | None:
    """The agent's message in the result of a task (`result_of`); None where that is something else."""
    if not isinstance(result, Mapping) or not isinstance(result.get("exit_code"), int):
        return None
    message = result.get("message")
    return message if isinstance(message, str) else None


def result_in_words(result: object) -> str | None:
    """A result for people: the message, and a line with all else; None where it has no message of an agent."""
    message = message_in(result)
    if message is None or not isinstance(result, Mapping):
        return None
    facts = [f"exit code {result['exit_code']}"]
    changed, session = result.get("changed"), result.get("session")
    if isinstance(changed, int):
        asks = ", and its last message is a question" if seems_to_ask(message, changed) else ""
        facts.append(f"{changed or 'no'} file{'' if changed == 1 else 's'} changed{asks}")
    if isinstance(session, str):
        facts.append(f"session {session}")
    return f"{message}\n\n({'; '.join(facts)})"


def answer_text(result: object) -> object:
    """What an agent answered that was asked by another: its message, where that is what its task was completed with."""
    message = message_in(result)
    return result if message is None else message


def ends_with_question(message: str) -> bool:
    """Whether the last sign of a message is a question mark, whatever brackets and emphasis stand behind it."""
    return message.rstrip(_CLOSING).endswith(_QUESTION)


CHANGED_NOTHING_AND_ASKS = "it changed nothing, and its last message is a question"
"""Why a human is asked about an attempt that has ended well."""


def seems_to_ask(message: str, changed: int | None) -> bool:
    """Whether an attempt that ended well has changed nothing and ends with a question."""
    return changed == 0 and ends_with_question(message)


def asks_human(message: str, changed: int | None, *, own_worktree: bool, setting: str) -> bool:
    """Whether a human is asked what an agent asks at its end; `setting` is the agent's `ends_with_question`.

    Only where it worked in a worktree of ours: elsewhere a file that it has changed may be one that is not looked at,
    and to answer a question may have been all that was wanted.
    """
    return own_worktree and setting == "ask" and seems_to_ask(message, changed)
