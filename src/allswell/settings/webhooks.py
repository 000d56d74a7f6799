"""Reading `[webhook_secrets]`: by host, the names of the variables that hold what signs requests to it."""

from __future__ import annotations

from allswell.domain.webhook_secret import TABLE, wrong_with_secrets
from allswell.settings.sources import Found, Problem, Source


class SecretsReading:
    """What the files have said so far about the secrets of webhook requests."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems
        self.secrets: dict[str, tuple[str, ...]] = {}

    def take(self, found: Found) -> None:
        """The table of one file; it is taken out of it. A host's entry replaces that of a weaker file."""
        table = found.table.pop(TABLE, {})
        if not isinstance(table, dict):
            self._wrong(f'{TABLE} must be a table: [{TABLE}], "oracle.example" = "NAME"', found.source((TABLE,)))
            return
        for host, raw in table.items():
            names = [raw] if isinstance(raw, str) else raw
            source = found.source((TABLE, host))
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                self._wrong(f"{TABLE}.{host} must be the name of a variable, or a list of them", source)
            elif says := wrong_with_secrets(host, names):
                self._wrong(f"{TABLE}.{host}: {says}", source)
            else:
                self.secrets[host] = tuple(names)

    def _wrong(self, says: str, source: Source) -> None:
        self._problems.append(Problem(says, source.where, source.place, "sinks"))
