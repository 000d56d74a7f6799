"""The two streams of an attempt: a file for each, and a pump that hands on what passes and looks at it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import math
import os
import re
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from allswell.domain.agents.checkpoint import CheckpointFinder
from allswell.domain.agents.conversation import Conversation, is_noise, plain_message
from allswell.domain.agents.denied import Denied
from allswell.domain.agents.evidence import ProviderRefusal
from allswell.domain.agents.output import (
    LONGEST_FINAL_LINE,
    LONGEST_LINE,
    AgentEvent,
    AgentLine,
    CheckpointTold,
    TurnEnded,
    denied_in,
    last_line_in,
    parse,
)
from allswell.domain.agents.printed import LONGEST as LINE_LONGEST
from allswell.domain.agents.printed import NewLines, Novelty, last_words, standing_text
from allswell.domain.agents.refusal import LONGEST_LIMIT_LINE, UsageLimit
from allswell.domain.agents.usage import Usage
from allswell.domain.ids import TaskId, is_file_name
from allswell.domain.receipts.receipt import Receipt
from allswell.runtime.attempt.launch import Echo
from allswell.runtime.process import ProcessResult
from allswell.runtime.process.apart.output import PIECE
from allswell.runtime.process.command import DEFAULT_CAP
from allswell.runtime.workspace.files import create, open_plain, open_there, own_folder, remove_file

# What an attempt prints, as it passes: handed on unchanged, and looked at on the way.
#
# A pump reads from the reaper's pipe, hands every piece on as it is, and looks for three things: lines that mean
# something (of a protocol and, where that is wanted, plain ones with a limit or a checkpoint), each parsed once;
# whether anything is said that was not said before; and, until a protocol is spoken, lines that are new. The last two
# are only asked once between two looks at the processes, and of a few kilobytes, so that a gigabyte passes at nearly
# the speed of a pipe and costs no memory.
#
# A pump has a thread of its own, or a place in a room with others (`OutputMultiplexer`). Who watches slowly slows the
# command down; who stops watching ends it, as a pipe does.

_PIECE = 262_144
_SAMPLE = 4_096
_SAMPLES = 16
"""Pieces that are searched for news between two looks."""
_LOOKED_AT = _SAMPLE * _SAMPLES
"""Bytes that are searched for a new line between two looks: an answer that is streamed comes in very small pieces."""
_EVERY = 0.1
"""Seconds between two tellings of protocol lines: a stream of tokens is one sign, not a thousand."""

StreamEcho = Callable[[bytes], None]
"""Takes what passes, in the thread that reads; an `OSError` means that nobody watches any more."""


class LineFinder:
    """Finds the completed lines in what is printed, a piece at a time, and says which is new.

    A line that is painted over before it is completed is none. One that grows beyond `LINE_LONGEST`, as an answer does
    that is streamed, is taken for a line each time it has grown by so much.
    """

    def __init__(self) -> None:
        self._known = NewLines()
        self._rest = b""
        self._lost = False
        """Whether something was left out: what comes next may begin within a line."""

    def first_new(self, piece: bytes, at: int) -> bytes | None:
        """The first line completed by this piece that is new; all of them are remembered. `at` in milliseconds."""
        *lines, rest = (self._rest + piece).split(b"\n")
        if self._lost:
            if not lines:
                return None
            del lines[0]
            self._lost = False
        if (painted := rest.rstrip(b"\r").rfind(b"\r")) >= 0:
            rest = rest[painted + 1 :]
        while len(rest) > LINE_LONGEST:
            end = rest.rfind(b" ", 0, LINE_LONGEST) + 1 or LINE_LONGEST
            lines.append(rest[:end])
            rest = rest[end:]
        self._rest = rest
        new = [line for line in lines if self._known.is_new(line, at)]
        return new[0] if new else None

    def skip(self, piece: bytes) -> None:
        """This is printed, too, and not looked at."""
        self._rest, self._lost = b"", not piece.endswith(b"\n")


_WORDS = (b"imit", b"uota", b"Attempt ", b"CHECKPOINT", b"Checkpoint")
"""One of them is in every plain line that means something."""
_ALWAYS_TOLD = (TurnEnded, UsageLimit, Usage, CheckpointTold)
"""Events that are told however soon after another line they come."""


class OutputReader:
    """One stream of an attempt, from the reaper's pipe to whoever watches."""

    def __init__(
        self,
        source: int,
        echo: StreamEcho | None,
        said: Callable[[AgentLine], None],
        new_line: Callable[[str], None] | None = None,
        *,
        plain: bool = False,
        also: tuple[type[AgentEvent], ...] = (),
        fold: Callable[[AgentLine], bool] = lambda _: False,
    ) -> None:
        """`plain`: limits and checkpoints in plain text are told, too. `also`: more events that are always told.

        `fold` takes every line of a protocol, in the thread that reads, so that no flood of them reaches the loop;
        whether it is told at once is its answer.
        """
        self.printed = 0
        self.lines = 0
        """Lines that were completed."""
        self.printed_at = 0.0
        """When something passed last."""
        self.new = 0
        """How often something new was found, at most once for each look."""
        self.over = False
        """Whether everything has passed, or nobody watches any more."""
        self.conversation = Conversation()
        """What is said and called in it, where it is a protocol."""
        self.source = source
        self._echo = echo
        self._said = said
        self._always = (*_ALWAYS_TOLD, *also)
        self._fold = fold
        self._plain = plain
        self._checkpoint: CheckpointFinder | None = None
        """Made when a plain line may hold one."""
        self._new_line = new_line
        """Takes a line that is new, at most one between two looks."""
        self._finder = LineFinder()
        self._to_look_at = _LOOKED_AT
        """Bytes in which a new line is still searched for before the next look."""
        self._end = b""
        """The end of what has passed."""
        self._speaks = False
        """Whether a protocol has been heard: then that alone is judged."""
        self._novelty = Novelty()
        self._samples = _SAMPLES
        self._rest = b""
        self._skipping = False
        self._last_line = b""
        self._refused = False
        """Whether the last line of a protocol tells of a provider that refuses: clients repeat such a line as it is."""
        self._untold: AgentLine | None = None
        """The last such line, where it came too soon after another one to be told, until a step is reported."""
        self._told_at = {True: 0.0, False: 0.0}

    def start(self) -> threading.Thread:
        """Read in a thread of its own, which whoever watches may block."""
        thread = threading.Thread(target=self._run, name="allswell output", daemon=True)
        thread.start()
        return thread

    def turn(self) -> int:
        """Take what is there, which may block, and hand it on; how many bytes that was, 0 if there is no more."""
        try:
            piece = os.read(self.source, _PIECE)
            if piece:
                self._pass_on(piece)
        except OSError:  # nobody watches any more; that the pipe is closed then tells the command so
            return 0
        return len(piece)

    def close(self) -> None:
        """Read no more; called once."""
        os.close(self.source)
        if self._plain and self._rest:  # it ended without a line's end
            self._hear(self._rest)
        if self._untold is not None:
            self._said(self._untold)
        self.over = True

    def asked(self) -> None:
        """A look was taken: search for news again from here on, and tell of a refusal that came too soon to be told."""
        untold, self._untold = self._untold, None
        if untold is not None:
            self._said(untold)
        self._samples = _SAMPLES
        self._to_look_at = _LOOKED_AT

    @property
    def last_line(self) -> str:
        """The last line that has anything in it, completed or not."""
        lines = (standing_text(line).strip() for line in reversed(self._end.split(b"\n")))
        return next((line for line in lines if line), "")

    def _run(self) -> None:
        try:
            while self.turn():
                pass
        finally:
            self.close()

    def _pass_on(self, piece: bytes) -> None:
        self.printed += len(piece)
        self.printed_at = time.monotonic()
        self.lines += piece.count(b"\n")
        self._end = (self._end + piece[-_SAMPLE:])[-_SAMPLE:]
        if self._echo is not None:
            self._echo(piece)
        self._look_for_news(piece)
        self._look_for_lines(piece)
        self._look_for_new_line(piece)

    def _look_for_new_line(self, piece: bytes) -> None:
        if self._new_line is None or self._speaks:
            return
        if self._to_look_at <= 0:
            self._finder.skip(piece)
            return
        self._to_look_at -= len(piece)
        line = self._finder.first_new(piece[:_SAMPLE], round(time.monotonic() * 1_000))
        if len(piece) > _SAMPLE:
            self._finder.skip(piece)
        if line is not None:
            self._to_look_at = 0
            self._new_line(standing_text(line).strip())

    def _look_for_news(self, piece: bytes) -> None:
        if self._samples > 0:
            self._samples -= 1
            if self._novelty.is_new(piece[:_SAMPLE]):
                self.new += 1
                self._samples = 0

    def _look_for_lines(self, piece: bytes) -> None:
        data = self._rest + piece
        if self._plain and b"\r" in data:
            data = _plain_ends(data)
        within = self._checkpoint is not None and self._checkpoint.is_open
        means = self._plain and (within or any(word in data for word in _WORDS))
        if not means and (self._skipping or not data.startswith(b"{")) and b"\n{" not in data:
            # Nearly everything that is not a protocol ends here. A line may begin with the next piece.
            end = data.rfind(b"\n")
            if end >= 0 or not self._skipping:
                self._keep(data[end + 1 :])
            return
        *lines, rest = data.split(b"\n")
        if self._skipping:
            if not lines:
                return
            del lines[0]
        for line in lines:
            if means or line.startswith(b"{"):
                self._hear(line)
        self._keep(rest)

    def _keep(self, rest: bytes) -> None:
        """Keep the beginning of a line; one that is too long, or that means nothing here, is skipped to its end."""
        most = LONGEST_LINE if rest.startswith(b"{") else LONGEST_LIMIT_LINE if self._plain else 0
        self._skipping = len(rest) > most
        self._rest = b"" if self._skipping else rest

    def _hear(self, line: bytes) -> None:
        if line == self._last_line and not self._refused:  # said again and again: a loop, not a step
            return
        said = parse(line)
        if not said.dialect:
            self._hear_plain(line, said)
        elif said.what:
            self._hear_protocol(line, said)

    def _hear_plain(self, line: bytes, said: AgentLine) -> None:
        events = said.events
        if self._plain and not line.startswith(b"{"):
            self._checkpoint = self._checkpoint or CheckpointFinder()
            text = self._checkpoint.add(line.decode("utf-8", "replace"))
            events = events if text is None else (*events, CheckpointTold(text))
        if len(events) > 1:
            self._said(msgspec.structs.replace(said, events=events))

    def _hear_protocol(self, line: bytes, said: AgentLine) -> None:
        self._speaks = True
        self._last_line = line
        self.conversation.hear(said, _now())
        self._refused = any(isinstance(event, ProviderRefusal) for event in said.events)
        now = time.monotonic()
        always = self._fold(said) or any(isinstance(event, self._always) for event in said.events)
        told = always or now - self._told_at[said.progress] >= _EVERY
        if self._refused or said.progress:
            self._untold = said if self._refused and not told else None
        if told:
            self._told_at[said.progress] = now
            self._said(said)


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000


def _plain_ends(data: bytes) -> bytes:
    """With a line's end for every return to its start: else a spinner would be one line that never ends."""
    last = b"\r" if data.endswith(b"\r") else b""  # the other half of a line's end may come with the next piece
    return data.removesuffix(last).replace(b"\r\n", b"\n").replace(b"\r", b"\n") + last


# A room for pumps: one thread reads any number of streams, for watchers who never block.
#
# It lets a little time pass between two rounds, so that what two hundred agents print, a few bytes at a time, wakes it
# ten times a second and not four thousand times. Whoever prints much is not held up: after a round in which anybody had
# much to say, the next one begins at once. The pipes hold what is printed meanwhile.

_TOGETHER = 0.1
"""Seconds between two rounds."""
_MUCH = 32_768
"""Bytes in one piece, from which on a stream is read again at once."""


class OutputMultiplexer:
    """Pumps that share a thread; it begins with the first of them, and ends with `close`."""

    def __init__(self) -> None:
        self._pumps: dict[int, OutputReader] = {}
        self._poll: select.epoll | None = None
        self._hurry = threading.Event()
        self._closed = False

    def take(self, pump: OutputReader) -> None:
        """Read this one too."""
        if self._poll is None:
            self._poll = select.epoll()
            threading.Thread(target=self._run, args=(self._poll,), name="allswell outputs", daemon=True).start()
        self._pumps[pump.source] = pump
        self._poll.register(pump.source, select.EPOLLIN)

    def hurry(self) -> None:
        """Somebody waits for the rest: let no time pass before the next round."""
        self._hurry.set()

    def close(self) -> None:
        """End the thread; what it still reads is given up."""
        self._closed = True
        self.hurry()

    def _run(self, poll: select.epoll) -> None:
        while not self._closed:
            much = False
            # Bounded, so that it ends soon after the room is closed, with nobody to wake it.
            for source, _ in poll.poll(1.0):
                much |= self._turn(poll, self._pumps[source]) >= _MUCH
            if not much:
                self._hurry.wait(_TOGETHER)
            self._hurry.clear()
        for pump in self._pumps.values():
            pump.close()
        poll.close()

    def _turn(self, poll: select.epoll, pump: OutputReader) -> int:
        try:
            taken = pump.turn()
        except Exception:  # noqa: BLE001 - a bug in one watcher must not make all the others deaf
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
            taken = 0
        if not taken:  # closed last: somebody else may have its number at once, and come in with it
            poll.unregister(pump.source)
            del self._pumps[pump.source]
            pump.close()
        return taken


_NAMES = ("stdout", "stderr")
_SOON, _LATER = 0.001, 0.05
"""Seconds between two looks at whether everything has passed, at first and at most."""
_SHOWN = 4_096
"""Bytes of the output's end that are looked through for what to show."""
_LAST = 500
"""Characters of a last message that a human is shown who is asked about an attempt."""
_ROOM = 1 << 19
"""Bytes in a pipe between the reaper and us: each turn of one of three processes costs time."""


class Streams:
    """Files, pipes and pumps; `close` gives everything back, however far things had got."""

    def __init__(
        self,
        folder: Path,
        name: str,
        echo: Echo | None,
        make: Callable[[int, StreamEcho | None], OutputReader],
        room: OutputMultiplexer | None = None,
    ) -> None:
        self.paths: list[Path | None] = []
        self.warning: str | None = None
        """Why the transcript has no name, if it has none: it is gone with the attempt then."""
        self.files: list[int] = []
        self.into: list[int] = []
        """Where the reaper writes to, as well as into the files."""
        self._pumps: list[OutputReader] = []
        self._room = room
        self._reading = asyncio.Lock()
        self._denied: tuple[float, Denied] | None = None
        """What was refused, and when that was read."""
        self._printed_to: int | None = None
        """The file of the standard output, ours to read: whoever watches may be slow, and the last line counts."""
        try:
            for number, stream in enumerate(_NAMES, start=1):
                self.files.append(self._open(folder, f"{name}.{stream}"))
                if self._printed_to is None:
                    self._printed_to = os.dup(self.files[0])
                source, into = os.pipe2(os.O_CLOEXEC)
                self.into.append(into)
                with contextlib.suppress(OSError):  # a user's pipes may be used up: then it takes more turns
                    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, _ROOM)
                to = None if echo is None else partial(echo, number)
                self._pumps.append(make(source, to))
                self._pumps[-1].start() if room is None else room.take(self._pumps[-1])
        except BaseException:
            self.close()
            raise

    def _open(self, folder: Path, name: str) -> int:
        try:
            with own_folder(folder, make=True) as inside:
                opened = create(name, inside, flags=os.O_RDWR)
        except OSError as error:
            self.warning = f"what it prints cannot be kept in {folder}: {error.strerror}"
            self.paths.append(None)
            import tempfile

            with tempfile.TemporaryFile() as nameless:
                return os.dup(nameless.fileno())
        self.paths.append(folder / name)
        return opened

    @property
    def printed(self) -> int:
        """Bytes that have passed."""
        return sum(pump.printed for pump in self._pumps)

    @property
    def new(self) -> int:
        """How often something passed that had not passed before."""
        return sum(pump.new for pump in self._pumps)

    @property
    def lines(self) -> int:
        """Lines that have passed."""
        return sum(pump.lines for pump in self._pumps)

    @property
    def latest_words(self) -> str:
        """What the agent does or has said last; where it speaks no protocol, what was printed last on either stream."""
        spoken = self._pumps[0].conversation
        if spoken.speaks:
            return spoken.words(_now())
        return max(self._pumps, key=lambda pump: pump.printed_at).last_line

    @property
    def speaks(self) -> bool:
        """Whether its standard output is a protocol: then lines and bytes say nothing to a person."""
        return self._pumps[0].conversation.speaks

    @property
    def is_done(self) -> bool:
        """Whether its agent has reported that its turn ended well, and has done nothing since."""
        return self._pumps[0].conversation.is_done

    @property
    def open_call(self) -> str:
        """The call that has brought nothing yet, in words; empty if there is none."""
        call = self._pumps[0].conversation.open_call
        return "" if call is None else call.words(_now())

    @property
    def message(self) -> str:
        """The agent's last message; without a protocol, the last lines that it has printed."""
        spoken = self._pumps[0].conversation
        return spoken.message if spoken.speaks else plain_message(self._end(_SHOWN))

    def asked(self) -> None:
        """A look was taken: search for news again from here on."""
        for pump in self._pumps:
            pump.asked()

    def let_go(self) -> None:
        """The reaper has the files and its ends of the pipes: with ours closed, the last of it ends the pumps."""
        for opened in (*self.into, *self.files):
            os.close(opened)
        self.into, self.files = [], []

    async def drained(self, given_up: Callable[[], bool]) -> None:
        """Wait until all that was printed has been handed on, or until it is given up: somebody may not take it."""
        self.let_go()
        if self._room is not None:
            self._room.hurry()
        pause = _SOON
        # Polled, not joined in a thread of the loop's: whoever ends the loop would wait for that thread for ever.
        while not all(pump.over for pump in self._pumps) and not given_up():
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LATER)

    async def heard_out(self, seconds: float) -> None:
        """Wait at most so long for what was printed last: it may name the agent's session, for the receipt."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        await self.drained(lambda: loop.time() >= until)
        await asyncio.sleep(0)  # what has been heard is noted on the loop

    def kept(self, printed: ProcessResult | None) -> tuple[Path | None, Path | None]:
        """The files by stream; None where nothing was printed."""
        if printed is None:
            return None, None
        return (self.paths[0] if printed.stdout.bytes else None), (self.paths[1] if printed.stderr.bytes else None)

    def last_line(self) -> AgentLine:
        """The last line of the standard output that has anything in it; called when everything has been printed."""
        line = last_line_in(self._end(LONGEST_FINAL_LINE))
        if line.dialect:  # it may have been too long to be heard as it passed
            self._pumps[0].conversation.hear(line, _now())
        return line

    async def denied(self, *, not_before: float = math.inf) -> Denied:
        """The calls that the agent's program has refused so far, as its standard output tells it.

        It can take a second to read megabytes, so a thread does it, for one caller after another. A caller that can do
        with what was read after `not_before` (on the loop's clock) gets that: what an agent repeats costs nothing.
        """
        loop = asyncio.get_running_loop()
        async with self._reading:
            if self._denied is None or self._denied[0] < not_before:
                began, printed = loop.time(), self._end(LONGEST_FINAL_LINE)
                self._denied = began, await loop.run_in_executor(None, denied_in, printed)
            return self._denied[1]

    def last_words(self) -> str:
        """What was said last and what is open, for people; without a protocol, the end of the standard output."""
        if not self.speaks:
            return last_words(self._end(_SHOWN))
        return "\n".join(part for part in (self.message[-_LAST:], self.open_call) if part)

    def _end(self, size: int) -> bytes:
        if self._printed_to is None:
            return b""
        return os.pread(self._printed_to, size, max(os.fstat(self._printed_to).st_size - size, 0))

    def close(self, *, shelf: Path | None = None) -> None:
        """Give everything back; with a `shelf` the files go there, where only the newest of all attempts are kept."""
        self.let_go()
        if self._printed_to is not None:
            os.close(self._printed_to)
            self._printed_to = None
        for path in self.paths:
            if path is not None and _is_empty(path):
                with contextlib.suppress(OSError):
                    remove_file(path)
        printed = [path for path in self.paths if path is not None and not _is_empty(path)]
        if shelf is not None and printed:
            with contextlib.suppress(OSError):
                _shelve(printed, shelf)


SHELVED_MOST = 200
"""Files of attempts that ended well under `allswell run`."""
SHELVED_BYTES = 64 << 20


def _shelve(paths: Sequence[Path], shelf: Path) -> None:
    """Move files to others of their kind, and let go of the oldest where they take too much room."""
    with own_folder(shelf, make=True) as there:
        for path in paths:
            with own_folder(path.parent) as here:
                os.replace(path.name, path.name, src_dir_fd=here, dst_dir_fd=there)
        kept = []
        with os.scandir(there) as files:
            for file in files:
                with contextlib.suppress(OSError):  # another command lets go of it as well
                    status = file.stat(follow_symlinks=False)
                    kept.append((status.st_mtime_ns, status.st_size, file.name))
        count, room = len(kept), sum(size for _, size, _ in kept)
        for _, size, name in sorted(kept):
            if count <= SHELVED_MOST and room <= SHELVED_BYTES:
                break
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=there)
            count, room = count - 1, room - size


def _is_empty(path: Path) -> bool:
    try:
        return path.lstat().st_size == 0
    except OSError:
        return False


# What attempts have printed, found again: the files of each, and a reader that can follow one while it grows.
#
# Each stream of an attempt has a file of its own, bounded by the order's cap: of more than that, the beginning and the
# end are kept (`warden.apart.output`). It is kept for as long as the folder beside the store is, and where `allswell
# run` has shown everything at a terminal, only if the attempt did not end well. A file may be planted, so it is opened
# as one of ours (`own_files`), and no line is read that is longer than a line of a protocol can be.

STREAMS = ("stdout", "stderr")
GROWING_MOST = DEFAULT_CAP - PIECE
"""Bytes up to which a file only grows; what stands behind them changes until the attempt has ended."""


class LogPlace(msgspec.Struct, frozen=True):
    """Where files of attempts lie, and what their names begin with."""

    folder: Path
    stem: str
    """Up to the attempt's number: `t_x.`, or `step-` in the folder of a flow's run."""


def log_files(places: Sequence[LogPlace]) -> dict[int, dict[str, Path]]:
    """The files of each attempt, by its number and by stream."""
    found: dict[int, dict[str, Path]] = {}
    for place in places:
        named = re.compile(re.escape(place.stem) + r"(\d{1,9})\.(stdout|stderr)")
        try:
            names = sorted(os.listdir(place.folder))  # noqa: PTH208 - names alone
        except OSError:
            continue
        for name in names:
            if (parts := named.fullmatch(name)) is not None:
                found.setdefault(int(parts[1]), {})[parts[2]] = place.folder / name
    return found


def is_running(attempts: Path, task: TaskId, attempt: int) -> bool:
    """Whether an attempt is noted as being in flight here."""
    return is_file_name(task) and (attempts / f"{task}.{attempt}.json").is_file()


class LogReader:
    """Reads one file, line by line, as far as it has come; `close` gives it back."""

    def __init__(self, path: Path, place: int = 0) -> None:
        with own_folder(path.parent) as inside:
            self._handle = open_there(path.name, inside)
        self._offset = place
        self._rest = b""

    def close(self) -> None:
        """Give the file back."""
        if self._handle != -1:
            os.close(self._handle)
            self._handle = -1

    @property
    def too_long(self) -> bool:
        """Whether it has come to where the file does not only grow: the rest is read when the attempt has ended."""
        return self._offset >= GROWING_MOST

    @property
    def place(self) -> int:
        """How far it was read, in bytes: another reader goes on from there."""
        return self._offset - len(self._rest)

    def lines(self, *, over: bool, most: int | None = None) -> Iterator[bytes]:
        """Lines that are new and whole; once it is `over`, whatever is left, too.

        With `most`, no more is read once there were so many bytes; then what is left comes with the next call.
        """
        end = None if most is None else self._offset + most
        while end is None or self._offset < end:
            room = PIECE if over else min(PIECE, GROWING_MOST - self._offset)
            piece = os.pread(self._handle, room, self._offset) if room > 0 else b""
            if not piece:
                break
            self._offset += len(piece)
            *whole, rest = (self._rest + piece).split(b"\n")
            if len(rest) > LONGEST_LINE:
                whole, rest = [*whole, rest], b""
            self._rest = rest
            yield from whole
        else:
            return
        if over and self._rest:
            last, self._rest = self._rest, b""
            yield last


# The last lines that an attempt printed, for whoever tells how it ended.
#
# Of a protocol's lines only what the agent says is repeated: the rest says nothing to a person, and can be long.

_TAIL = 4_096
_PROTOCOL_TAIL = 1 << 18
"""Bytes of a protocol that are looked through."""


def last_said(receipt: Receipt, most: int) -> list[str]:
    """The last words of an attempt: what its agent did or said last; without a protocol, the last lines it printed.

    Of those, the ones on the stream on which errors are told, if there are any there.
    """
    stdout, stderr = (None if stream is None else Path(stream.path) for stream in (receipt.stdout, receipt.stderr))
    return last_printed(stdout, stderr, most, receipt.open_call)


def last_printed(stdout: Path | None, stderr: Path | None, most: int, open_call: str = "") -> list[str]:
    """The last words in these files; `open_call` is the call that had brought nothing at the end."""
    spoken, printed = ([], []) if stdout is None else _ends(stdout)
    if open_call:
        return [open_call]
    if spoken:
        return spoken[-most:]
    errors = [] if stderr is None else _ends(stderr)[1]
    lines = [line for line in errors if not is_noise(line)]
    return (lines or printed)[-most:]


def end_of(path: Path) -> list[str]:
    """The last lines of a file of output, those of a protocol as what is said in them."""
    spoken, printed = _ends(path)
    return spoken or printed


def _ends(path: Path) -> tuple[list[str], list[str]]:
    """The last lines of a file of output: those of a protocol's last message, and those of plain text."""
    try:
        with open(open_plain(path), "rb") as file:  # noqa: PTH123 - of a descriptor
            size = file.seek(0, 2)
            file.seek(max(size - _PROTOCOL_TAIL, 0))
            end = file.read()
    except OSError:
        return [], []
    lines = end.rstrip().split(b"\n")[1 if size > _PROTOCOL_TAIL else 0 :]
    conversation = Conversation()
    for line in lines:
        if line.startswith(b"{") and (parsed := parse(line)).dialect:
            conversation.hear(parsed, 0)
    if conversation.speaks and lines and lines[-1].startswith(b"{"):
        return conversation.message.split("\n") if conversation.message else [], []
    return [], [line for line in last_words(end[-_TAIL:]).splitlines() if not _is_record(line)]


def _is_record(line: bytes | str) -> bool:
    """Whether a line is a JSON object: for a program, and not for people."""
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
