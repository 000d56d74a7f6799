"""`allswell check`: its verdict as an exit code, as words at both widths, and as JSON."""

import json
import re
from pathlib import Path

import pytest

from tests.interfaces.cli.console import Console
from tests.interfaces.cli.upkeep import at_terminal, run

SEED = """\
timeouts:
  step: 5m
steps:
  - id: heavy-analysis
    agent: ada
    timeout_override: 1200000  # 20 minutes for this step
    prompt: Analyse it.
"""
FITS = "steps:\n  - {id: a, run: x}\n  - {id: b, run: x, needs: [a]}\n"


def flow(folder: Path, text: str, name: str = "flow.yaml") -> str:
    (folder / name).write_text(text)
    return name


def test_what_fits_is_well(cli: Console) -> None:
    assert cli.ok("check", flow(cli.folder, FITS)).out == "All's well: everything fits.\n"
    assert cli.ok("check").out == "All's well: everything fits.\n"
    assert cli.ok("check", "--config").out == "All's well: everything fits.\n"


@pytest.mark.row("F3", "F12")
def test_a_finding_shows_the_sum_the_line_and_what_to_do(cli: Console) -> None:
    said = cli("check", flow(cli.folder, SEED))
    assert (said.code, said.err) == (1, "")
    assert (
        "error    flow.yaml:2:3  retries_fit\n"
        "         The retries of a call of a model that keeps running into its limit do not fit into\n"
        "         timeouts.step.\n"
        "           4 × 2m + 1.5 × (1s + 2s) + breaker.pause 30s = 8m 34.5s > 5m\n"
        "            2 │   step: 5m\n"
        "         → Give timeouts.step at least 8m 35s, or make timeouts.llm_call at most 1m 6s, or allow\n"
        "           only 1 retry.\n"
    ) in said.out
    assert "note     flow.yaml:6:5  override\n" in said.out
    assert said.out.endswith("\n2 errors, 1 warning, 1 note.\n")


def test_warnings_fail_only_where_they_are_asked_to_and_notes_never(cli: Console) -> None:
    warned = flow(cli.folder, FITS + "  - {id: c, run: x, needs: [b]}\n  - {id: d, run: x, needs: [c]}\n")
    assert cli.ok("check", warned).out.endswith("\n1 warning.\n")
    assert cli("check", warned, "--strict").code == 1
    noted = flow(cli.folder, "steps:\n  - id: a\n    run: x\n    timeout_override: 20m\n")
    assert cli.ok("check", noted, "--strict").out.endswith("\n1 note.\n")


def test_an_output_behind_a_link_out_of_the_folder_is_an_error_and_a_nul_too(cli: Console) -> None:
    (cli.folder / "link.txt").symlink_to("/etc/hostname")
    (cli.folder / "away").symlink_to("/tmp")  # noqa: S108 - it only leads there
    (cli.folder / "near.txt").symlink_to("kept.txt")
    paths = "outputs: [link.txt, away/x.txt, near.txt]"
    found = cli("check", flow(cli.folder, f"steps: [{{id: a, run: x, {paths}}}]\n"), "--json").json["findings"]
    assert [one["rule"] for one in found] == ["leads_out", "leads_out"]
    assert "link.txt" in found[0]["says"]
    assert "away/x.txt" in found[1]["says"]
    for bad in (r'run: [x, "a\0b"]', r'run: x, env: {A: "a\0b"}', r'run: x, audit: ["a\0b"]'):
        said = cli("check", flow(cli.folder, f"steps: [{{id: a, {bad}}}]\n"))
        assert (said.code, r"A NUL (\0) ends every word" in said.out) == (1, True), bad


def test_json_has_the_numbers_and_the_place(cli: Console) -> None:
    said = cli("check", "--json", flow(cli.folder, SEED))
    assert (said.code, said.json["exit"], said.json["errors"], said.json["notes"]) == (1, 1, 2, 1)
    first = next(one for one in said.json["findings"] if one["rule"] == "retries_fit")
    assert first["place"] == {"source": "flow.yaml", "line": 2, "column": 3}
    assert first["key"] == "timeouts.step"
    assert first["numbers"] == {"timeouts.step": 300_000, "timeouts.llm_call": 120_000}
    assert (first["total_ms"], first["limit_ms"], first["severity"]) == (514_500, 300_000, "error")
    assert first["sum"] == "4 × 2m + 1.5 × (1s + 2s) + breaker.pause 30s = 8m 34.5s > 5m"
    assert cli.ok("check", "--json").json == {"exit": 0, "errors": 0, "warnings": 0, "notes": 0, "findings": []}


def test_settings_are_checked_alone_beside_a_flow_and_by_their_file(cli: Console) -> None:
    (cli.folder / "allswell.toml").write_text('retry.retries = 9\n[timeouts]\nllm_call = "3m"\n')
    fits = flow(cli.folder, "steps: [{id: a, run: x}]\n")
    for args in ([], ["--config"], [fits, "--config"], ["allswell.toml"], [str(cli.folder / "allswell.toml")]):
        said = cli("check", *args)
        assert said.code == 1, args
        assert "error    allswell.toml:1:1  retries_above_total\n" in said.out, args
        assert "            1 │ retry.retries = 9\n" in said.out, args
    assert "retries_above_total" not in cli("check", fits).out


def test_a_file_of_any_name_can_hold_settings_that_are_proved_before_they_hold(cli: Console) -> None:
    (cli.folder / "allswell.toml").write_text("retry.retries = 9\n")
    (cli.folder / "next.toml").write_text("[worker]\nvisibility_timeout = 25\n")
    said = cli("check", "next.toml")
    assert (said.code, "retries_above_total" in said.out) == (1, False)
    assert "error    next.toml:2:1  statement_before_visibility\n" in said.out
    assert "           25s ≥ 25s\n            2 │ visibility_timeout = 25\n" in said.out


def test_the_workers_figures_are_proved(cli: Console) -> None:
    (cli.folder / "allswell.toml").write_text("[worker]\nvisibility_timeout = 26\n")
    said = cli.ok("check", "--json").json
    (found,) = said["findings"]
    assert (found["rule"], found["severity"]) == ("pool_before_visibility", "warning")
    assert found["numbers"] == {
        "worker.pool_timeout": 30_000,
        "worker.statement_timeout": 25_000,
        "worker.visibility_timeout": 26_000,
    }
    assert cli("check", "--strict").code == 1
    cli.patch.setenv("ALLSWELL_WORKER_VISIBILITY_TIMEOUT", "25")
    assert "error    ALLSWELL_WORKER_VISIBILITY_TIMEOUT  statement_before_visibility\n" in cli("check").out


def test_the_environment_is_a_place_too(cli: Console) -> None:
    cli.patch.setenv("ALLSWELL_RETRY_RETRIES", "7")
    assert "error    ALLSWELL_RETRY_RETRIES  retries_above_total\n" in cli("check").out


def test_settings_that_are_refused_are_told_before_anything_else(cli: Console) -> None:
    (cli.folder / "allswell.toml").write_text("stal_threshold = 0\nstall_threshold = 0\n")
    for args in ([], [flow(cli.folder, SEED)]):
        said = cli("check", *args)
        assert said.code == 1
        assert "error    allswell.toml:1:1  bad_setting\n" in said.out
        assert "stall_threshold (0) must be at least 1." in said.out
        assert "retries_fit" not in said.out


@pytest.mark.parametrize("text", ["a: &x [1]\nb: [*x, *x]\n", "a:\n\t- b\n", "", "\x00", "steps: [[[[[[[[["])
def test_a_broken_file_is_an_error_with_its_place(cli: Console, text: str) -> None:
    said = cli("check", flow(cli.folder, text))
    assert said.code == 1
    assert re.match(r"error    flow\.yaml:\d+:\d+  bad_flow\n", said.out)
    assert cli("check", "--json", "flow.yaml").json["findings"][0]["rule"] == "bad_flow"


def test_a_file_that_cannot_be_read_is_used_wrongly(cli: Console) -> None:
    for name, words in (("gone.yaml", "No such file"), (".", "Is a directory"), ("gone/allswell.toml", "No such file")):
        said = cli("check", name)
        assert (said.code, said.out) == (2, "")
        assert f"{name!r} cannot be read: {words}" in said.err
    (cli.folder / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert "has no settings" in cli("check", "pyproject.toml").err
    assert cli("check", "--nonsense").code == 2


def test_standard_input_is_a_flow(cli: Console) -> None:
    said = cli("check", "-", stdin=SEED)
    assert (said.code, "error    standard input:2:3  retries_fit\n" in said.out) == (1, True)
    assert "            2 │   step: 5m\n" in said.out


def test_what_a_file_says_cannot_play_tricks_on_a_terminal(cli: Console) -> None:
    said = cli("check", flow(cli.folder, 'steps:\n  - {id: "\\e[31m", needs: ["\\e]0;x\\a"]}\n'))
    assert "\x1b" not in said.out
    assert "unknown_need" in said.out


@pytest.mark.parametrize("columns", [80, 200])
def test_it_fits_the_terminal(tmp_path: Path, columns: int) -> None:
    long = "        # " + "very " * 60
    flow(tmp_path, SEED.replace("step: 5m", "step: 5m" + long) + "    retry: {retries: 40, max_attempts: 60}\n")
    ran = at_terminal("check", "flow.yaml", cwd=tmp_path, columns=columns)
    text = re.sub(r"\x1b\[[0-9;]*m", "", ran.out)
    assert text != ran.out, "there is colour at a terminal"
    assert max(map(len, text.splitlines())) <= min(columns, 100)
    assert "→ " in text


def test_the_real_command_needs_nothing_but_a_file(tmp_path: Path) -> None:
    ran = run("check", flow(tmp_path, SEED), "--json", cwd=tmp_path)
    assert (ran.code, json.loads(ran.out)["errors"]) == (1, 2)


def test_agents_that_share_a_folder_are_warned_of_and_those_with_one_of_their_own_are_not(cli: Console) -> None:
    (cli.folder / "own").mkdir()
    (cli.folder / "allswell.toml").write_text(
        """
[agents.crowd]
command = ["true", "{prompt}"]
concurrency = 3
[agents.deeper]
command = ["true", "{prompt}"]
cwd = "own"
[agents.apart]
command = ["true", "{prompt}"]
worktree = true
concurrency = 3
[agents.far]
remote = true
"""
    )
    found = cli.ok("check", "--json").json["findings"]
    assert [(one["rule"], one["severity"], one["place"]["line"]) for one in found] == [
        ("shared_folder", "warning", 2),
        ("shared_folder", "warning", 5),
    ]
    assert "with up to 3 of itself, deeper" in found[0]["says"]
    assert "own) with crowd" in found[1]["says"]
    (cli.folder / "allswell.toml").write_text('[agents.one]\ncommand = ["true", "{prompt}"]\n')
    assert cli.ok("check").out == "All's well: everything fits.\n"


def test_a_grace_that_does_not_fit_before_the_end_of_a_lease_is_warned_of(cli: Console) -> None:
    agent = '[agents.slow]\ncommand = ["true", "{prompt}"]\n'
    (cli.folder / "allswell.toml").write_text(f'{agent}grace = "20s"\n')
    (finding,) = cli.ok("check", "--json").json["findings"]
    assert (finding["rule"], finding["severity"]) == ("grace_fits_lease", "warning")
    assert "slow is killed 10s after SIGTERM" in finding["says"]
    (cli.folder / "allswell.toml").write_text(f'{agent}grace = "20s"\n[fleet]\nlease = "1m"\n')
    assert cli.ok("check").out == "All's well: everything fits.\n"


def test_a_role_for_conflicts_without_an_agent_in_a_worktree_is_told(cli: Console) -> None:
    agent = '[agents.one]\ncommand = ["true", "{prompt}"]\nrole = "merger"\n'
    (cli.folder / "allswell.toml").write_text(f'bring_needs = true\nconflict_role = "merger"\n{agent}')
    (finding,) = cli.ok("check", "--json").json["findings"]
    assert (finding["rule"], finding["severity"], finding["place"]["line"]) == ("role_of_nobody", "warning", 2)
    assert finding["says"] == "conflict_role is 'merger', and no agent with this role works in a worktree."
    (cli.folder / "allswell.toml").write_text(f'conflict_role = "merger"\n{agent}worktree = true\n')
    assert cli.ok("check").out == "All's well: everything fits.\n"


@pytest.mark.row("M1")
def test_a_role_that_nobody_has_is_never_refused_and_is_told(cli: Console) -> None:
    agents = '[agents.ops]\ncommand = ["true", "{prompt}"]\nrole = "ops"\n'
    (cli.folder / "allswell.toml").write_text(f'{agents}[roles.reviewer]\nidle = "9m"\n')
    cli.submit("mine")
    cli.claim("ada")
    cli.ok("request", "role:ops", "who is on call?", "--kind", "handoff", "--no-wait")
    for summary in ("look at this", "and at this"):
        cli.ok("request", "role:reveiwer", summary, "--kind", "handoff", "--no-wait")
    found = cli.ok("check", "--json").json["findings"]
    assert [(one["rule"], one["severity"], one["says"]) for one in found] == [
        ("role_of_nobody", "warning", "2 requests are open for the role 'reveiwer', and no known agent has it."),
        ("role_of_nobody", "warning", "There are settings for the role 'reviewer', and none of the agents has it."),
    ]
    assert found[1]["place"]["line"] == 5
    assert "[agents.NAME] role = 'reveiwer'" in cli.ok("check").out
    (cli.folder / "allswell.toml").write_text('[agents.anyone]\ncommand = ["true", "{prompt}"]\n')
    assert cli.ok("check").out == "All's well: everything fits.\n"


@pytest.mark.row("O6")
@pytest.mark.parametrize(
    "usage, accounts, says",
    [
        ("", ("ada", "grace"), "does not say on which account it reports, and the agents have 2 accounts (ada, grace)"),
        ('account = "ada"\n', ("ada", "grace"), None),
        ("", ("ada", "ada"), None),
        ('account = "adda"\n', ("ada", "ada"), "reports on the account 'adda', and no agent uses it"),
    ],
)
def test_a_usage_source_says_whose_session_it_tells_of(
    cli: Console, usage: str, accounts: tuple[str, str], says: str | None
) -> None:
    agents = [
        f'[agents.{name}]\ncommand = ["x", "{{prompt}}"]\nworktree = true\naccount = "{account}"\n'
        for name, account in zip(("one", "two"), accounts, strict=True)
    ]
    (cli.folder / "allswell.toml").write_text(f'[usage]\ncommand = ["./usage.sh"]\n{usage}' + "".join(agents))
    findings = cli.ok("check", "--config", "--json").json["findings"]
    assert [one["rule"] for one in findings] == ([] if says is None else ["session_of_whom"])
    if says is not None:
        assert says in findings[0]["says"]
        assert findings[0]["place"]["line"] in (2, 3)
