"""The flows in examples/ run as they stand, with the real command."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from allswell.testing.provider import Fail, Provider, Reply, rate_limited
from tests.interfaces.cli.upkeep import run

EXAMPLES = Path(__file__).parents[2] / "examples"


def copy(name: str, into: Path) -> Path:
    """The example in a folder of its own."""
    folder = into / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns(".allswell", "__pycache__", "site*"))
    return folder


def test_a_repository_is_built_and_audited(tmp_path: Path) -> None:
    folder = copy("build-and-audit", tmp_path)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    for args in (("init", "-q"), ("add", "."), ("commit", "-qm", "The first <line>")):
        subprocess.run([*git, *args], cwd=folder, check=True)
    ran = run("run", "flow.yaml", "-i", "title=Our project", cwd=folder)
    assert ran.code == 0, ran.out + ran.err
    assert "build did not pass its audit" in ran.out
    page = (folder / "site" / "index.html").read_text()
    assert '<html lang="en"><title>Our project</title><ul><li>The first &lt;line&gt;</li>' in page
    assert (folder / "site.tar.gz").stat().st_size > 0


@pytest.mark.row("F4")
def test_questions_are_put_to_a_model_that_has_its_moods(tmp_path: Path) -> None:
    folder = copy("research", tmp_path)
    with Provider() as provider:
        provider.script(Fail(503), rate_limited("1"), Reply("It is old."))
        ran = run("run", "flow.yaml", "--json", "-i", f"url={provider.url}", cwd=folder)
        asked = len(provider.requests)
    assert ran.code == 0, ran.out + ran.err
    assert set(json.loads(ran.out)["steps"].values()) == {"done"}
    assert asked == 6, "four questions, two of them asked again"
    page = (folder / "answers.md").read_text()
    assert page.startswith("# night watches\n\n## What is the history of night watches?\n\n")
    assert page.count("All's well.") + page.count("It is old.") == 4
    flow = next((folder / ".allswell" / "runs").iterdir()) / "research"
    receipts = [json.loads(path.read_text()) for path in flow.glob("receipts/ask*.json")]
    assert [one["tokens"] for one in receipts] == [{"prompt": 1, "completion": 1, "total": 2}] * 4
    said = [json.loads((folder / one["transcript_path"]).read_text()) for one in receipts]
    assert {one["request"]["messages"][0]["content"].split()[0] for one in said} == {"What"}
    assert json.loads(next(flow.glob("receipts/gather*.json")).read_text())["tokens"] is None
