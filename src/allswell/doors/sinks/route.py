"""One route of an alerts sink: an Apprise URL, and a thread of its own to speak through it.

Apprise blocks, and nothing can stop it. A call that hangs keeps its own route busy and nobody else: no thread that
others need is used, no second one is begun behind it, and the process may end all the same. Routes are secrets (they
hold tokens), so no error of ours shows one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from allswell.domain.delivery import Failure
from allswell.domain.meant import nearest
from allswell.domain.sink_spec import Severity
from allswell.doors.sinks.sink import NotDelivered
from allswell.doors.sinks.variables import variable
from allswell.errors import Refused
from allswell.runtime.threads import Threads

if TYPE_CHECKING:
    from apprise import Apprise

_TYPES: Mapping[Severity, str] = {"info": "info", "warning": "warning", "critical": "failure"}


class Route:
    """Somebody whom Apprise can reach."""

    def __init__(self, url: str, environ: Mapping[str, str], where: str) -> None:
        self._apprise = _opened(url, environ, where)
        self._threads = Threads(1, name="allswell-route")

    async def tell(self, severity: Severity, title: str, text: str) -> None:
        """Say something; `NotDelivered` if that did not work."""
        if self._threads.busy:
            raise NotDelivered(Failure("what was sent before has not come to an end yet"))
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def tell_loop() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)

        call = self._threads.call(lambda: _notify(self._apprise, _TYPES[severity], title, text))
        call.tell(tell_loop)
        await ended.wait()
        reason = call.result()
        if reason is not None:
            raise NotDelivered(Failure(reason))


def _notify(route: Apprise, kind: str, title: str, text: str) -> str | None:
    """Why it did not work, or None."""
    import apprise

    said = _Said()
    log = logging.getLogger("apprise")
    log.addHandler(said)
    try:
        if route.notify(body=text, title=title, notify_type=apprise.NotifyType(kind)):
            return None
    finally:
        log.removeHandler(said)
    return f"Apprise could not deliver it: {said.lines[0]}" if said.lines else "Apprise could not deliver it"


class _Said(logging.Handler):
    """What Apprise says only to its log: why something did not work. Other routes speak in other threads."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.lines.append(record.getMessage())


def _opened(route: str, environ: Mapping[str, str], where: str) -> Apprise:
    """A route that Apprise knows; else `Refused`, without showing it."""
    try:
        import apprise
    except ImportError as error:
        raise Refused("no_driver", "alerts need a library: pip install 'allswell[sinks]'", where=where) from error
    logging.getLogger("apprise").addHandler(logging.NullHandler())  # or what it cannot read goes to standard error
    named = f" ({route})" if route.startswith("env:") else ""
    if named:
        route = variable(route.removeprefix("env:"), environ, where)
    # Without a limit of its own it uses no threads of its own, which the end of a process would wait for.
    made = apprise.Apprise(asset=apprise.AppriseAsset(secure_logging=True, service_timeout=0))
    if made.add(route):
        return made
    scheme, colon, _ = route.partition("://")
    known = [word for one in apprise.Apprise().details()["schemas"] for word in _schemes(one)]
    if not colon or not scheme.isalnum():
        said = "is no URL; Apprise's look like slack://…, mailtos://… or ntfy://…"
    elif scheme in known:
        said = f"begins with {scheme}://, and Apprise cannot read what follows"
    else:
        near = nearest(scheme, known)
        said = f"begins with {scheme}://, which Apprise does not know" + (f"; did you mean {near}://?" if near else "")
    raise Refused("bad_route", f"{where}: a route{named} {said}", where=where)


def _schemes(details: Mapping[str, object]) -> list[str]:
    found: list[str] = []
    for key in ("protocols", "secure_protocols"):
        words = details.get(key)
        found += [str(word) for word in words] if isinstance(words, list | tuple) else []
    return found
