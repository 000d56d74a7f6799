"""What lies in `.allswell/` is for its user alone; what was made before this was so is mended by its owner."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from allswell.errors import Refused
from allswell.runtime.workspace.worktree import make_worktree
from allswell.store.notifier import TransportLost
from allswell.store.sqlite import SqliteStore
from allswell.store.sqlite.paths import prepare
from allswell.store.sqlite.transport import DatagramTransport
from tests.interfaces.cli.console import Console
from tests.runtime.workspace.repository import make as make_repository
from tests.security.unprivileged import ASIDE, NOBODY, as_root, can, put


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_umask")
def test_the_state_folder_and_the_database_are_the_users_alone(cli: Console, tmp_path: Path) -> None:
    cli.ok("submit", "with a key", "--payload", '"sk-secret"')
    folder = tmp_path / ".allswell"
    assert mode(folder) == 0o700
    seen = {path.name: mode(path) for path in folder.iterdir() if path.name.startswith("allswell.db")}
    assert set(seen.values()) == {0o600}, seen
    named = tmp_path / "own" / "watch.db"
    named.parent.mkdir()
    cli.ok("submit", "elsewhere", "--store", f"sqlite:///{named}")
    assert (mode(named), mode(named.parent)) == (0o600, 0o755), "a folder that is not ours stays as it is"


@pytest.mark.usefixtures("usual_umask")
def test_a_store_from_before_is_closed_by_its_owner_while_it_is_used(cli: Console, tmp_path: Path) -> None:
    cli.ok("submit", "old")
    folder = tmp_path / ".allswell"

    def open_up() -> None:
        folder.chmod(0o755)
        for path in folder.glob("allswell.db*"):
            path.chmod(0o644)

    open_up()
    cli.ok("tasks")
    assert (mode(folder), mode(folder / "allswell.db")) == (0o700, 0o600), "by looking, too"
    open_up()

    async def look() -> dict[str, int]:
        store = SqliteStore(folder / "allswell.db")
        await store.open()
        try:
            return {path.name: mode(path) for path in folder.glob("allswell.db*") if path.is_file()}
        finally:
            await store.close()

    seen = asyncio.run(look())
    assert seen.keys() >= {"allswell.db", "allswell.db-wal", "allswell.db-shm", "allswell.db.next", "allswell.db.turn"}
    assert set(seen.values()) == {0o600}, seen
    assert mode(folder) == 0o700
    assert len(cli.ok("tasks", "--json").json["tasks"]) == 1


@pytest.mark.usefixtures("usual_umask")
def test_a_backup_is_the_users_alone_too(tmp_path: Path) -> None:
    async def copy() -> None:
        store = SqliteStore(tmp_path / "a.db")
        await store.open()
        try:
            await store.backup(tmp_path / "copy.db")
        finally:
            await store.close()

    asyncio.run(copy())
    assert mode(tmp_path / "copy.db") == 0o600


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_a_link_in_the_place_of_a_file_of_the_database_is_not_written_through(tmp_path: Path, end: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("as it was")
    (tmp_path / f"a.db{end}").symlink_to(precious)
    with pytest.raises(Refused, match="no plain file"):
        asyncio.run(SqliteStore(tmp_path / "a.db").open())
    assert precious.read_text() == "as it was"


_MOVES_OURS_AWAY = """
mv .allswell moved
ln -s "$1" .allswell
echo bytes of an agent
exit 3
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run an agent as another user")
def test_a_supervisor_of_root_writes_nothing_elsewhere_for_an_agent_that_plants_a_link(theirs: Path) -> None:
    """The agent owns the folder around `.allswell`, moves ours away and puts a link to a folder of root's there."""
    with tempfile.TemporaryDirectory(prefix="allswell-test-roots-") as roots:
        put(theirs / "agent.sh", _MOVES_OURS_AWAY)
        command = [*ASIDE, "sh", "agent.sh", roots]
        ran = as_root("run", "--", *command, cwd=theirs)
        assert (theirs / ".allswell").is_symlink(), ran
        assert list(Path(roots).rglob("*")) == [], ran
        kept = [path.read_bytes() for path in (theirs / "moved").rglob("*") if path.is_file()]
        assert any(b"bytes of an agent" in content for content in kept), "it was kept where it belongs"
        again = as_root("run", "--", "true", cwd=theirs)
        assert (again.returncode, "link of another user" in again.stderr) == (2, True), again
        assert list(Path(roots).rglob("*")) == []
        assert "Traceback" not in ran.stderr + again.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run an agent as another user")
@pytest.mark.parametrize("verify", ["sh check.sh", "env sh check.sh"])
def test_what_verifies_the_work_of_another_users_agent_runs_as_that_user(theirs: Path, verify: str) -> None:
    """It finds tests and Makefiles that the agent may have written: as root they would have the whole machine."""
    put(theirs / "agent.sh", "echo 'id -u > who; exit 0' > check.sh")
    ran = as_root("run", "--verify", verify, "--", *ASIDE, "sh", "agent.sh", cwd=theirs)
    assert ran.returncode == 0, ran
    assert (theirs / "who").read_text().strip() == str(NOBODY)
    own = as_root("run", "--verify", "setpriv --reuid=0 -- sh check.sh", "--", *ASIDE, "sh", "agent.sh", cwd=theirs)
    assert own.returncode == 0, own
    assert (theirs / "who").read_text().strip() == "0", "whoever names a user means that one"


ACP_AGENT = """\
echo 'id -u > who; exit 0' > check.sh
while read -r line; do
    id=$(printf %s "$line" | sed 's/.*"id":\\([0-9]*\\).*/\\1/')
    case "$line" in
    *'"initialize"'*) answer='"protocolVersion": 1' ;;
    *'"session/new"'*) answer='"sessionId": "s_1"' ;;
    *) answer='"stopReason": "end_turn"' ;;
    esac
    echo "{\\"jsonrpc\\": \\"2.0\\", \\"id\\": $id, \\"result\\": {$answer}}"
done
"""
"""An agent that speaks ACP: it leaves what verifies its work, and is done."""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run an agent as another user")
def test_what_verifies_the_work_of_another_users_acp_agent_runs_as_that_user(theirs: Path) -> None:
    """Our client stands before the words of such an agent, and those say whose work it is all the same."""
    put(theirs / "agent.sh", ACP_AGENT)
    words = [*ASIDE, "/bin/sh", "agent.sh"]
    (theirs / "allswell.toml").write_text(f"[agents.eve]\nrole = 'eve'\nacp = {words}\n")
    assert as_root("submit", "look", "--role", "eve", "--verify", "sh check.sh", cwd=theirs).returncode == 0
    ran = as_root("up", "--drain", cwd=theirs)
    assert (theirs / "who").exists(), ran
    assert (theirs / "who").read_text().strip() == str(NOBODY)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run an agent as another user")
def test_no_filter_of_an_agents_repository_runs_as_root(theirs: Path) -> None:
    """A worktree is checked out by git, which runs what the repository names: as the agent, or not at all."""
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    put(theirs / ".gitattributes", "a filter=evil\n")
    put(theirs / "a", "a\n")
    assert can("sh", "-c", f"cd {theirs} && git init -q && git add . && {' '.join(git)} commit -q -m first")
    assert can("git", "-C", str(theirs), "config", "filter.evil.smudge", f"sh -c 'id -u >> {theirs}/who; cat'")
    ran = as_root("run", "--worktree", "--", *ASIDE, "true", cwd=theirs)
    assert "Traceback" not in ran.stderr
    assert "0" not in ((theirs / "who").read_text().split() if (theirs / "who").exists() else []), ran


def test_a_folder_that_was_exchanged_meanwhile_is_not_taken_for_the_one_that_was_checked(tmp_path: Path) -> None:
    held = prepare(tmp_path / "s" / "a.db")
    held.check()
    (tmp_path / "s").rename(tmp_path / "moved")
    (tmp_path / "s").mkdir()
    with pytest.raises(Refused, match="exchanged"):
        held.check()
    held.let_go()


def test_no_folder_for_calls_is_made_through_a_folder_that_was_exchanged(tmp_path: Path) -> None:
    """A process that comes to hear calls while a link stands in the place of the store's folder makes nothing there."""
    held = prepare(tmp_path / "s" / "a.db")
    (tmp_path / "s").rename(tmp_path / "moved")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "s").symlink_to(tmp_path / "elsewhere")
    transport = DatagramTransport(tmp_path / "s" / "a.db", held.fileno())
    with pytest.raises(TransportLost):
        transport.open(hearing=True)
    assert [*(tmp_path / "elsewhere").iterdir()] == []
    transport.let_go()
    held.let_go()


def test_no_worktree_is_made_through_a_folder_that_was_exchanged(tmp_path: Path) -> None:
    """Git goes by the path, so that is looked at first: a folder in the place of ours gets no worktree."""
    repository, elsewhere = tmp_path / "repository", tmp_path / "elsewhere"
    elsewhere.mkdir()
    make_repository(repository, a="a")
    place = repository / ".allswell" / "worktrees"
    assert make_worktree(repository, place, "t_first").path.exists()
    (repository / ".allswell").rename(repository / "moved")
    (repository / ".allswell").symlink_to(elsewhere)
    with pytest.raises(Refused, match="exchanged"):
        make_worktree(repository, place, "t_second")
    assert list(elsewhere.rglob("*")) == []
    (elsewhere / "worktrees" / "t_planted" / ".git").mkdir(parents=True)
    with pytest.raises(Refused, match="exchanged"):
        make_worktree(repository, place, "t_planted")
