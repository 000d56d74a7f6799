"""Three builders and an auditor build four components in a git repository, over a chat server.

    python examples/build/over_chat.py FOLDER

A repository is made in FOLDER. Every part is a process of its own: a coordinator, three `allswell build-agent` with
`build.sh`, an `allswell audit-agent` with `audit.sh`. The pages fail their first audit for want of tests. What is said
is printed at the end. The chat server is the one for tests (`allswell.testing.chat`); any AgentChat server will do.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from allswell.testing.chat import ChatRules, ChatServer

HERE = Path(__file__).parent
PATIENCE = 240


def main(folder: Path) -> int:
    """Build it; 0 if everything is merged."""
    project = folder / "project"
    project.mkdir(parents=True)
    shutil.copytree(HERE / "components", project / "components")
    for script in ("build.sh", "audit.sh"):
        shutil.copy(HERE / script, project)
    (project / ".gitignore").write_text(".allswell/\n")
    who = ("-c", "user.name=you", "-c", "user.email=you@example.org")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*who, "commit", "-q", "-m", "The spec")):
        subprocess.run(["git", *words], cwd=project, check=True)

    running: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> None:
        command = [sys.executable, "-m", "allswell", *words]
        running.append(subprocess.Popen(command, cwd=project, stdout=subprocess.DEVNULL))

    with ChatServer(ChatRules(spacing=100)) as server:
        try:
            start("coordinate", "components", "--chat", server.url, "--key", str(folder / "coordinator.pem"))
            offered = server.wait_for(lambda said: said.content.startswith("TASKS"), PATIENCE)
            place = ("--chat", server.url, "--coordinator", offered.who)
            for name in ("ann", "bob", "cat"):
                trees = ("--worktrees", str(folder / "trees"), "--key", str(folder / f"{name}.pem"))
                start("build-agent", *place, *trees, "--name", name, "--", "sh", str(project / "build.sh"))
            start("audit-agent", *place, "--key", str(folder / "eve.pem"), "--", "sh", str(project / "audit.sh"))
            server.wait_for(lambda said: "BUILD COMPLETE" in said.content, PATIENCE)
            codes = [process.wait(60) for process in running]
        finally:
            for process in running:
                process.kill()
                process.wait(20)
        for said in server.said:
            for line in said.content.split("\n"):
                print(f"{said.who}  {line}")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
