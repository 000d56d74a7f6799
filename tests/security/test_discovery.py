"""What is found on the way up is used only if it is this user's own, and the search does not leave the project."""

from __future__ import annotations

import asyncio
import grp
import os
import stat
from pathlib import Path

import pytest

import allswell
from allswell.settings import nearby
from allswell.settings.nearby import FoundStore, distrusted, find_store, folders
from allswell.store import files
from allswell.store.files import DATABASE, NAME, CallerIdentity, DistrustReason, Ownership, distrust, doubt
from allswell.store.trusted import NO_DATABASE, trust_store
from tests.interfaces.cli.console import Console
from tests.runtime.attempt.stage import git
from tests.security.unprivileged import as_nobody, folder_of_theirs, give

_STRANGER = 65_534


def plant(path: Path, text: str = "") -> None:
    """Something that another user has put here; who cannot give things away plants what anybody can write."""
    if text:
        path.write_text(text)
    else:
        path.mkdir()
    if os.geteuid() == 0:
        os.chown(path, _STRANGER, _STRANGER)
    else:
        path.chmod(0o777 if path.is_dir() else 0o666)


@pytest.mark.parametrize(
    "uid, gid, mode, why",
    [
        (1, 1, 0o644, None),
        (1, 9, 0o644, None),
        (1, 1, 0o664, None),
        (1, 9, 0o664, DistrustReason.GROUP),
        (1, 1, 0o646, DistrustReason.ANYBODY),
        (1, 1, 0o1777, DistrustReason.ANYBODY),
        (2, 1, 0o600, DistrustReason.FOREIGN),
        (0, 0, 0o600, DistrustReason.FOREIGN),
    ],
)
def test_who_is_trusted(uid: int, gid: int, mode: int, why: DistrustReason | None) -> None:
    assert distrust(Ownership(uid, gid, stat.S_IFREG | mode), CallerIdentity(1, 1)) == why
    assert distrust(Ownership(1, 1, 0o664), CallerIdentity(1, None)) is DistrustReason.GROUP, (
        "a group that others are in, too"
    )


@pytest.mark.parametrize("others", [[], ["me"], ["www-data"]])
def test_a_group_with_our_name_is_ours_alone_unless_it_lists_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[str]
) -> None:
    """`usermod -aG me www-data` lets a server's user read what is mine, and write where the group may write."""
    monkeypatch.setattr(files, "user_name", lambda _: "me")
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("me", "x", gid, others)))
    settings = tmp_path / "allswell.toml"
    settings.touch()
    os.chown(settings, -1, os.getegid())
    settings.chmod(0o664)
    assert (doubt(settings.stat()) is None) == ("www-data" not in others)


def test_a_store_that_somebody_else_put_above_is_refused_and_named(
    cli: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path / ".allswell")
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    refused = cli("tasks", "--json")
    said = refused.json["error"]
    assert (refused.code, said["code"], said["where"]) == (2, "untrusted", str(tmp_path / ".allswell"))
    assert "--store" in said["message"]
    assert list((tmp_path / ".allswell").iterdir()) == []
    assert cli("submit", "mine", "--store", f"sqlite:///{below}/own.db").code == 0, "who names a store gets it"
    assert cli("config", "store").out.count("not used") == 1


def test_settings_that_somebody_else_put_above_run_nothing(
    cli: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoor = tmp_path / "spoor"
    plant(tmp_path / "allswell.toml", f'[agents.eve]\ncommand = ["touch", "{spoor}"]\n')
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    for command in (["submit", "work"], ["up"]):
        said = cli(*command)
        assert (said.code, f"{tmp_path}/allswell.toml" in said.err, "chown" in said.err) == (2, True, True)
    assert not spoor.exists()
    (tmp_path / "allswell.toml").rename(tmp_path / "pyproject.toml")
    assert cli("submit", "work").code == 0, "a project's file that is not about us is nobody's concern"
    plant(tmp_path / "pyproject.toml", "[tool.allswell]\nstall_threshold = 5\n")
    assert cli("submit", "work").code == 2


def test_files_that_are_no_files_or_are_anybodys_do_not_hold_anybody_up(cli: Console, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "allswell.toml")
    assert cli("submit", "one").code == 0
    (tmp_path / "allswell.toml").unlink()
    (tmp_path / ".allswell/allswell.db").chmod(0o666)
    assert cli("tasks").code == 2
    (tmp_path / ".allswell/allswell.db").chmod(0o644)
    assert cli("tasks").code == 0


def test_a_link_of_ones_own_is_followed_once(cli: Console, tmp_path: Path) -> None:
    state = tmp_path / "elsewhere"
    state.mkdir(mode=0o755)
    (tmp_path / ".allswell").symlink_to(state)
    assert cli("submit", "work").code == 0
    assert (state / "allswell.db").exists()
    assert f"found: {state}" in cli("config", "store").out.replace("\n", " ")
    if os.geteuid() == 0:
        os.chown(tmp_path / ".allswell", _STRANGER, _STRANGER, follow_symlinks=False)
        assert cli("tasks").code == 2


@pytest.mark.parametrize("mode", [0o000, 0o100, 0o300, 0o400])
def test_a_folder_of_ours_that_cannot_be_looked_into_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """An archive can bring one, and every command looks there first."""
    here = folder_of_theirs()
    monkeypatch.setenv("HOME", str(here))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    place = give(here / ".allswell")
    place.chmod(mode)
    try:
        assert as_nobody(lambda: (found := find_store(here)) and distrusted(found)) == "Refused"
    finally:
        place.rmdir()
        here.rmdir()


def test_where_the_search_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path.resolve()
    deep = top / "a" / "b" / "c"
    deep.mkdir(parents=True)

    def looked_into(here: Path) -> list[str]:
        return [str(folder.relative_to(top)) for folder in folders(here) if folder.is_relative_to(top)]

    monkeypatch.setenv("HOME", str(top / "nowhere"))
    assert looked_into(deep) == ["a/b/c", "a/b", "a", "."]
    monkeypatch.setenv("HOME", str(top / "a"))
    assert looked_into(deep) == ["a/b/c", "a/b", "a"]
    assert list(folders(deep))[-1] == top / "a", "nothing above the home folder, whatever there is"
    (top / "a" / "b").chmod(0o1777)
    assert looked_into(deep) == ["a/b/c"], "a sticky folder above is not looked into"
    assert looked_into(top / "a" / "b") == ["a/b", "a"], "one that somebody stands in is"
    assert [str(folder) for folder in folders(Path("/proc/self"))] == ["/proc/self", "/proc"], "a mount"


def test_a_repository_is_its_own_world_and_a_linked_worktree_goes_on_at_the_main_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    main, linked, bare = tmp_path / "p" / "main", tmp_path / "linked", tmp_path / "of_bare"
    (main / "sub").mkdir(parents=True)
    git("init", "-q", cwd=main)
    git("commit", "-q", "--allow-empty", "-m", "first", cwd=main)
    git("worktree", "add", "-q", str(linked), cwd=main)
    git("clone", "-q", "--bare", str(main), str(tmp_path / "bare"), cwd=tmp_path)
    git("worktree", "add", "-q", str(bare), cwd=tmp_path / "bare")
    (linked / "sub").mkdir()
    assert list(folders(main / "sub")) == [main / "sub", main]
    assert list(folders(linked / "sub")) == [linked / "sub", linked, main]
    assert list(folders(bare)) == [bare]
    module = main / "module"
    module.mkdir()
    (module / ".git").write_text("gitdir: ../.git/modules/module\n")
    assert list(folders(module)) == [module, main]
    (module / ".git").chmod(0o666)
    assert list(folders(module)) == [module], "a pointer that anybody could have written leads nowhere"


def test_a_folder_of_ours_beside_a_named_store_is_found_not_named(cli: Console, tmp_path: Path) -> None:
    """It holds runs and notes of attempts, which name commands."""
    plant(tmp_path / ".allswell")
    store = ("--store", f"sqlite:///{tmp_path}/x.db")
    assert cli("submit", "work", *store).code == 0
    for command in (["runs", *store], ["receipts", *store], ["run", *store, "--", "true"]):
        said = cli(*command, "--json") if "--" not in command else cli(*command)
        assert (said.code, "not used" in said.out + said.err) == (2, True), said
    assert list((tmp_path / ".allswell").iterdir()) == []


def test_a_strangers_project_that_only_uses_us_is_nobodys_concern(cli: Console, tmp_path: Path) -> None:
    plant(tmp_path / "pyproject.toml", '[project]\nname = "x"\ndependencies = ["allswell"]\n')
    assert cli("submit", "work").code == 0


def test_a_store_that_another_command_is_making_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its database appears first, and then the record names it; one that is not being made is refused."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (folder := tmp_path / NAME).mkdir(mode=0o700)
    trust_store(folder, NO_DATABASE)
    (folder / DATABASE).touch(mode=0o600)
    looks = 0

    async def make() -> None:
        async with allswell.open(f"sqlite:///{folder / DATABASE}"):
            pass

    def meanwhile(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            asyncio.run(make())

    monkeypatch.setattr(nearby, "lies_in_trusted_folder", lambda *_: False)
    monkeypatch.setattr("allswell.settings.nearby.time.sleep", meanwhile)
    assert distrusted(FoundStore(folder, None)) is None
    assert looks == 3
    trust_store(folder, NO_DATABASE)
    assert "another database lies there now" in (distrusted(FoundStore(folder, None)) or "")
