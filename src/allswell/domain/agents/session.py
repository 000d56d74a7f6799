"""The session of an agent's own: whether the next attempt goes on with it, and the command that does.

Claude Code and Codex keep each conversation under an id, which they print. An attempt that was ended can be gone on
with there: the agent knows then what it has read and tried, and is told only why it was ended and what is new. That is
a *warm* attempt. It is *cold*, with a new session and the whole prompt, wherever the old session may not be there, may
still be at work, or is what went wrong (`warm_or_cold`). The reason is said to the agent and in the journal.

An id is data of an agent's: only what looks like one is used, and it becomes one word of a command. The command is the
agent's own from its settings or from the task; nothing of it is taken from what an attempt has left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

import msgspec

from allswell.domain.agents.acp import DIALECT
from allswell.domain.agents.cost import Expense
from allswell.domain.agents.fleet import NEVER, AgentSpec, own_words, stepping_aside
from allswell.domain.ids import is_session
from allswell.domain.receipts.receipt import End, Receipt
from allswell.domain.service.retry import ErrorClass

FAILURES_MOST = 2
"""After so many failures in a row of attempts that went on with it, a session is given up."""
PLACE = "{session}"
_UUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_FAILURES = (End.FAILED, End.SIGNALLED, End.TIMEOUT, End.IDLE, End.STALLED, End.LOST)
"""Ends that speak against the session that was gone on with; a stop, a question or a limit of money do not."""


class LaunchPlace(msgspec.Struct, frozen=True):
    """Where, and as what, the next attempt is about to begin."""

    programs: tuple[str, ...]
    """The names that its program may have: of its command, and of the one that resumes."""
    folder: str
    host: str
    account: str
    resumes: bool = True
    """Whether it is known how its command goes on with a session."""


class Warmth(msgspec.Struct, frozen=True):
    """Whether an attempt goes on with a session; neither where there is none to go on with."""

    session: str = ""
    """The session that it goes on with; empty: it is cold."""
    why_cold: str = ""
    """Why it does not, in words, where there is one."""
    failures: int = 0
    """How many attempts in a row have failed that went on with it."""
    spent: Expense | None = None
    """What it had taken before, where its client's totals go on with it."""


COLD = Warmth()
"""There is nothing to go on with."""


def session_of(kept: str | None) -> tuple[str, str] | None:
    """The dialect and the id that a receipt keeps as `dialect:id`; None where that is no id."""
    dialect, _, session = (kept or "").partition(":")
    return (dialect, session) if is_session(session) else None


def spoilt(error: ErrorClass | None, *, repeats: bool = False) -> str:
    """Why nobody should go on with the session of an attempt that ended so, in words; empty: there is no reason."""
    if error is ErrorClass.CONTEXT_OVERFLOW:
        return "its context was full"
    return "it repeated itself" if repeats else ""


def failures_after(end: End, *, went_on: bool, before: int) -> int:
    """How many attempts in a row have failed that went on with a session, once one has ended so."""
    return before + 1 if went_on and end in _FAILURES else 0


def warm_or_cold(last: Receipt | None, now: LaunchPlace) -> Warmth:
    """Whether an attempt goes on with the session of the last one, whose receipt this is, or why it does not."""
    own = None if last is None else session_of(last.session)
    if last is None or own is None:
        return COLD
    reasons = (
        (last.partial or not last.proven or bool(last.survivors), "it is not proven that nothing of it still runs"),
        (bool(last.no_resume), last.no_resume),
        (not last.host, "it is not known on which host it ran"),
        (last.host != now.host, "it ran on another host"),
        (last.account != now.account, "it used another account"),
        (not {program_of(last.argv)} & {*now.programs}, "it was run by another program"),
        (last.cwd != now.folder, "it worked in another folder"),
        (last.warm_failures >= FAILURES_MOST, f"{FAILURES_MOST} attempts in a row that went on with it have failed"),
        (not now.resumes, "it is not known how its command goes on with a session"),
    )
    why = next((words for holds, words in reasons if holds), "")
    return Warmth(why_cold=why) if why else Warmth(own[1], failures=last.warm_failures)


def program_of(argv: Sequence[str]) -> str:
    """The name of the program that a command runs, behind the words by which it becomes another user.

    Of an agent that is spoken to over ACP it is the agent's, and not that of our client in front of it.
    """
    words = own_words(argv)[len(stepping_aside(argv)) :]
    return PurePath(words[0]).name if words else ""


# --- the command ------------------------------------------------------------------------------------------------------
#
# Seen with Claude Code 2.1.197, Codex 0.169.0 (tests/clients/test_real_warm.py), Gemini 0.61.0 and opencode 1.18.33
# (test_scene_trouble.py): Claude Code finds a session only from the folder in which it began; both keep the id when
# they go on. Codex takes what is no UUID for a name, and begins a new session without a word if it knows none. Options
# of `codex exec` count for `resume` if they stand before it: few of them may stand behind it.


class _Client(NamedTuple):
    """What is known of the words of a client's command line."""

    values: frozenset[str]
    """Options with one value behind them."""
    lists: frozenset[str]
    """Options with values up to the next option."""
    maybe: frozenset[str]
    """Options with a value behind them unless that begins with a dash."""
    flags: frozenset[str]
    dropped: frozenset[str]
    """Those of these options that name a session, or what its first message had."""
    refused: frozenset[str]
    """Options with which no session can be gone on with."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CLAUDE = _Client(
    values=_words(
        "--agent --agents --append-system-prompt --append-system-prompt-file --debug-file --effort --fallback-model"
        " --input-format --json-schema --max-budget-usd --max-turns --model -n --name --output-format"
        " --permission-mode --permission-prompt-tool --plugin-dir --plugin-url --session-id --setting-sources"
        " --settings --system-prompt --system-prompt-file"
    ),
    lists=_words(
        "--add-dir --allowedTools --allowed-tools --betas --disallowedTools --disallowed-tools --file --mcp-config"
        " --tools"
    ),
    maybe=_words("-d --debug --prompt-suggestions -r --resume"),
    flags=_words(
        "-p --print --verbose -c --continue --bare --brief --chrome --no-chrome --dangerously-skip-permissions"
        " --allow-dangerously-skip-permissions --disable-slash-commands --exclude-dynamic-system-prompt-sections"
        " --fork-session --ide --include-hook-events --include-partial-messages --replay-user-messages --safe-mode"
        " --strict-mcp-config --ax-screen-reader"
    ),
    dropped=_words("-r --resume -c --continue --session-id --fork-session --file"),
    refused=_words("--no-session-persistence --bg --background -w --worktree --from-pr --remote-control --tmux"),
)
_CODEX = _Client(
    values=_words(
        "-c --config --enable --disable -m --model --local-provider -p --profile -s --sandbox -C --cd --add-dir"
        " --thread-source --cyber-access-program --output-schema --color -o --output-last-message -a --ask-for-approval"
    ),
    lists=_words("-i --image"),
    maybe=_words(""),
    flags=_words(
        "--strict-config --oss --approve-for-me --dangerously-bypass-approvals-and-sandbox --yolo --full-auto"
        " --dangerously-bypass-hook-trust --skip-git-repo-check --trust --ignore-user-config --ignore-rules --json"
        " --search --last --all"
    ),
    dropped=_words("-i --image --last --all"),
    refused=_words("--ephemeral --worktree -h --help -V --version"),
)
_OPENCODE = _Client(
    values=_words(
        "--agent --format --model -m --log-level --variant --dir --port -p --password -u --username -s --session"
        " --title"
    ),
    lists=_words(""),
    maybe=_words(""),
    flags=_words("--print-logs --pure --thinking --auto --share -c --continue --fork"),
    dropped=_words("-s --session -c --continue --fork --title"),
    refused=_words("--attach --command -f --file -i --interactive -h --help -v --version"),
)
_GEMINI = _Client(
    values=_words("-m --model -p --prompt --approval-mode -o --output-format -r --resume --session-id"),
    lists=_words(
        "--policy --admin-policy --allowed-mcp-server-names --allowed-tools -e --extensions --include-directories"
    ),
    maybe=_words(""),
    flags=_words(
        "-d --debug --skip-trust -s --sandbox -y --yolo --screen-reader --raw-output --accept-raw-output-risk"
    ),
    dropped=_words("-r --resume --session-id"),
    refused=_words(
        "-i --prompt-interactive -w --worktree --acp --experimental-acp --session-file -l --list-extensions"
        " --list-sessions --delete-session -h --help -v --version"
    ),
)
_EXEC = ("exec", "e")
_IDS = {"opencode": re.compile(r"ses_[0-9A-Za-z]{8,60}")}
"""What the ids of sessions look like, where they are no UUIDs."""


def resumed(argv: Sequence[str], dialect: str, session: str, message: str) -> tuple[str, ...] | None:
    """The command that goes on with a session of its agent, and says this to it; None: it is not known how.

    Without a message Claude Code goes on with the call that it had put off, and has no second turn behind that.
    """
    aside = stepping_aside(argv)
    words = tuple(own_words(argv)[len(aside) :])
    program = program_of(argv)
    if program != dialect or not _IDS.get(program, _UUID).fullmatch(session):
        return None
    made = {"claude": _claude, "codex": _codex, "gemini": _gemini, "opencode": _opencode}
    command = made.get(program, _unknown)(words, session, message)
    return None if command is None else (*aside, *command)


def _unknown(words: tuple[str, ...], session: str, message: str) -> tuple[str, ...] | None:  # noqa: ARG001
    return None


def _claude(words: tuple[str, ...], session: str, message: str) -> tuple[str, ...] | None:
    read = _read(words[1:], _CLAUDE)
    if read is None:
        return None
    options, others = read
    place = next((number for number, word in enumerate(options) if word in ("-p", "--print")), None)
    by_protocol = "--input-format" in options or any(word.startswith("--input-format=") for word in options)
    if place is None or len(others) > 1 or by_protocol:
        return None
    said = (message,) if message else ()
    return (words[0], "--resume", session, *options[: place + 1], *said, *options[place + 1 :])


def _codex(words: tuple[str, ...], session: str, message: str) -> tuple[str, ...] | None:
    at = next((number for number, word in enumerate(words) if number and word in _EXEC), None)
    if at is None:
        return None
    above, read = _read(words[1:at], _CODEX), _read(words[at + 1 :], _CODEX)
    if above is None or above[1] or read is None:
        return None
    options, others = read
    if others[:1] == ["resume"]:
        others = others[2:]
    if len(others) > 1 or others[:1] in (["fork"], ["review"], ["help"]):
        return None
    return (words[0], *above[0], words[at], *options, "resume", session, message)


def _gemini(words: tuple[str, ...], session: str, message: str) -> tuple[str, ...] | None:
    read = _read(words[1:], _GEMINI)
    if read is None or read[1]:
        return None
    options = read[0]
    place = next((number for number, word in enumerate(options) if word in ("-p", "--prompt")), None)
    if place is None:
        return None
    return (words[0], "--resume", session, *options[: place + 1], message, *options[place + 2 :])


def _opencode(words: tuple[str, ...], session: str, message: str) -> tuple[str, ...] | None:
    if words[1:2] != ("run",):
        return None
    read = _read(words[2:], _OPENCODE)
    if read is None or len(read[1]) > 1:
        return None
    return (words[0], "run", *read[0], "--session", session, message)


def _read(words: Sequence[str], client: _Client) -> tuple[list[str], list[str]] | None:
    """The options that stay, and the words that are none; None where it is not clear which is which."""
    options: list[str] = []
    others: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        name, has_value = word.partition("=")[0], "=" in word
        if word == "--":
            others += words[at + 1 :]
            break
        at += 1
        if not word.startswith("-") or word == "-":
            others.append(word)
            continue
        if name in client.refused or not any(name in known for known in client[:4]):
            return None
        before = at
        if not has_value and name in client.values:
            at += 1
        elif not has_value and name in client.maybe:
            at += at < len(words) and not words[at].startswith("-")
        elif not has_value and name in client.lists:
            while at < len(words) and not words[at].startswith("-"):
                at += 1
        if name not in client.dropped:
            options += [word, *words[before:at]]
    return options, others


def resuming_command(spec: AgentSpec, dialect: str, session: str) -> tuple[str, ...] | None:
    """The words by which an agent of a fleet goes on with a session, with places to fill; None: it is not known how."""
    if spec.resume == NEVER or not spec.argv:
        return None
    if spec.acp:
        return spec.acp if dialect == DIALECT else None
    if spec.resume:
        return spec.resume
    if any(PLACE in word for word in spec.command):
        return spec.command
    return resumed(spec.command, dialect, session, "{prompt}")


def programs_of(spec: AgentSpec) -> tuple[str, ...]:
    """The names that the program of an agent may have."""
    commands = (spec.argv, spec.resume if spec.resume != NEVER else ())
    return tuple(program_of(command) for command in commands if command)


BEGINNINGS = frozenset(
    {"claude: system init", "codex: thread.started", "codex: turn.started", "gemini: init", "acp: session"}
)
"""Evidence of clients that have begun; whether their provider answers is not known by then."""
_RESUMED_BY = {
    "claude": "claude --resume {0}",
    "codex": "codex exec resume {0}",
    "gemini": "gemini --resume {0}",
    "opencode": "opencode --session {0}",
}


def resumed_by(dialect: str, session: str) -> str | None:
    """The command by which an agent goes on with a session."""
    command = _RESUMED_BY.get(dialect)
    # What an agent said is data: only what looks like an id may become part of something that people type.
    plain = 0 < len(session) <= 80 and session.isascii() and session.replace("-", "").replace("_", "").isalnum()
    return command.format(session) if command is not None and plain else None


# --- a client that refuses --------------------------------------------------------------------------------------------

_REFUSALS: Mapping[str, tuple[str, ...]] = {
    "claude": ("No conversation found with session ID", "--resume requires a valid session"),
    "codex": ("thread/resume failed", "no rollout found for thread id"),
    "gemini": ("Error resuming session", "Invalid session identifier", "No previous sessions found"),
    "opencode": ("Session not found",),
}
"""The words with which a client refuses to go on with a session."""
_AT_ONCE = 60_000
"""Milliseconds in which a client has refused that does."""


def has_refused(program: str, exit_code: int | None, elapsed: int, printed: str, *, began: bool) -> bool:
    """Whether a client that was to go on with a session has refused to: it has ended by itself, and done nothing.

    `printed` is the end of what it printed, `began` whether it reported a step of its work, or a refusal of its
    provider's, which is another matter.
    """
    if not exit_code or elapsed >= _AT_ONCE:
        return False
    words = _REFUSALS.get(program)
    if words is not None:
        return any(refusal in printed for refusal in words)
    return not began
