"""Keys: how they are made, how they end, and that nothing but the secret opens anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.access.key import Key, check_key, is_over, new_key, parts_of, revoked, secret_of, written
from allswell.domain.ids import Millis
from allswell.errors import Refused
from tests.properties.budget import DETERMINISTIC

NOW = Millis(1_770_000_000_000)
SECRET = secret_of(bytes(range(32)))


def made(**how: object) -> Key:
    return new_key("ada", SECRET, ["agent"], NOW, roles=["build"], **how)  # type: ignore[arg-type]


def code_of(key: Key | None, secret: str, now: int) -> str:
    with pytest.raises(Refused) as refused:
        check_key(key, secret, Millis(now))
    return refused.value.code


def test_a_key_holds_until_it_runs_out_or_is_revoked() -> None:
    key = made(lasts=1_000)
    assert check_key(key, SECRET, Millis(NOW + 999)) is key
    assert code_of(key, SECRET, NOW + 1_000) == "key_expired"
    ended = revoked(key, Millis(NOW + 5), "mia")
    assert code_of(ended, SECRET, NOW + 5) == "key_revoked"
    assert is_over(ended, NOW)
    with pytest.raises(Refused, match="already"):
        revoked(ended, NOW)


def test_a_stranger_learns_nothing_about_names() -> None:
    """A wrong secret is answered alike for a key that holds, one that is over, and none."""
    ended = revoked(made(), NOW)
    assert {code_of(key, "wrong", NOW) for key in (made(), ended, None)} == {"bad_key"}
    assert SECRET not in repr(made())


@DETERMINISTIC
@given(st.binary(min_size=32, max_size=32), st.from_regex(r"[a-z0-9][a-z0-9.-]{0,62}", fullmatch=True))
def test_what_is_written_is_read_again(chance: bytes, name: str) -> None:
    secret = secret_of(chance)
    assert parts_of(written(name, secret)) == (name, secret)


@DETERMINISTIC
@given(st.text())
def test_no_text_is_taken_for_a_key_unless_it_is_one(text: str) -> None:
    found = parts_of(text)
    assert found is None or text == written(*found)
    if text != SECRET:
        assert code_of(made(), text, NOW) == "bad_key"


@pytest.mark.parametrize(
    "name, rights, how, code",
    [
        ("Ada", ["viewer"], {}, "bad_name"),
        ("a_b", ["viewer"], {}, "bad_name"),
        ("", ["viewer"], {}, "bad_name"),
        ("ada", [], {}, "no_right"),
        ("ada", ["root"], {}, "bad_right"),
        ("ada", ["agent"], {}, "no_role"),
        ("ada", ["viewer"], {"roles": ["build"]}, "bad_role"),
        ("ada", ["viewer"], {"agents": ["bob"]}, "bad_role"),
        ("ada", ["agent"], {"roles": ["a\nb"]}, "bad_name"),
        ("ada", ["agent"], {"roles": ["x"], "agents": [""]}, "bad_name"),
        ("ada", ["agent"], {"roles": [str(number) for number in range(101)]}, "too_many"),
        ("ada", ["viewer"], {"lasts": 0}, "bad_duration"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, rights: list[str], how: dict[str, object], code: str) -> None:
    with pytest.raises(Refused) as refused:
        new_key(name, SECRET, rights, NOW, **how)  # type: ignore[arg-type]
    assert refused.value.code == code
