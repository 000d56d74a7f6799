"""`allswell retry`, as somebody types it."""

from tests.interfaces.cli.console import Console


def test_an_ended_task_is_handed_over_again_and_both_name_the_other(cli: Console) -> None:
    first, second = cli.submit("paint"), cli.submit("dry", "--needs", "paint")
    cli.claim()
    cli.ok("fail", "no table", "--class", "validation")
    assert f"allswell retry {first}" in cli.ok("why", first).out
    assert [need["task_id"] for need in cli("status", "--json").json["needs"]] == [first]
    made = cli.ok("retry", "paint", "--with-dependents", "--json").json["retried"]
    assert [one["task_id"] for one in made] == [first, second]
    new = made[0]["new_task_id"]
    assert cli.ok("show", new, "--json").json["task"]["retry_of_id"] == first
    assert cli.ok("show", first, "--json").json["task"]["retried_as_id"] == new
    assert f"retry of   {first}" in cli.ok("show", new).out
    assert f"It is {first}, submitted again." in cli.ok("why", new).out
    assert f"submitted again, as {new}" in cli.ok("why", first).out
    assert f"({new})" in cli.ok("why", "paint").out, "its name is now that of the newest"
    assert cli("status", "--json").json["needs"] == []
    said = cli("retry", first)
    assert (said.code, f"was retried already, as {new}" in said.err) == (2, True)
    claim = cli.claim("bob")
    assert claim["task"]["task_id"] == new
    assert claim["handover"]["agent_id"] == "ada"
    cli.ok("done")
    said = cli("retry", new)
    assert (said.code, "say `--again`" in said.err) == (2, True)
    assert cli.ok("retry", new, "--again").out.startswith("paint is submitted again, as t_")


def test_what_has_not_ended_is_not_retried(cli: Console) -> None:
    cli.submit("paint")
    said = cli("retry", "paint")
    assert (said.code, "has not ended" in said.err, "allswell why" in said.err) == (2, True, True)
