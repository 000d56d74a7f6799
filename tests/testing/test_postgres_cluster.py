"""The throwaway PostgreSQL server keeps its word: durable, closed to strangers, and gone afterwards."""

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from allswell.testing import postgres
from allswell.testing.postgres import Cluster, ServerFailed, find_binaries


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A cluster for tests that stop it; each of them leaves it running."""
    with Cluster() as cluster:
        yield cluster


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def processes_in(folder: Path) -> list[str]:
    """Command lines of all processes that work in a folder or name it."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            where = str((entry / "cwd").readlink())
        except OSError:
            continue
        if str(folder) in command or where.startswith(str(folder)):
            found.append(command)
    return found


def await_end(pid: int) -> None:
    """Block until a process has ended; one that is gone already counts."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended, _, _ = select.select([descriptor], [], [], 30)
    finally:
        os.close(descriptor)
    assert ended, f"process {pid} is still there"


def test_a_fresh_database_is_durable_utf8_and_not_for_superusers(pg_url: str) -> None:
    assert execute(pg_url, "SHOW fsync") == [("on",)]
    assert execute(pg_url, "SHOW server_encoding") == [("UTF8",)]
    assert execute(pg_url, "SHOW is_superuser") == [("off",)]
    execute(pg_url, "CREATE TABLE task (id int)")


def test_the_superuser_is_at_hand(pg_cluster: Cluster) -> None:
    assert execute(pg_cluster.admin_url(), "SHOW is_superuser") == [("on",)]


def test_two_databases_are_separate(pg_cluster: Cluster) -> None:
    one, other = pg_cluster.create_database(), pg_cluster.create_database()
    execute(one, "CREATE TABLE only_here (id int)")
    with pytest.raises(psycopg.errors.UndefinedTable):
        execute(other, "SELECT * FROM only_here")


def test_a_dropped_database_ends_its_connections(pg_cluster: Cluster) -> None:
    url = pg_cluster.create_database()
    with psycopg.connect(url) as connection:
        pg_cluster.drop_database(url)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        execute(url, "SELECT 1")


def test_a_wrong_password_is_refused(pg_cluster: Cluster, pg_url: str) -> None:
    wrong = re.sub(r":\w+@", ":wrong@", pg_url)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_the_socket_asks_for_a_password_too(pg_cluster: Cluster) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(
            host=str(pg_cluster.folder),
            port=pg_cluster.port,
            user="postgres",
            password="wrong",
            dbname="postgres",
        )


def test_what_was_committed_survives_kill_and_what_was_not_does_not(own_cluster: Cluster) -> None:
    url = own_cluster.create_database()
    execute(url, "CREATE TABLE note (text text)")
    execute(url, "INSERT INTO note VALUES ('committed')")
    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO note VALUES ('open')")
        own_cluster.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert not [command for command in processes_in(own_cluster.folder) if "postgres" in command.split()[0]]
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(url)
    own_cluster.start()
    assert execute(url, "SELECT text FROM note") == [("committed",)]


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_keeps_urls_and_rows(own_cluster: Cluster, mode: str) -> None:
    url = own_cluster.create_database()
    execute(url, "CREATE TABLE note AS SELECT 'kept' AS text")
    before = own_cluster.pid
    own_cluster.restart("fast" if mode == "fast" else "immediate")
    assert own_cluster.pid != before
    assert execute(url, "SELECT text FROM note") == [("kept",)]


def test_stop_and_start_are_refused_when_they_make_no_sense(own_cluster: Cluster) -> None:
    with pytest.raises(ServerFailed, match="runs already"):
        own_cluster.start()
    own_cluster.stop()
    with pytest.raises(ServerFailed, match="does not run"):
        own_cluster.stop()
    own_cluster.start()


def test_a_failed_start_shows_the_log_and_can_be_mended(own_cluster: Cluster) -> None:
    own_cluster.stop()
    settings = own_cluster.folder / "data" / "postgresql.conf"
    good = settings.read_text()
    settings.write_text(good + "no_such_setting = 1\n")
    with pytest.raises(ServerFailed, match="no_such_setting"):
        own_cluster.start()
    settings.write_text(good)
    own_cluster.start()


@pytest.mark.parametrize("killed_before", [False, True])
def test_nothing_is_left_after_the_with_block(killed_before: bool) -> None:
    with Cluster() as cluster:
        folder = cluster.folder
        assert processes_in(folder)
        if killed_before:
            cluster.kill()
    assert processes_in(folder) == []
    assert not folder.exists()
    cluster.close()


def test_a_forked_child_that_exits_leaves_the_server_alone(own_cluster: Cluster) -> None:
    child = os.fork()
    if child == 0:
        try:
            own_cluster.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    execute(own_cluster.admin_url(), "SELECT 1")


def test_nothing_is_left_when_the_maker_is_killed() -> None:
    program = """if True:
        from allswell.testing.postgres import Cluster
        cluster = Cluster()
        cluster.start()
        print(cluster.folder, cluster.pid, cluster._watcher.pid, flush=True)
        input()
    """
    maker = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with maker:
        assert maker.stdout is not None
        folder, server, watcher = maker.stdout.readline().split()
        assert processes_in(Path(folder))
        maker.send_signal(signal.SIGKILL)
    await_end(int(server))
    await_end(int(watcher))
    assert processes_in(Path(folder)) == []
    assert not Path(folder).exists()


def test_binaries_are_real_programs_and_not_wrappers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("postgres", "initdb"):
        (tmp_path / name).write_text("#!/bin/sh\nexec false\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert find_binaries() != tmp_path


def test_a_machine_without_a_server_fails_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(postgres, "_DISTRIBUTION_FOLDERS", ())
    monkeypatch.setattr(postgres, "_packaged", lambda: None)
    monkeypatch.setattr(postgres, "_REQUIREMENT", "./no/such/package")
    with pytest.raises(ServerFailed, match=r"no PostgreSQL server on this machine.*postgres-server"):
        find_binaries()
