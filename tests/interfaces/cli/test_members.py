"""`build-agent` and `audit-agent`: scripts build a small project in a git repository, over a chat server (C2, C8)."""

import subprocess
import sys
from pathlib import Path

import pytest

from allswell.testing.chat import ChatRules, ChatServer
from tests.interfaces.views.outside import check
from tests.runtime.attempt.stage import git

SPEC = "name: shop\ncomponents:\n  - name: db\n  - name: api\n    depends on: [db]\n"
BUILD = """\
set -e
echo "$BUILD_COMPONENT $BUILD_AUDIT" >> made
git add made
git -c user.name=b -c user.email=b@x commit -q -m "$BUILD_COMPONENT"
echo working
echo "https://x/$BUILD_COMPONENT/$(wc -l < made | tr -d ' ')"
"""
AUDIT = """\
case "$BUILD_URL" in
  */api/1) echo "no tests"; exit 1 ;;
  *) test -n "$BUILD_BUILDER" ;;
esac
"""


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "allswell", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.row("C2", "C8")
def test_a_project_is_built_by_scripts_over_a_chat(tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    git("init", "-q", "-b", "main", cwd=folder)
    for name, text in {"spec.yaml": SPEC, "build.sh": BUILD, "audit.sh": AUDIT, ".gitignore": ".allswell/\n"}.items():
        (folder / name).write_text(text)
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", "first", cwd=folder)
    with ChatServer(ChatRules(spacing=100)) as server:
        chat: tuple[str, ...] = ("--chat", server.url)
        running = [start(folder, "coordinate", "spec.yaml", *chat, "--key", str(tmp_path / "c.pem"))]
        try:
            offered = server.wait_for(lambda said: said.content.startswith("TASKS shop db"), 60)
            chat = (*chat, "--coordinator", offered.who)
            build = ("build-agent", *chat, "--key", str(tmp_path / "b.pem"), "--worktrees", str(tmp_path / "trees"))
            running.append(start(folder, *build, "--", "sh", str(folder / "build.sh")))
            audit = ("audit-agent", *chat, "--key", str(tmp_path / "a.pem"), "--json")
            running.append(start(folder, *audit, "--", "sh", str(folder / "audit.sh")))
            server.wait_for(lambda said: "BUILD COMPLETE shop" in said.content, 120)
            ended = [process.communicate(timeout=60) for process in running]
        finally:
            for process in running:
                process.kill()
                process.wait(20)
        assert [process.returncode for process in running] == [0, 0, 0], ended
        assert {check("audit-agent", line) for line in ended[2][0].splitlines()} == {"Said"}
        said = [line for one in server.said for line in one.content.split("\n")]
    assert "AUDIT api FAIL no tests" in said
    assert [line for line in said if line.startswith("READY")] == [
        "READY db https://x/db/1",
        "READY api https://x/api/1",
        "READY api https://x/api/2",
    ]
    assert (tmp_path / "trees" / "api" / "made").read_text() == "api \napi no tests\n"
    branches = git("branch", "--format=%(refname:short)", cwd=folder)
    assert {"build/api", "build/db"} <= set(str(branches).split())


@pytest.mark.parametrize(
    "words, told",
    [
        (["build-agent", "--chat", "ws://x"], "which command?"),
        (["build-agent", "--chat", "http://x", "--", "true"], "is not an address of a chat server"),
        (["build-agent", "--chat", "ws://x", "--pr-url", "nowhere", "--", "true"], "'nowhere' is not an address"),
        (["audit-agent", "--chat", "ws://x", "--idle", "soon", "--", "true"], "--idle 'soon' is not a duration"),
        (["audit-agent", "--chat", "ws://x", "--channel", "here", "--", "true"], "is not a channel"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, words: list[str], told: str) -> None:
    process = start(tmp_path, *words)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert told in err
