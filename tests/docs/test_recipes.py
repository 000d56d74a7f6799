"""The recipes and the README's example run as they stand, each in a folder of its own.

Shell recipes are run by bash with the real command, so that what is around it (pipes, exit codes, the environment) is
proved too. Blocks marked `console` need what a test does not have; their commands are not run.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def found(text: str, language: str) -> list[str]:
    """The blocks of a page that are in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run(*command: str, folder: Path, **more: str) -> str:
    """Run a program as a reader would; what it printed, if it went well."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ALLSWELL_")}
    ours = os.pathsep.join((str(Path(sys.executable).parent), clean["PATH"]))
    done = subprocess.run(
        command, cwd=folder, env={**clean, "PATH": ours, **more}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("script", found(RECIPES, "sh"), ids=lambda script: script.split("\n")[0][:40])
def test_a_shell_recipe_runs(script: str, tmp_path: Path) -> None:
    if "jq " in script and not shutil.which("jq"):
        pytest.skip("jq is not installed")
    for settings in found(RECIPES, "toml"):
        (tmp_path / "allswell.toml").write_text(settings, encoding="utf-8")
    assert run("bash", "-euo", "pipefail", "-c", script, folder=tmp_path)


@pytest.mark.parametrize("script", found(RECIPES, "python"), ids=lambda script: script.split("\n")[-2][:40])
def test_a_python_recipe_runs(script: str, tmp_path: Path) -> None:
    run(sys.executable, "-W", "error", "-c", script, folder=tmp_path)


def test_the_examples_of_the_readme_run(tmp_path: Path) -> None:
    lasting, watching, guarding = found(README, "python")
    run(sys.executable, "-W", "error", "-c", watching, folder=tmp_path, ALLSWELL_STORE="memory:")
    assert run(sys.executable, "-W", "error", "-c", guarding, folder=tmp_path) == "ALL IS WELL\n"
    assert list(tmp_path.iterdir()) == []
    for _ in ("first", "again"):
        assert run(sys.executable, "-W", "error", "-c", lasting, folder=tmp_path) == "['A', 'B', 'C']\n"


def test_the_files_of_the_readme_are_right(tmp_path: Path) -> None:
    (flow,) = found(README, "yaml")
    (settings,) = found(README, "toml")
    (tmp_path / "release.yaml").write_text(flow, encoding="utf-8")
    (tmp_path / "allswell.toml").write_text(settings, encoding="utf-8")
    assert "All's well" in run("allswell", "check", "release.yaml", folder=tmp_path)
    assert "claude" in run("allswell", "agents", folder=tmp_path, ALLSWELL_STORE="memory:")


def test_the_readme_in_the_shell(tmp_path: Path) -> None:
    (script,) = (script for script in found(README, "sh") if "allswell submit" in script)
    assert "All's well." in run("bash", "-euo", "pipefail", "-c", script, folder=tmp_path)


def test_every_link_leads_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        assert [target for target in targets if not (page.parent / target).exists()] == [], page.name
