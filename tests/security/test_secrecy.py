"""What a supervisor knows, its agents cannot read in /proc; and what others cannot read in the store's folder."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import zlib
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from allswell.domain.access.key import secret_of, written
from allswell.domain.worker.limits import Layers
from allswell.errors import AWAY, Refused, Unavailable, unavailable_outward, without_place
from allswell.runtime.attempt.control import error_reply
from allswell.runtime.host import packed, take_over
from allswell.testing.postgres import Cluster
from allswell.worker.handlers import WorkerPlan
from allswell.worker.process import ProcessOrder
from allswell.worker.supervisor import ChildProcess
from tests import patience
from tests.interfaces.cli.console import Console
from tests.interfaces.cli.shell import Shell
from tests.interfaces.cli.sitting import Sitting
from tests.interfaces.http.served import serving
from tests.runtime.process.stage import until
from tests.runtime.workspace.repository import git, make
from tests.security.unprivileged import ASIDE, NOBODY, allswell, as_nobody, as_root, can, give, put, running

_SECRET = "sk-of-the-supervisor"


def test_agents_cannot_read_what_their_supervisor_knows_and_are_readable_themselves(theirs: Path) -> None:
    put(theirs / "agent.sh", "echo $$ > pid.tmp; mv pid.tmp pid; while [ ! -e go ]; do sleep 0.05; done")
    with running("run", "--clean-env", "--", "sh", "agent.sh", cwd=theirs, DATABASE_PASSWORD=_SECRET) as supervisor:
        until((theirs / "pid").exists)
        agent = (theirs / "pid").read_text().strip()
        for pid, readable in ((agent, True), (str(supervisor.pid), False)):
            assert can("cat", f"/proc/{pid}/environ") is readable
            assert can("readlink", f"/proc/{pid}/cwd") is readable
            assert can("ls", f"/proc/{pid}/map_files") is readable
        found = Path("/proc", agent, "environ").read_bytes()
        assert b"ALLSWELL_MARKER=" in found, "by which a later supervisor finds what is left"
        assert _SECRET.encode() not in found
        (theirs / "go").touch()
        assert supervisor.wait(patience.SECONDS) == 0
    assert allswell("tasks", "--all", cwd=theirs).returncode == 0


@pytest.mark.parametrize(
    "command",
    [["serve", "--listen", "127.0.0.1:0"], ["watch"], ["mcp"], ["up", "--serve=127.0.0.1:0"]],
    ids=["serve", "watch", "mcp", "up --serve"],
)
def test_what_runs_for_long_keeps_its_environment_to_itself(theirs: Path, command: list[str]) -> None:
    """An agent of the same user reads neither the store's password nor a key in `/proc`, of children neither."""
    assert allswell("submit", "x", cwd=theirs).returncode == 0
    put(theirs / "allswell.toml", '[agents.a]\ncommand = ["echo", "{prompt}"]\nrole = "none"\n')
    url = f"sqlite:///{theirs}/.allswell/allswell.db"
    with running(*command, cwd=theirs, ALLSWELL_STORE=url, PGPASSWORD=_SECRET) as process:
        until(lambda: len(_ours(process.pid)) >= (2 if command[0] == "up" else 1))
        until(lambda: not any(can("cat", f"/proc/{pid}/environ") for pid in _ours(process.pid)))
        for child in _ours(process.pid)[1:] if os.geteuid() == 0 else ():
            # Whoever ends it can read the next one's before that has closed itself: there is nothing in it.
            assert _SECRET.encode() not in Path(f"/proc/{child}/environ").read_bytes()


def _ours(pid: int) -> list[int]:
    """A process and those of its children that know what it knows: not the warden, which is given nothing."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [child for task in tasks for child in (task / "children").read_text().split()]
    return [pid, *[int(one) for one in children if b"interfaces.http.sidecar" in _command_of(one)]]


def _command_of(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # it has ended meanwhile


def test_a_process_of_a_worker_is_started_with_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has them all the same, for its handlers: by a pipe."""
    monkeypatch.setenv("PGPASSWORD", _SECRET)
    plan = WorkerPlan("postgresql://nobody@127.0.0.1:1/none", "q", Layers(900, 1, 5.0, 1.0, 4))
    child = ChildProcess(ProcessOrder("tests.worker.jobs:handlers", str(Path.cwd()), plan))
    try:
        assert _SECRET.encode() not in Path(f"/proc/{child.process.pid}/environ").read_bytes()
    finally:
        child.process.kill()
        child.process.wait()
        child.close()
    monkeypatch.delenv("PGPASSWORD")
    take_over(packed({"PGPASSWORD": f"{_SECRET}=\udcff\n"}))
    assert os.environ["PGPASSWORD"] == f"{_SECRET}=\udcff\n"


_LOOKS_AT_GUARDS = """
import pathlib
for one in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if b"read -r word" in (one / "cmdline").read_bytes():
            print("guard", SECRET in (one / "environ").read_bytes())
    except OSError:
        pass
print("looked at all")
"""


def test_what_puts_a_terminal_back_knows_no_secret(tmp_path: Path) -> None:
    """It runs beside a command that has a terminal, and every process of the same user can read its environment."""
    (tmp_path / "look.py").write_text(_LOOKS_AT_GUARDS.replace("SECRET", repr(_SECRET.encode())))
    shell = Shell(tmp_path, "secrecy", {"DATABASE_PASSWORD": _SECRET})
    sitting = Sitting(shell, "run", "--clean-env", "--", sys.executable, "look.py")
    try:
        sitting.sees("looked at all")
        seen = sitting.ends(0)
    finally:
        sitting.close()
    assert ("guard False" in seen, "guard True" in seen) == (True, False), seen


def test_another_user_can_neither_read_a_store_nor_hold_it_up(
    theirs: Path, cli: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:
        os.chown(theirs, 0, 0)  # ours again, and everybody can enter it: the modes of the files must do
    theirs.chmod(0o755)
    monkeypatch.chdir(theirs)
    cli.ok("submit", "with a key", "--payload", '"sk-secret"', "--store", f"sqlite:///{theirs}/x.db")
    stopped = "PermissionError" if os.geteuid() == 0 else "done"  # who is nobody else can do what the owner can
    for end in ("", ".next", ".turn"):
        file = Path(f"{theirs}/x.db{end}")
        assert as_nobody(file.read_bytes) == stopped
        assert as_nobody(lambda file=file: _lock(file)) == stopped  # type: ignore[misc]
    assert cli.ok("tasks", "--json", "--store", f"sqlite:///{theirs}/x.db").json["tasks"]


def _lock(file: Path) -> None:
    with file.open("rb") as opened:
        flock(opened, LOCK_EX | LOCK_NB)


_LISTENER = """
import os, socket, sys
os.setgid(65534)
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as made:
    made.bind(sys.argv[1])
    os.chmod(sys.argv[1], 0o666)
    made.listen()
    print("listens", flush=True)
    line, _ = made.accept()
    print(line.recv(4096).decode(), flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can listen as another user")
def test_a_key_is_sent_to_no_socket_of_another_users(theirs: Path) -> None:
    """Where a server listened in a folder that is open to others, another user can listen once it has ended."""
    path = theirs / "s.sock"
    theirs.chmod(0o777)
    key = written("mine", secret_of(bytes(range(32))))
    with subprocess.Popen([sys.executable, "-c", _LISTENER, str(path)], stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "listens\n"
        said = as_root("tasks", cwd=theirs, ALLSWELL_STORE=f"http+unix://{path}", ALLSWELL_KEY=key)
        heard = listener.stdout.read()
    assert (said.returncode, "a key is sent only to" in said.stderr, heard) == (2, True, "\n"), said


_OTHER = 12_345
"""A third user, neither root nor the one without rights."""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can put a repository there as another user")
@pytest.mark.parametrize("named", [False, True])
def test_no_repository_that_another_user_put_above_gets_your_files(theirs: Path, named: bool) -> None:
    """In a folder that is open to others, such as /tmp, another user can put a `.git` above yours, open to you."""
    shared, home, work = theirs / "shared", give(theirs / "home"), theirs / "shared" / "work"
    shared.mkdir()
    make(shared)
    give(work)
    put(work / "key.env", "sk-secret")
    (work / "key.env").chmod(0o600)
    for path in [shared / ".git", *(shared / ".git").rglob("*")]:
        os.chown(path, _OTHER, _OTHER)
        path.chmod(0o777)
    shared.chmod(0o1777)
    if named:  # as git has it: its user has agreed
        put(home / ".gitconfig", f"[safe]\n\tdirectory = {shared}\n")
    before = set((shared / ".git").rglob("*"))
    script = "echo more >> key.env; exit 3"
    for run in (allswell, as_root):
        ran = run("run", "--", "sh", "-c", script, cwd=work, HOME=str(home), ALLSWELL_TRUST=str(theirs))
        assert ran.returncode == 3, ran
    written = set((shared / ".git").rglob("*")) - before
    assert bool(written) == named, written
    assert named or list((work / ".allswell" / "snapshots").rglob("*")), "it is kept elsewhere"


_PLANTS = {
    "a tracked path below a link": """
        ln -s "$1" roots
        git update-index --add --cacheinfo "100644,$(git hash-object -w file),roots/secret"
    """,
    "a link in the place of the index": 'rm .git/index; ln -s "$1/secret" .git/index',
    "a git folder of root's": 'rm -r .git; echo "gitdir: $1/repository/.git" > .git',
    "a link in the place of .git": 'rm -r .git; ln -s "$1/repository/.git" .git',
    "a file that only root can read": "mv given taken",
    "a file of root's in a folder that only root can enter": """
        git update-index --add --cacheinfo "100644,$(git hash-object -w file),shut/secret"
    """,
    "a repository inside whose git folder is root's": """
        mkdir in
        echo "gitdir: $1/repository/.git" > in/.git
        echo > in/x
    """,
}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run an agent as another user")
@pytest.mark.parametrize("plant", _PLANTS.values(), ids=_PLANTS)
def test_a_snapshot_that_root_takes_shows_an_agent_no_file_of_roots(theirs: Path, plant: str) -> None:
    """What a snapshot keeps lies in the agent's own repository: only what the agent could read itself may be in it."""
    with tempfile.TemporaryDirectory(prefix="allswell-test-roots-") as roots:
        make(Path(roots) / "repository", **{"name-of-a-secret": "x"})
        (Path(roots) / "secret").write_text("a secret of root's")
        before = git(Path(roots) / "repository", "for-each-ref")
        begin = "git init -q; echo one > file; git add file; git -c user.name=n -c user.email=e commit -qm one"
        (theirs / "given").write_text("a secret of root's")
        (theirs / "given").chmod(0o600)
        (theirs / "shut").mkdir(mode=0o700)
        (theirs / "shut" / "secret").write_text("a secret of root's")
        put(theirs / "begin.sh", f"export HOME=$PWD\n{begin}\n")
        put(theirs / "agent.sh", f"export HOME=$PWD\necho two > file\n{plant}\nexit 3\n")
        assert can("sh", "-c", f"cd {theirs} && sh begin.sh")
        ran = as_root("run", "--", *ASIDE, "sh", "agent.sh", roots, cwd=theirs)
        assert (ran.returncode, "Traceback" in ran.stderr) == (3, False), ran
        kept = [path.read_bytes() for path in theirs.rglob("*") if path.is_file() and path.stat().st_uid == NOBODY]
        shown = b"".join(map(_unpacked, kept))
        assert b"a secret of root" not in shown, ran
        assert b"name-of-a-secret" not in shown, ran
        assert git(Path(roots) / "repository", "for-each-ref") == before


def _unpacked(content: bytes) -> bytes:
    """A file's bytes, and what git has packed into them."""
    shown = [content]
    for place in range(len(content)):
        if content[place] == _ZLIB:
            with contextlib.suppress(zlib.error):
                shown.append(zlib.decompressobj().decompress(content[place:]))
    return b"".join(shown)


_ZLIB = 0x78


def test_no_caller_and_no_agent_is_told_where_a_store_lies_that_is_away(tmp_path: Path) -> None:
    """What the driver says of it names host, port and database; a name that no key has was told it, too."""
    with Cluster() as cluster:
        store = cluster.create_database()
        place = urlsplit(store)
        with serving(tmp_path, store=store) as server:
            server.ok("GET", "/tasks", key="ada")
            cluster.stop("immediate")
            unknown = server.keys["ada"].replace("ada", "nobody")
            asking = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "inbox", "arguments": {}}}
            both = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
            answers = [
                server.call("GET", "/tasks", key="ada"),
                server.call("GET", "/tasks/t_x", key=unknown),
                server.call("POST", "/leases/t_x/checkin", {"token": 1, "agent": "ada"}, key="ada"),
            ]
            with contextlib.closing(server.connect()) as line:
                key = {"Authorization": f"Bearer {server.keys['ada']}"}
                line.request("POST", "/mcp", msgspec.json.encode(asking), {**both, **key})
                mcp = line.getresponse().read()
            cluster.start()
    told = [answer.body.decode() for answer in answers] + [mcp.decode()]
    assert [answer.status for answer in answers[:2]] == [503, 503]
    assert "the store cannot be reached" in told[0]
    assert "the store cannot be reached" in told[-1]
    for text in told:
        for secret in (str(place.port), place.path.strip("/"), str(place.password)):
            assert secret not in text, text


def test_an_agents_socket_tells_it_nothing_of_where_a_store_lies() -> None:
    for error in (
        Unavailable("no connection to PostgreSQL at db.example:5432/night: refused", hint="is db.example running?"),
        Refused("wrong_password", "PostgreSQL at db.example:5432/night refused the login", where="store"),
        Refused("not_a_database", "/home/ada/db.example is not an SQLite database", where="store"),
    ):
        reply = error_reply(error)
        assert (reply.error, "db.example" in str(reply)) == ("Unavailable", False), reply
    counted = without_place(unavailable_outward("db.example is away; 3 of 9", outward=f"{AWAY}; 3 of 9"))
    assert "3 of 9" in str(counted)
