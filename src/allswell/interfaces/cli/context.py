"""What every command shares: the chosen store, the two ways to speak (words and JSON), and what an exit code means.

| code | meaning |
|---|---|
| 0 | fine |
| 1 | failed |
| 2 | used wrongly: a bad argument, an unknown id, something that cannot be |
| 3 | needs a human |
| 4 | the lease is lost |
| 5 | nothing to claim |
| 75 | the store cannot be reached |
| 124 | timed out |

There are two ways to a store. `look` only reads: on SQLite it needs neither an event loop nor the engine, so it starts
fast. `run` opens a watch, lets what has fallen due happen first, and can change things.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from allswell.domain.values import hide
from allswell.errors import LeaseLost, Refused, Unavailable
from allswell.interfaces.cli.rendering import (
    columns,
    escaped_in_json,
    harmless,
    in_words,
    plain,
    sentence,
    use_store,
    wrapped,
)

if TYPE_CHECKING:
    from rich.console import Console

    from allswell.actions.operator import Operator, Performed
    from allswell.domain.notify.spec import SinkSpec
    from allswell.domain.question import Pause
    from allswell.engine.status.verdict import LocalFacts, VerdictItem
    from allswell.engine.watch import Watch
    from allswell.runtime.receipts import StateDir
    from allswell.settings import Settings
    from allswell.store.views import Views
    from allswell.views.artifacts import Artifacts

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
_ROUNDS = 8
_MOMENT = 100
"""How long a glance waits for a store that is being written to, in milliseconds."""
_NOTHING_YET = (
    "Nothing here yet: no command was run and no task was submitted in this folder.\n"
    "To begin: `allswell run -- make all`. More ways to begin: `allswell`."
)


class Exit(IntEnum):
    """What a command's exit code says."""

    FINE = 0
    """Fine."""
    FAILED = 1
    """Failed: something is broken, or a bug of Allswell's."""
    USAGE = 2
    """Used wrongly: an option, an id, a value or a setting that cannot be."""
    NEEDS_HUMAN = 3
    """Needs a human: a question is open, or no answer came in the time given."""
    LEASE_LOST = 4
    """The lease is lost: stop working on the task, another agent may have it."""
    NOTHING = 5
    """Nothing to claim."""
    UNAVAILABLE = 75
    """The store is unavailable: try again later."""
    TIMED_OUT = 124
    """Timed out."""
    INTERRUPTED = 130
    """Interrupted from the keyboard."""


class CliExit(Exception):
    """A command has said what it had to say and ends with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def write(text: str) -> None:
    """Write to standard output; a reader that has gone away (`| head`) ends the command quietly."""
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        hush()
        raise CliExit(Exit.FINE) from None


def flush() -> None:
    """Bring out what was written so far; a stream is looked at while it runs."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        hush()
        raise CliExit(Exit.FINE) from None


def hush() -> None:
    """The reader has gone: what is still written goes nowhere, and Python does not complain about it at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class CliContext:
    """One call of the command line."""

    def __init__(self, store: str | None = None, *, json: bool = False) -> None:
        self.store = store
        """The store that was named with `--store`."""
        self.skip_untrusted = False
        """Whether settings and a store that were not trusted are left out: for who brings a command of their own."""
        self.json = json
        use_store(store)

    @property
    def url(self) -> str:
        """The store that is meant: the flag, the settings, or the nearest `.allswell/`."""
        return self.store or self._seen.without("all").store

    @property
    def socket(self) -> str | None:
        """The socket to speak through; None where there is no supervisor, or another store is meant."""
        return os.environ.get("ALLSWELL_SOCKET") or None if self.store is None else None

    @property
    def home(self) -> Path:
        """The folder of ours beside the store: receipts, transcripts, attempts in flight.

        A store on a server has nothing beside it: there it is the nearest one upward, or a new one here. What came
        with the folder of a store that was named is used once it is trusted.
        """
        from allswell.settings.nearby import folder_beside
        from allswell.store.sqlite.paths import locate

        database = self.database or locate(self.settings.found_store)
        if database.parent.name == ".allswell":
            return database.parent
        return folder_beside(database, skip_untrusted=self.skip_untrusted)

    @property
    def database(self) -> Path | None:
        """The file of an SQLite store."""
        if not self.url.startswith("sqlite:"):
            return None
        from allswell.store.sqlite.paths import locate

        return locate(self.url)

    def for_humans(self, verb: str) -> None:
        """Refuse what only a human may do to an agent: to whatever runs inside an attempt of this very store."""
        if (home := self._home_in_use()) is not None:
            from allswell.runtime.attempt.orphans import refuse_inside

            refuse_inside(home, self.identity, verb)

    @property
    def is_agents(self) -> bool:
        """Whether this runs inside an attempt of this very store."""
        if (home := self._home_in_use()) is None:
            return False
        from allswell.runtime.attempt.orphans import attempt_around

        return attempt_around(home, self.identity) is not None

    def for_its_holder(self, task: str, token: int, holder: str | None) -> None:
        """Refuse to speak for another's lease to whatever runs inside an attempt."""
        if (home := self._home_in_use()) is not None:
            from allswell.runtime.attempt.orphans import refuse_other

            refuse_other(home, self.identity, task, token, holder)

    def for_its_agent(self, agent: str) -> None:
        """Refuse to claim or to answer under another's name to whatever runs inside an attempt."""
        if (home := self._home_in_use()) is not None:
            from allswell.runtime.attempt.orphans import refuse_name

            refuse_name(home, self.identity, agent)

    def _home_in_use(self) -> StateDir | None:
        """Our folder, if attempts are in flight beside this store: looked at first, since the rest imports more."""
        if not any((self.home / "attempts").glob("*.json")):
            return None
        from allswell.runtime.receipts import StateDir

        return StateDir(self.home)

    @property
    def identity(self) -> str:
        """The store's URL as attempts note it: resolved, and without a password."""
        database = self.database
        return hide(self.url if database is None else f"sqlite:///{database}")

    @property
    def where(self) -> str:
        """Which store it is, as short as it can be said: a file by its way from here, a server without a password."""
        database = self.database
        if database is None:
            return hide(self.url)
        short = os.path.relpath(database)
        return short if len(short) < len(str(database)) else str(database)

    @property
    def settings(self) -> Settings:
        """The settings that hold here; a command that only needs the store is not stopped by a wrong figure."""
        return self._seen.without("all", "figures")

    @property
    def known_sinks(self) -> list[SinkSpec]:
        """The sinks as far as they can be read: for those who only look."""
        return list((self._seen.told or {}).values())

    @cached_property
    def _seen(self) -> Settings:
        """The settings as far as they can be read: once, and only if they are asked for.

        What came with the folder and was not trusted is asked about where there is a terminal.
        """
        from allswell.settings import look

        settings = look()
        waits = settings.untrusted_files or (settings.untrusted is not None and settings.untrusted.part == "trust")
        asks = not self.json and not self.skip_untrusted and can_ask()
        if waits and asks and self._asked_for_trust():
            settings = look()
            waits = bool(settings.untrusted_files)
        if waits and self.skip_untrusted:
            settings = look(untrusted="skip")
            remark(
                f"allswell: not used, because you have not trusted it: {', '.join(settings.skipped)}; `allswell trust`"
            )
        return settings

    def _asked_for_trust(self) -> bool:
        from allswell.interfaces.cli.commands.settings import ask_for_trust
        from allswell.runtime.process.identity import is_inside_any

        return not is_inside_any() and ask_for_trust(Path.cwd().resolve())

    @property
    def console(self) -> Console:
        """Where words go: colour only on a terminal, and never with NO_COLOR."""
        from rich.console import Console

        return Console(highlight=False, soft_wrap=not sys.stdout.isatty())

    def run(self, work: Callable[[Watch], Awaitable[T]], *, sweeping: bool = True, making: bool = False) -> T:
        """Open the watch, do the work, close it. Commands that change something also let time pass first.

        Only with `making` is a missing store made: elsewhere a missing one is a mistake, and is reported.
        """
        from allswell.app import watch_on
        from allswell.runtime.calls import run_through

        if not making:
            self.check_there()
        else:
            self._say_where()

        settings = self.settings
        pace, policies, pause = settings.pace(), settings.policies(), settings.pause_on_question

        async def live() -> T:
            made = watch_on(
                self.url,
                pace=pace,
                policies=policies,
                sweeping=sweeping,
                pause_on_question=pause,
                tell_of_wait=self.hint,
                mesh=settings.mesh(),
            )
            async with made as watch:
                if not sweeping:
                    return await work(watch)
                await watch.sweep_once()
                answer.append(await work(watch))
                for _ in range(_ROUNDS):  # what follows from it at once shall not wait for the next visitor
                    if await watch.sweep_once():
                        break
                return answer[0]

        answer: list[T] = []
        try:
            return run_through(live())
        except Unavailable:
            if not answer:
                raise
            return answer[0]  # it is committed: trouble with what came after must not hide it

    def decide(
        self,
        verb: str,
        act: Callable[[Operator], Awaitable[Performed[S]]],
        *,
        by: str | None = None,
        making: bool = False,
    ) -> Performed[S]:
        """Do by a verb of an operator's what only a human may; `by` is a name beside that of the user."""
        from allswell.actions.operator import Operator, human

        self.for_humans(verb)
        who, home = human(by), self.home
        return self.run(lambda watch: act(Operator(watch, who, home=home)), making=making)

    def show(self, performed: Performed[msgspec.Struct]) -> None:
        """Print what came of a verb."""
        self.say(performed.shape, sentence(in_words(plain(performed.says))))

    def _say_where(self) -> None:
        """Say it if the store was found elsewhere: the user may have meant a new one here."""
        found = self.settings.found
        if found is not None and self.url == self.settings.default_store:
            here = Path.cwd() / ".allswell"
            if here.resolve() != Path(found):
                self.hint(f"Using the store at {found}")

    def look(
        self, work: Callable[[Views], Coroutine[Any, Any, T]], *, within: float | None = None, or_empty: bool = False
    ) -> T:
        """Look at the store, changing nothing. The work awaits nothing but the views.

        A server that does not answer `within` so many seconds is `TimeoutError`. With `or_empty`, a folder in which
        nothing was started yet is not an error: it is seen as an empty store.
        """
        path, url = (None, "memory:") if or_empty and self.nothing_yet else (self.check_there(), self.url)
        if path is not None:
            from allswell.store.port import run_sync
            from allswell.store.sqlite.views import SqliteReader

            with SqliteReader(path) as reader:
                if reader.current:
                    return run_sync(work(reader))
        import asyncio

        from allswell.app import views_on
        from allswell.engine.timings import DEFAULT_PACE

        wrong = any(problem.part == "figures" for problem in self._seen.problems)
        pace = DEFAULT_PACE if wrong else self._seen.pace()

        async def live() -> T:
            async with asyncio.timeout(within), views_on(url, pace, self.hint) as views:
                return await work(views)

        return asyncio.run(live())

    @property
    def pause(self) -> Pause:
        """What an open question holds back from claims, without all that `place` has to load."""
        return self._seen.pause_on_question

    @cached_property
    def place(self) -> LocalFacts:
        """From where the verdict on the watch is made; of a store on a server, by the server."""
        from allswell.timing.clock import SystemClock
        from allswell.views.status import place_here

        if self._is_served:
            return place_here(self._seen, None, reports=self._reported)
        return place_here(self._seen, self.folder, clock=SystemClock())

    @property
    def folder(self) -> Path | None:
        """Where the store's file or what attempts leave lies; None where wrong settings keep it from being found."""
        with contextlib.suppress(Refused):
            return self.home if self.database is None else self.database.parent
        return None

    async def _reported(self) -> list[VerdictItem]:
        """What the server of the store says about it."""
        from allswell.views.status import StatusShape

        status = await self.ask("/status", StatusShape)
        return [one.concern() for one in (*status.needs, *status.waiting)]

    @property
    def _is_served(self) -> bool:
        """Whether the store is reached over HTTP."""
        return self.url.startswith("http")

    @cached_property
    def artifacts(self) -> Artifacts:
        """What lies beside the store: in a folder of this machine, or where its server is."""
        from allswell.views.artifacts import Artifacts, ServerArtifacts

        if self._is_served:
            return ServerArtifacts(self.home, self.ask)
        return Artifacts(self.home, self.url, alerts=any(spec.kind == "alerts" for spec in self.known_sinks))

    def beside(self, looking: Coroutine[Any, Any, T]) -> T:
        """Await a look at what lies beside the store."""
        if not self._is_served:
            from allswell.store.port import run_sync

            return run_sync(looking)
        import asyncio

        return asyncio.run(looking)

    async def ask(self, path: str, kind: type[T]) -> T:
        """Ask the server that has the store, by one of its routes under `/api/v1`."""
        from allswell.app import server_at

        server = server_at(self.url, self.settings.pace(), self.hint)
        try:
            return await server.ask(path, kind)
        finally:
            server.close()

    def glance(self, work: Callable[[Views], Coroutine[Any, Any, T]], otherwise: T) -> T:
        """Look for a moment, and only into a file that is there and of this version; `otherwise` elsewhere."""
        from allswell.store.port import run_sync
        from allswell.store.sqlite.views import SqliteReader

        path = self.database
        if path is None or not path.exists():
            return otherwise
        with SqliteReader(path, busy_timeout=_MOMENT) as reader:
            return run_sync(work(reader)) if reader.current else otherwise

    @property
    def nothing_yet(self) -> bool:
        """Whether no store was named, and neither this folder nor one above it has one."""
        path = self.database
        return path is not None and self.url == self._seen.default_store and not path.exists()

    def check_there(self) -> Path | None:
        """The file of an SQLite store, which must exist: opening one to look into it would make it."""
        path = self.database
        if path is None:
            return None
        try:
            there = path.exists()
        except OSError as error:
            raise Unavailable(f"the store {path} cannot be reached: {error.strerror}") from None
        if not there:
            makes = "`allswell run -- COMMAND` or `allswell submit NAME` makes one"
            hint = f"{makes}; use --store or $ALLSWELL_STORE for another one"
            yet = ": nothing was started here yet" if self.nothing_yet else ""
            raise Unavailable(f"there is no store at {path}{yet}", hint=hint)
        return path

    def none(self, words: str) -> str:
        """What a list that is empty says: where nothing was started yet, how to begin."""
        return in_words(_NOTHING_YET) if self.nothing_yet else words

    def say(self, answer: msgspec.Struct | None, words: str | Callable[[], str] = "") -> None:
        """The answer: with `--json` a shape (`allswell.views`) on one line, otherwise words, which may be made here."""
        text = encoded(answer) if self.json else words if isinstance(words, str) else words()
        if text:
            write(text + "\n")

    def tell(self, line: str, *, shown: str | None = None) -> None:
        """One line of a process that goes on, with the time; once its reader has gone, lines go nowhere.

        With `shown`, people see that instead.
        """
        from allswell.views.commands import SaidShape

        with contextlib.suppress(CliExit):
            self.say(SaidShape.now(line), f"{time.strftime('%H:%M:%S')}  {plain(line) if shown is None else shown}")
            flush()

    def remark(self, text: str) -> None:
        """A sentence on standard error for people; programs do not see it."""
        if not self.json:
            remark(text)

    def hint(self, text: str) -> None:
        """What to do next, for a person at a terminal."""
        if sys.stderr.isatty():
            self.remark(text)

    def leave(self, code: int, message: str | None = None) -> NoReturn:
        """End with a code, and a sentence on standard error."""
        if message:
            remark(f"allswell: {message}")
        raise CliExit(code)


def remark(text: str) -> None:
    """A sentence on standard error, its commands as they are to be typed; at a terminal, broken to its width.

    Paths and settings can say anything: nothing that a terminal would act upon passes.
    """
    text = in_words(harmless(text))
    room = columns(sys.stderr)
    sys.stderr.write("\n  ".join([text] if room is None else wrapped(text, room - 2)) + "\n")


def on_stop(stop: Callable[[], object]) -> None:
    """Have Ctrl-C and SIGTERM call this, for as long as the loop runs."""
    import asyncio

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def can_ask() -> bool:
    """Whether a person at a terminal sees a question and can answer it."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def agrees(question: str) -> bool:
    """Whether the person at the terminal says yes; to say nothing is no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline(20).strip().lower() in ("y", "yes")


def code_of(error: Exception) -> Exit:
    """What an error means for the exit code; one that is not ours is a bug of ours."""
    if isinstance(error, LeaseLost):
        return Exit.LEASE_LOST
    if isinstance(error, Unavailable):
        return Exit.UNAVAILABLE
    if isinstance(error, Refused):
        return Exit.USAGE
    return Exit.FAILED


def told(error: Exception, *, json: bool) -> Exit:
    """Tell the user what went wrong, in the way asked for; the exit code that goes with it."""
    from allswell.views.fields import ErrorShape

    problem = ErrorShape.of(error).error
    if json:
        hint = None if problem.hint is None else in_words(problem.hint)
        problem = msgspec.structs.replace(problem, message=in_words(problem.message), hint=hint)
        write(encoded(ErrorShape(problem)) + "\n")
        return code_of(error)

    text = plain(problem.message)
    if isinstance(error, LeaseLost):
        remark(f"allswell: {text}")
        if problem.hint and sys.stderr.isatty():
            remark(f"{problem.hint[0].upper()}{problem.hint[1:]}.")
    elif problem.hint is None:
        remark(f"allswell: {text}")
    elif isinstance(error, Refused):
        remark(f"allswell: {text}{'' if text.endswith('?') else ';'} {problem.hint}")
    else:
        remark(f"allswell: {text} ({problem.hint})")
    return code_of(error)


def encoded(said: object) -> str:
    """One JSON document on one line, with nothing in it that a terminal would act upon.

    What came in as no Unicode at all goes out as a question mark.
    """
    from allswell.timing.moment import as_text, to_json

    try:
        text = to_json(said).decode()
    except UnicodeEncodeError:
        import json

        text = (
            json.dumps(msgspec.to_builtins(said, enc_hook=as_text), ensure_ascii=False)
            .encode("utf-8", "replace")
            .decode()
        )
    return escaped_in_json(text)
