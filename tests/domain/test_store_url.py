"""Whatever looks like a store's URL, or was meant to be one, is shown without its password."""

import pytest

from allswell.domain.values import hide

SECRET = "hunter2"
ODD = [
    f"postgresql://me:{SECRET}@host/db",
    f"postgresql://me:p@{SECRET}@host/db",
    f"postgresql://me:{SECRET}@",
    f"postgresql://m/e:{SECRET}@host/db",
    f"postgresql://:{SECRET}@host",
    f"postgresql://me:{SECRET}#x@host/db",
    f"postgresql://me:{SECRET}/x?y@host/db",
    f"postgresql://[me:{SECRET}@host/db",
    f"postgresql://me%3A{SECRET}@host/db",
    f"postgresql:/me:{SECRET}@host/db",
    f"postgresql:me:{SECRET}@host/db",
    f"POSTGRES://me:{SECRET}@host/db",
    f"psql://me:{SECRET}@host/db",
    f"sqlite://me:{SECRET}@host/db",
    f"me:{SECRET}@host/db",
    f"//me:{SECRET}@host/db",
    f"postgresql://me@host/db?password={SECRET}",
    f"postgresql://host/db?sslmode=require&sslpassword={SECRET}&x=1",
    f"postgresql://host/db?pass%77ord={SECRET}",
    f"postgresql://host/db?PASSWORD={SECRET}",
    f"postgresql://host/db?password=a&{SECRET}",
    f"postgresql://host/db?password=a {SECRET}",
    f"postgresql://host/db? password = {SECRET}",
    f"host=h password={SECRET} dbname=d",
    f"password='it is {SECRET}' host=h",
    f"host=h password = {SECRET}",
    f"password={SECRET}",
    f"postgresql://me:{SECRET}\n@host/db",
    f"postgresql://host/db?password=\n{SECRET}",
]


@pytest.mark.parametrize("url", ODD)
def test_no_password_is_shown_however_oddly_it_is_written(url: str) -> None:
    assert SECRET not in hide(url)


@pytest.mark.parametrize(
    "url",
    [
        "memory:",
        "sqlite:///.allswell/allswell.db",
        "sqlite:////home/a:b@c/password=x.db",
        "postgresql://me@host/db",
        "postgresql://host:5432/db?sslmode=require&application_name=watch",
        "host=h dbname=d",
        "nonsense",
        "",
    ],
)
def test_what_has_none_is_shown_as_it_is(url: str) -> None:
    assert hide(url) == url
