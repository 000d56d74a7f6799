"""The keys of a store: made, listed, revoked, and looked up for calls from elsewhere.

They are few, so they are kept among the watch's own words (`store/port.py`), each under its name, and change only by a
swap with what was read: of two who make a key under one name at once, one is refused. The journal has an event about
each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from allswell.domain.access.answer_link import (
    LINK_SECRET,
    PATH,
    VALID_FOR,
    AnswerLink,
    LinkSecret,
    option_of_link,
    options_by_link,
    read_token,
    signed,
)
from allswell.domain.access.key import (
    LINK_BYTES,
    LINK_MARK,
    PREFIX,
    SECRET_BYTES,
    SESSION_MARK,
    SESSION_PREFIX,
    Key,
    Sessions,
    check_holds,
    check_session,
    closed,
    exchanged,
    is_over,
    new_key,
    opened,
    revoked,
    secret_of,
    session_parts_of,
    shown,
    with_link,
    written,
)
from allswell.domain.access.rights import Operation, check_act, is_agents
from allswell.domain.agents import quota as rules
from allswell.domain.agents.quota import NOTHING, OVERHEAD, Count, Quota, QuotaUse
from allswell.domain.ids import Millis, QuestionId, TaskId
from allswell.domain.notify.alert import AnswerButton
from allswell.domain.question import Option, Question, does
from allswell.domain.rules.command import (
    Ask,
    AskForHelp,
    CheckIn,
    CheckInAgain,
    Command,
    Complete,
    Decline,
    Delegate,
    EndIdle,
    Fail,
    NewTask,
    Notice,
    OpenRun,
    RecordReceipt,
    Release,
    Respond,
    SendRequest,
    Submit,
)
from allswell.domain.rules.event import Event
from allswell.domain.values import nearest
from allswell.engine.watch import Watch
from allswell.errors import Refused, unavailable_outward
from allswell.timing.clock import Clock

_decode = msgspec.json.Decoder(Key).decode


class Keyring:
    """The keys that a watch knows."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    async def create(
        self,
        name: str,
        rights: Sequence[str],
        *,
        roles: Sequence[str] = (),
        agents: Sequence[str] = (),
        lasts: int | None = None,
        by: str = "",
    ) -> tuple[Key, str]:
        """Make a key; what is kept of it, and its text, which cannot be shown a second time."""
        watch = self._watch
        secret, now = secret_of(os.urandom(SECRET_BYTES)), await watch.now()
        key = new_key(name, secret, rights, now, roles=roles, agents=agents, lasts=lasts, by=by)
        before = await watch.recall(PREFIX + name)
        if before is not None and not is_over(_decode(before), now):
            text = f"there is a key {name} already; `allswell key revoke {name}` ends it"
            raise Refused("key_exists", text, where="name")
        if not await watch.swap(PREFIX + name, before, _encoded(key)):
            raise Refused("key_exists", f"another caller has just made a key {name}", where="name")
        told = {"name": name, "rights": list(key.rights), "roles": list(key.roles), "agents": list(key.agents)}
        await watch.notice(Event("key_created", data={**told, "expires_at": key.expires_at, "by": by}))
        return key, written(name, secret)

    async def all(self) -> list[Key]:
        """Every key there is or was, by name."""
        kept = await self._watch.views.view_kept(PREFIX)
        return [_decode(text) for _, text in sorted(kept.items())]

    async def find(self, name: str) -> Key | None:
        """The key of a name."""
        kept = await self._watch.recall(PREFIX + name)
        return None if kept is None else _decode(kept)

    async def revoke(self, name: str, by: str = "") -> Key:
        """End a key; calls with it are refused from now on."""
        watch = self._watch
        kept = await watch.recall(PREFIX + name)
        if kept is None:
            raise await self._unknown(name)
        ended = revoked(_decode(kept), await watch.now(), by)
        if not await watch.swap(PREFIX + name, kept, _encoded(ended)):
            raise Refused("key_changed", f"another caller has just changed the key {name}; look again", where="name")
        await watch.notice(Event("key_revoked", data={"name": name, "by": by}))
        return ended

    async def named(self, name: str) -> Key:
        """The key of this name; `Refused`, with the nearest name, if no key has it."""
        found = await self.find(name)
        if found is None:
            raise await self._unknown(name)
        return found

    async def _unknown(self, name: str) -> Refused:
        like = nearest(name, [key.name for key in await self.all()])
        hint = f"did you mean {like}?" if like else "`allswell key list` shows those there are"
        return Refused("unknown_key", f"there is no key {name!r}", where="name", hint=hint)


def _encoded(key: Key) -> str:
    return msgspec.json.encode(key).decode()


# What keys may put into the store: each key has a quota for each minute, and each attempt one (domain/agents/quota.py).
#
# A key's minute is counted in this process: with several servers it has as much at each of them, and a key that means
# harm finds them all. To keep it with the store would cost a write for every command, and what it bounds is how fast a
# disk fills, which a server more does not change much. What an attempt has used up is counted by the rule itself and
# lies with its task (domain/lease/holder.py): the figure is put into the command here. Keys of supervisors and of those
# who decide are not counted: what a supervisor passes on was counted at the socket of its attempt.

_RELEASED = "released"
_KEPT = 10_000
"""Keys that are remembered."""


class KeyQuota:
    """What each key has used up, and what each attempt may."""

    def __init__(self, quota: Quota, clock: Clock) -> None:
        self._of_attempt = quota
        self._of_key = rules.of_key(quota)
        self._clock = clock
        self._keys: dict[str, tuple[int, QuotaUse]] = {}

    def counted(  # noqa: C901, PLR0912 - a line for each kind of command
        self, key: Key, command: Command
    ) -> Command:
        """The command, once it is counted; `Refused` where it is too much, and a check-in without its note."""
        if not is_agents(key):
            return command
        match command:
            case CheckIn() | CheckInAgain():
                return self._checked_in(key, command)
            case Ask():
                offered = sum([len(option.key) + len(option.label) for option in command.options])
                self._spend(key, rules.question, len(command.text) + offered)
                return replace(command, quota=self._of_attempt)
            case Delegate() | SendRequest():
                new = command.request
                self._spend(key, rules.request, _size(new))
                return replace(command, quota=self._of_attempt)
            case Respond() | Decline():
                said = command.result if isinstance(command, Respond) else command.reason
                self._spend(key, rules.request, len(said))
            case Submit():
                self._spend(key, rules.put, sum([_size(new) + OVERHEAD for new in command.tasks]))
            case OpenRun():
                self._spend(key, rules.put, len(command.name))
            case Notice():
                self._spend(key, rules.put, len(str(command.event.data)))
            case RecordReceipt():
                self._spend(key, rules.put, len(command.path))
            case AskForHelp():
                self._spend(key, rules.put, len(command.reason) + len(command.message))
            case Complete():
                self._completed(key, command)
            case Release() | Fail() | EndIdle():
                return self._ended(key, command)
            case _:
                pass
        return command

    def written(self, key: Key, size: int) -> None:
        """Count what a key keeps among the watch's own words; `Refused` where it is too much."""
        if is_agents(key):
            self._spend(key, rules.put, size)

    def _completed(self, key: Key, command: Complete) -> None:
        """What was done is not lost for a quota: a caller over it has to bring it later, as in an outage."""
        try:
            self._spend(key, rules.put, len(command.result) + len(command.warning))
        except Refused as error:
            raise unavailable_outward(error.message, hint=error.hint) from None

    def _ended(self, key: Key, command: Release | Fail | EndIdle) -> Release | Fail | EndIdle:
        """A task can always be given back, and an attempt can always end; beyond the quota without its own words."""
        bare: Release | Fail | EndIdle
        if isinstance(command, Release):
            said, bare = command.reason, replace(command, reason=_RELEASED)
        elif isinstance(command, Fail):
            said, bare = command.failure.message, replace(command, failure=replace(command.failure, message=""))
        else:
            said, bare = command.said, replace(command, said="")
        try:
            self._spend(key, rules.put, len(said))
        except Refused:
            return bare
        return command

    def _checked_in(self, key: Key, command: CheckIn | CheckInAgain) -> CheckIn | CheckInAgain:
        """A check-in is never refused; one beyond the quota is taken without its note."""
        if not command.note:
            return command
        try:
            self._spend(key, rules.put, len(command.note))
        except Refused:
            return replace(command, note="")
        return command

    def _spend(self, key: Key, count: Count, size: int) -> None:
        now = self._clock.monotonic()
        at, spent = self._keys.pop(key.name, (now, NOTHING))
        left = rules.refilled(self._of_key, spent, now - at)
        at = now if left != spent else at  # or what is less than one would never be refilled
        self._keys[key.name] = (at, left)
        try:
            self._keys[key.name] = (at, count(self._of_key, left, size))
        except Refused as error:
            text = f"the key {key.name} has used up what it may say in a minute ({error.where}); try again in a while"
            hint = "quota.key_* in the settings allows more"
            raise Refused("over_quota", text, where=error.where, hint=hint) from None
        if len(self._keys) > _KEPT:
            del self._keys[next(iter(self._keys))]


def _size(new: NewTask) -> int:
    """Characters that a new task takes in the store."""
    listed = sum(map(len, new.services)) + sum(map(len, new.needs)) + sum(map(len, new.barred))
    return len(new.payload) + len(new.name) + listed


# The sessions of browsers, as a gate keeps them: links made and used, sessions opened, known again, and closed.
#
# What holds is decided in `domain/access/key.py`. A record changes only by a swap with what was read: when another
# process was faster, it is read and decided once more. A session is remembered for a second, as keys are, because every
# call asks for it.

REMEMBERED = 1_000
"""Milliseconds."""
_MOST = 1_000
_TRIES = 20
_TOO_MANY = "too many change the same at once"
_decode_session = msgspec.json.Decoder(Sessions).decode


class LoggedIn(msgspec.Struct, frozen=True):
    """Who is at a browser: whose key it is, and the secret of the session."""

    key: Key
    secret: str


async def make_link(watch: Watch, name: str, by: str = "") -> str:
    """A link for a key, as the text to be shown; the one before works no longer."""
    key = check_holds(await Keyring(watch).named(name), await watch.now())
    check_act(key, Operation.LOOK)
    secret = secret_of(os.urandom(LINK_BYTES))
    now = await watch.now()
    await _change(watch, name, lambda before: with_link(before, secret, now))
    await watch.notice(Event("link_made", data={"name": name, "by": by}))
    return shown(LINK_MARK, name, secret)


class LoginService:
    """Where browsers log in and out."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._keyring = Keyring(watch)
        self._known: dict[str, tuple[LoggedIn, Sessions, int]] = {}
        """By what the browser showed: who it is, and when that was looked up, on this process's own clock."""

    async def enter(self, link: str) -> str:
        """Use a link up; what the browser is to show from now on."""
        parts = session_parts_of(LINK_MARK, link)
        if parts is None:
            raise Refused("bad_link", "this is not a link of Allswell's; was it copied whole?", where="link")
        name, link_secret = parts
        now, secret = await self._watch.now(), secret_of(os.urandom(SECRET_BYTES))
        key = await self._keyring.find(name)

        def enters(before: Sessions) -> Sessions:
            after = exchanged(before, link_secret, secret, key, now)
            check_act(check_holds(key, now), Operation.LOOK)
            return after

        await _change(self._watch, name, enters)
        return await self._told(name, secret, "link")

    async def log_in(self, key: Key) -> str:
        """Open a session for a key that was shown; what the browser is to show from now on."""
        check_act(key, Operation.LOOK)
        now, secret = await self._watch.now(), secret_of(os.urandom(SECRET_BYTES))
        await _change(self._watch, key.name, lambda before: opened(before, secret, key, now))
        return await self._told(key.name, secret, "key")

    async def _told(self, name: str, secret: str, how: str) -> str:
        await self._watch.notice(Event("session_opened", data={"name": name, "how": how}))
        return shown(SESSION_MARK, name, secret)

    async def known(self, cookie: str) -> LoggedIn:
        """The session of this cookie; `Refused` if it is not, or no longer, logged in."""
        clock = self._watch.clock
        met = self._known.get(cookie)
        if met is not None and clock.monotonic() - met[2] < REMEMBERED:
            who, sessions, _ = met
            now = Millis(clock.wall())
            check_session(sessions, who.secret, who.key, now)
            return who
        parts = session_parts_of(SESSION_MARK, cookie)
        if parts is None:
            raise Refused("no_session", "log in first", where="cookie")
        name, secret = parts
        now = await self._watch.now()
        key = await self._keyring.find(name)
        sessions = await _read(self._watch, name)
        check_session(sessions, secret, key, now)
        if len(self._known) >= _MOST:
            self._known.clear()
        who = LoggedIn(check_holds(key, now), secret)
        self._known[cookie] = (who, sessions, clock.monotonic())
        return who

    async def log_out(self, cookie: str) -> None:
        """End a session; one that is over already is no mistake."""
        self._known.pop(cookie, None)
        parts = session_parts_of(SESSION_MARK, cookie)
        if parts is not None:
            name, secret = parts
            await _change(self._watch, name, lambda before: closed(before, secret))

    def forget(self, name: str) -> None:
        """Look the sessions of this key up again: it was changed here."""
        self._known = {cookie: met for cookie, met in self._known.items() if met[0].key.name != name}


async def _read(watch: Watch, name: str) -> Sessions:
    kept = await watch.recall(SESSION_PREFIX + name)
    return Sessions() if kept is None else _decode_session(kept)


async def _change(watch: Watch, name: str, decide: Callable[[Sessions], Sessions]) -> None:
    for _ in range(_TRIES):
        kept = await watch.recall(SESSION_PREFIX + name)
        before = Sessions() if kept is None else _decode_session(kept)
        after = decide(before)
        if after == before or await watch.swap(SESSION_PREFIX + name, kept, msgspec.json.encode(after).decode()):
            return
    raise unavailable_outward(_TOO_MANY, hint="try again")


# Answer links: signed beside the store as an alert is sent, looked up where the store is served (ADR 82).
#
# The process that needs the secret first makes it, by one swap. Whatever a link offers is decided with the secret as it
# is now: a new one ends all links at once.

NO_QUESTION, NO_TASK = QuestionId("q_none.0"), TaskId("t_none")


class OfferedAnswer(msgspec.Struct, frozen=True):
    """What a link offers now."""

    link: AnswerLink
    question: Question
    option: Option
    about: str
    """The name of the task that it is about; empty, if it is about none."""


class LinkService:
    """Where answer links are signed, read, and made void."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._known: tuple[str, int] | None = None
        """The secret, and when it was looked up, on this process's own clock."""
        self._nobodys = secret_of(os.urandom(SECRET_BYTES))
        """Stands for the secret of a store that has none yet: nothing is signed with it."""

    async def sign_for(
        self, question: QuestionId, origin: str, sink: str, route: str, *, lasts: int = VALID_FOR
    ) -> list[AnswerButton]:
        """A link for each option that may be chosen so; none for a question that is not open any more."""
        asked = await self._watch.views.view_question(question)
        options = [] if asked is None or asked.closed_at is not None else options_by_link(asked)
        if not options:
            return []
        secret = await self._secret(fresh=True) or await self._first()
        expires_at = Millis(await self._watch.now() + lasts)
        tokens = [signed(AnswerLink(question, option.key, expires_at, sink, route), secret) for option in options]
        return [
            AnswerButton(option.label, does(option.act), f"{origin}{PATH}{token}")
            for option, token in zip(options, tokens, strict=True)
            if token is not None
        ]

    async def read(self, token: str) -> AnswerLink | None:
        """What a token stands for; None if the store's secret, as it was a second ago, has not signed it."""
        return read_token(token, await self._secret() or self._nobodys)

    async def offered(self, token: str) -> OfferedAnswer | None:
        """What a link offers now, if anything; whatever is wrong with it, the same is looked up for it."""
        link = read_token(token, await self._secret(fresh=True) or self._nobodys)
        now = await self._watch.now()
        question = await self._watch.views.view_question(NO_QUESTION if link is None else link.question)
        about = None if question is None else question.task
        row = await self._watch.views.view_task(NO_TASK if about is None else about)
        option = None if link is None else option_of_link(link, question, now)
        if link is None or question is None or option is None:
            return None
        return OfferedAnswer(link, question, option, "" if row is None else row.task.name)

    async def revoke_all(self, by: str = "") -> LinkSecret:
        """Have no link work that was sent before."""
        watch, self._known = self._watch, None
        for _ in range(_TRIES):
            made = LinkSecret(secret_of(os.urandom(SECRET_BYTES)), await watch.now(), by)
            if await watch.swap(LINK_SECRET, await watch.recall(LINK_SECRET), msgspec.json.encode(made).decode()):
                await watch.notice(Event("links_revoked", data={"by": by}))
                return made
        raise unavailable_outward(_TOO_MANY, hint="try again")

    async def _secret(self, *, fresh: bool = False) -> str | None:
        clock = self._watch.clock
        if fresh or self._known is None or clock.monotonic() - self._known[1] >= REMEMBERED:
            kept = await self._watch.recall(LINK_SECRET)
            self._known = None if kept is None else (_decode_secret(kept).secret, clock.monotonic())
        return None if self._known is None else self._known[0]

    async def _first(self) -> str:
        """A secret where there is none; where another process is faster, its own."""
        made = LinkSecret(secret_of(os.urandom(SECRET_BYTES)), await self._watch.now())
        await self._watch.swap(LINK_SECRET, None, msgspec.json.encode(made).decode())
        return await self._secret(fresh=True) or made.secret


_decode_secret = msgspec.json.Decoder(LinkSecret).decode
