"""`[sinks.NAME]` in a file of settings: which fields a sink has."""

from __future__ import annotations

from allswell.domain.sink_spec import SinkSpec, wrong_with
from allswell.settings.fleet import Fields, Unfit, count, flag, length, text
from allswell.settings.named_tables import NamedTables, one_or_more
from allswell.settings.sources import Problem


def beginning(raw: object) -> object:
    """Where in the journal a new sink begins."""
    if raw in ("now", "start"):
        return raw
    raise Unfit('must be "now" or "start"')


def routes(raw: object) -> object:
    """Whom to tell, by severity."""
    if isinstance(raw, dict):
        return {severity: one_or_more(told) for severity, told in raw.items()}
    raise Unfit('must be a table, such as { warning = ["env:SLACK_URL"], critical = ["env:PAGER_URL"] }')


SINK: Fields = {
    "kind": text,
    "hears": one_or_more,
    "begins": beginning,
    "timeout": length,
    "retries": count,
    "apart": length,
    "give_up": length,
    "url": text,
    "secret_env": one_or_more,
    "allow_private": flag,
    "max_body": count,
    "routes": routes,
    "quiet": text,
    "humans": one_or_more,
    "channel": text,
    "speaks_as": text,
    "key": text,
    "token_env": text,
    "database": text,
    "page": text,
}


def sink_tables(problems: list[Problem]) -> NamedTables[SinkSpec]:
    """A reader of such tables, which tells `problems` what is wrong."""
    return NamedTables(
        problems, kind="sinks", example="oncall", fields=SINK, place="key", spec=SinkSpec, wrong_with=wrong_with
    )
