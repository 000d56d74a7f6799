"""Who may speak through the sockets of this process's attempts: as the settings or the program say."""

from __future__ import annotations

_outsiders: bool | None = None


def outsiders_may_speak() -> bool:
    """Whether knowing the secret is enough; the settings are loaded when this is first asked."""
    global _outsiders  # noqa: PLW0603 - one set of settings for one process
    if _outsiders is None:
        from allswell.settings import look  # what else is wrong with the settings is for others to say

        _outsiders = look().value("socket_speakers") == "secret"
    return _outsiders


def let_outsiders_speak(given: bool | None) -> None:  # noqa: FBT001 - as `use_limits`
    """Let them, or not; None: as the settings say, loaded anew when it is next asked."""
    global _outsiders  # noqa: PLW0603
    _outsiders = given
