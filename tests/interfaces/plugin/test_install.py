"""`allswell init claude` and `codex`: the plugin is one folder, and is taken away again without a trace."""

from pathlib import Path

import pytest

from tests.interfaces.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Somebody with a home of their own."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    folder = tmp_path / "folder"
    folder.mkdir()
    return Shell(folder, "none")


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


FILES = [".claude-plugin/plugin.json", "hooks/hook.py", "hooks/hooks.json"]


def test_it_is_installed_again_and_again_and_taken_away_without_a_trace(shell: Shell, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".claude").mkdir()
    (home / ".claude" / "settings.json").write_text("{}")
    plugin = home / ".claude" / "skills" / "allswell"
    assert str(plugin) in shell("init", "claude", "--dry-run").stdout
    assert below(home) == [".claude/settings.json"]
    for _ in range(2):
        shell("init", "claude")
        assert below(plugin) == FILES
    with_tools = shell.json("init", "claude", "--tools")
    assert (with_tools["path"], with_tools["changed"]) == (str(plugin), True)
    assert below(plugin) == sorted([*FILES, ".mcp.json", "skills/night-watch/SKILL.md"])
    assert "would be removed" in shell("init", "claude", "--undo", "--dry-run").stdout
    assert plugin.is_dir()
    assert "is removed" in shell("init", "claude", "--undo").stdout
    assert below(home) == [".claude/settings.json"]
    assert "nothing was installed" in shell("init", "claude", "--undo").stdout
    assert not (shell.folder / "allswell.toml").exists()


def codex_on_path(shell: Shell, script: str = "exit 0") -> Path:
    """Stands in for Codex, whose own scenes are in tests/clients: what it was told is in the file."""
    folder = shell.folder.parent / "bin"
    folder.mkdir(exist_ok=True)
    told = folder / "told"
    (folder / "codex").write_text(f'#!/bin/sh\necho "$*" >> {told}\n{script}\n')
    (folder / "codex").chmod(0o755)
    shell.variables["PATH"] = f"{folder}:{shell.env['PATH']}"
    return told


def test_codex_is_told_by_its_own_commands_and_its_settings_are_its_own(shell: Shell, tmp_path: Path) -> None:
    told, home = codex_on_path(shell), tmp_path / "home"
    plugin = home / ".codex" / "allswell"
    dry = shell("init", "codex", "--dry-run").stdout
    assert f"codex plugin marketplace add {plugin} would be run\ncodex plugin add allswell@allswell would be run" in dry
    assert not told.exists()
    assert below(home) == []
    for _ in range(2):
        said = shell("init", "codex").stdout
        assert "Codex runs its hooks once you trust them: start codex, and choose “Trust all and continue”" in said
        files = [".agents/plugins/marketplace.json", "plugin/.codex-plugin/plugin.json"]
        assert below(plugin) == [*files, "plugin/hooks/hook.py", "plugin/hooks/hooks.json"]
    add = [f"plugin marketplace add {plugin}", "plugin add allswell@allswell"]
    assert told.read_text().splitlines() == add * 2
    shell("init", "codex", "--tools")
    assert {"plugin/.mcp.json", "plugin/skills/night-watch/SKILL.md"} <= set(below(plugin))
    told.unlink()
    assert "is removed" in shell("init", "codex", "--undo").stdout
    assert told.read_text().splitlines() == [
        add[0],
        "plugin remove allswell@allswell",
        "plugin marketplace remove allswell",
    ]
    assert below(home) == []
    assert "nothing was installed" in shell("init", "codex", "--undo").stdout


def test_where_codex_does_not_take_it_its_own_words_say_why(shell: Shell, tmp_path: Path) -> None:
    shell.variables["PATH"] = "/nowhere"
    assert "there is no program 'codex' on PATH" in shell("init", "codex", code=2).stderr
    assert below(tmp_path / "home") == []
    del shell.variables["PATH"]
    codex_on_path(shell, "printf 'WARNING: old\\nError: plugins are disabled\\n  0: <unknown>\\n' >&2; exit 1")
    said = shell("init", "codex", code=2).stderr
    assert "did not work: Error: plugins are disabled" in " ".join(said.split())
    codex_on_path(shell)
    shell("init", "codex", "--undo")
    assert below(tmp_path / "home") == []


def test_what_is_something_else_is_left_as_it_is(shell: Shell, tmp_path: Path) -> None:
    skills = tmp_path / "home" / ".claude" / "skills"
    elsewhere = tmp_path / "elsewhere"
    for folder in (skills, elsewhere):
        folder.mkdir(parents=True)
    (skills / "allswell").symlink_to(elsewhere)
    for words in (["init", "claude"], ["init", "claude", "--undo"]):
        assert "is something else than this plugin" in shell(*words, code=2).stderr
    (skills / "allswell").unlink()
    (skills / "allswell").mkdir()
    (skills / "allswell" / "SKILL.md").write_text("mine")
    assert "nothing is overwritten" in shell("init", "claude", code=2).stderr
    assert (skills / "allswell" / "SKILL.md").read_text() == "mine"
    skills.chmod(0o777)
    assert "other users can write to it" in shell("init", "claude", code=2).stderr
    skills.chmod(0o755)


def test_flags_of_the_plugin_name_its_program(shell: Shell) -> None:
    for flag in ("--undo", "--tools"):
        assert "name its program" in shell("init", flag, code=2).stderr
    assert "CLIENT" in shell("init", "emacs", code=2).stderr
