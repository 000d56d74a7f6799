"""Whatever a file, an option or a URL holds: it is the user's mistake, told as one, and no password is repeated."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from allswell.interfaces.cli.context import Exit, encoded
from tests.domain.test_store_url import ODD, SECRET
from tests.interfaces.cli.console import Console, Said

DIGITS = "9" * 6_000
DEEP = "[" * 5_000 + "]" * 5_000
TEXTS = ["", "a\0b", "\udc80", "\x1b[31m", DIGITS, DEEP, '{"a":' * 3_000, "1e400"]
SETTINGS: dict[str, str | bytes] = {
    "deep list": f"a = {DEEP}",
    "deep table": "a = " + "{a=" * 5_000,
    "dotted": "a" + ".a" * 50_000 + " = 1",
    "header": "[" + ".".join("a" * 50_000) + "]",
    "digits": f"agent_timeout = {DIGITS}",
    "digits in quotes": f'agent_timeout = "{DIGITS}"',
    "days": f'agent_timeout = "{DIGITS}d"',
    "float": "retry.jitter = 1e999",
    "nan": "retry.jitter = nan",
    "date": "agent_timeout = 1979-05-27T07:32:00Z",
    "a role of digits": f"[roles.{'9' * 100}]\nagent_timeout = {'9' * 190}",
    "an agent of digits": f'[agents.a]\nfunction = "a:b"\nconcurrency = {"9" * 190}',
    "never ends": 'a = """' + '\\"' * 50_000,
    "not text": b"\xff\xfe\x00",
    "NUL": b'store = "a\x00b"',
    "escaped NUL": b'store = "sqlite:///a\\u0000b"',
}


def test_no_json_has_what_a_terminal_acts_upon() -> None:
    """JSON itself escapes no C1 controls and no signs that turn the direction of text; the value stays the same."""
    value = {"name": "e\x9b2J\x7f\u202ex\u2066\u061c", "é": "ü→"}
    text = encoded(value)
    assert json.loads(text) == value
    assert not [wild for wild in "\x9b\x7f\u202e\u2066\u061c" if wild in text]
    assert "é" in text, "what is harmless stays readable"


def check(said: Said, what: object) -> None:
    """It ended as commands end, and not by a bug."""
    text = said.out + said.err
    assert said.code in {int(code) for code in Exit}, (what, said)
    assert "bug of Allswell's" not in text, (what, text[-500:])
    assert "Traceback" not in text, (what, text[-500:])
    assert SECRET not in text, (what, text[-500:])


@pytest.mark.parametrize("what", SETTINGS)
def test_settings_of_every_odd_kind_are_told_with_their_file(cli: Console, what: str) -> None:
    content = SETTINGS[what]
    path = cli.folder / "allswell.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for line in (["config"], ["check"], ["up"]):
        said = cli(*line)
        check(said, line)
        assert said.code in (1, 2), said
        assert "allswell.toml" in said.out + said.err, said


@pytest.mark.parametrize(
    "url", [*ODD, "postgresql://[::1/db", "postgresql://h:99999999/db", "sqlite:///\0", "://", DIGITS]
)
def test_a_store_that_cannot_be_meant_is_told_without_its_password(
    cli: Console, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLSWELL_PACE_STORE_PATIENCE", "1ms")
    url = url.replace("@host", "@127.0.0.1:1").replace("//host", "//127.0.0.1:1")
    if "\0" not in url:
        monkeypatch.setenv("ALLSWELL_STORE", url)
        for line in (["tasks"], ["config", "store"], ["doctor"]):
            check(cli(*line), (line, url))
        monkeypatch.delenv("ALLSWELL_STORE")
    check(cli("tasks", "--store", url), url)
    escaped = "".join(f"\\u{ord(sign):04x}" for sign in url)
    (cli.folder / "allswell.toml").write_text(f'store = "{escaped}"\n')
    check(cli("check"), url)


def test_what_is_typed_or_piped_in_is_never_a_bug(cli: Console) -> None:
    task = cli.submit("a")
    for text in TEXTS:
        for line in (
            ["submit", text],
            ["submit", "x", "--payload", text],
            ["submit", "x", "--priority", text],
            ["submit", "x", "--timeout", text],
            ["submit", "x", "--not-before", text],
            ["submit", "x", "--run", text],
            ["submit", "x", "--needs", text],
            ["tasks", "--limit", text],
            ["events", "--limit", text],
            ["show", text],
            ["why", text],
            ["cancel", text],
            ["answer", text, text],
            ["config", text],
            ["check", text],
            ["run", text],
            ["recover", text],
            ["receipts", text],
            ["claim", "--agent", text],
            ["done", text],
        ):
            check(cli(*line), (line[:3], text[:40]))
        check(cli("submit", "-", stdin=text.encode("utf-8", "surrogateescape")), ("submit -", text[:40]))
        check(cli("submit", "x", "--payload", "-", stdin=text.encode("utf-8", "surrogateescape")), text[:40])
    cli.ok("show", task)


def test_files_that_are_none(cli: Console) -> None:
    folder, binary, shut = cli.folder / "d", cli.folder / "b.yaml", cli.folder / "s.yaml"
    folder.mkdir()
    (cli.folder / "d.yaml").mkdir()
    (cli.folder / "d.toml").mkdir()
    binary.write_bytes(bytes(range(256)) * 10)
    shut.write_text("name: f\n")
    shut.chmod(0)
    os.mkfifo(cli.folder / "p.yaml")
    for name in ("d", "d.yaml", "d.toml", "b.yaml", "s.yaml", "none.yaml", "", "/proc/self/mem", "/dev/null"):
        for line in (["check", name], ["run", name], ["graph", name], ["submit", "x", "--payload", f"@{name}"]):
            check(cli(*line), line)
    for name, content in {
        "deep.yaml": f"a: {DEEP}",
        "digits.yaml": f"name: f\ntimeouts: {{flow: {DIGITS}}}\nsteps:\n  - id: a\n    run: x\n",
        "priority.yaml": f"name: f\nsteps:\n  - id: a\n    run: x\n    retry: {DIGITS}\n",
    }.items():
        Path(name).write_text(content)
        said = cli("check", name)
        check(said, name)
        assert said.code == 1, said
