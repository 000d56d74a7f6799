"""Settings: every figure of the watch, where it comes from, and what it is for.

Four sources, each stronger than the one before it:

1. `[tool.allswell]` in the nearest `pyproject.toml` upward that has such a table;
2. the nearest `allswell.toml` upward;
3. the environment: `ALLSWELL_AGENT_TIMEOUT`, `ALLSWELL_RETRY_BACKOFF`, `ALLSWELL_ROLES_CRITIC_AGENT_TIMEOUT`;
4. a flag of the command line.

The search upward ends at the top of the repository (a linked worktree goes on at the main one), at the home folder, at
a mount and below a sticky folder such as `/tmp`. What is found must be this user's own, and nobody else's to write to.

They are merged setting by setting. A name that is unknown, a value of the wrong kind and a combination that cannot
work are refused when they are loaded, all at once, each with the file and the line.
"""

from allswell.settings.load import load, look
from allswell.settings.schema import SETTINGS, Setting
from allswell.settings.settings import SettingRow, Settings
from allswell.settings.sources import SettingsProblem
from allswell.settings.values import SettingKind

__all__ = ["SETTINGS", "Setting", "SettingKind", "SettingRow", "Settings", "SettingsProblem", "load", "look"]
