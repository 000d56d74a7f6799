"""`/metrics`: what Prometheus reads is what the store and its journal say, whoever serves it and however often."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from allswell.errors import Refused
from allswell.interfaces.http.listener import ListenAddress, check_address
from tests.interfaces.http.served import Served, started
from tests.interfaces.http.test_api import LEASE, claim, submit


def scraped(served: Served, key: str | None = "viewer") -> dict[tuple[str, ...], float]:
    """Each sample, by its name and the values of its labels; once what is counted from the journal is there."""
    for _ in range(200):
        answer = served.call("GET", "/metrics", key=key)
        assert answer.status == 200, answer.body
        families = text_string_to_metric_families(answer.body.decode())
        found = {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}
        if ("allswell_attempts_total", "done") in found:
            return found
    raise AssertionError("the journal was not read to its end")


def test_what_is_told_is_what_the_store_says(served: Served, tmp_path: Path) -> None:
    """One more attempt, one more count; another server on the same store tells the same, and so does one after it."""
    before = scraped(served)
    for verb, body in (("done", {}), ("release", {}), ("fail", {"message": "no", "error_class": "permanent"})):
        (task,) = submit(served, f"measured {verb}")
        lease = LEASE.format(task, claim(served, task)["token"])
        served.ok("POST", f"{lease}/{verb}", body, key="ada")
        if verb == "release":
            served.ok("POST", f"/tasks/{task}/cancel")
    with started(tmp_path, served.store, "--listen", "127.0.0.1:0") as (process, url):
        other = Served(served.store, url, served.keys, process, tmp_path)
        names = [("allswell_attempts_total", outcome) for outcome in ("done", "returned", "failed")]
        after = scraped(other)
        for name in names:
            assert after[name] - before[name] == 1, name
        assert after["allswell_claim_wait_seconds_count",] - before["allswell_claim_wait_seconds_count",] == 3
        again = scraped(served)
        while again["allswell_attempts_total", "failed"] < after["allswell_attempts_total", "failed"]:
            again = scraped(served)  # what it tells is up to a second old
        assert {name: again[name] for name in names} == {name: after[name] for name in names}
        process.terminate()
        assert process.wait(30) == 0
    with started(tmp_path, served.store, "--listen", "127.0.0.1:0", "--open-metrics") as (process, url):
        later = scraped(Served(served.store, url, served.keys, process, tmp_path), key=None)
        assert {name: later[name] for name in names} == {name: after[name] for name in names}
    assert after["allswell_unaccounted_tasks",] == 0
    assert ("allswell_tasks", "ready") in after
    assert not [name for name in after if any(part.startswith("t_") for part in name[1:])]


def test_metrics_need_a_key_that_may_look(served: Served) -> None:
    assert served.call("GET", "/metrics", key=None).status == 401
    for key in ("ada", "submitter"):
        assert served.call("GET", "/metrics", key=key).status == 403
    with pytest.raises(Refused, match="this machine alone"):
        check_address(ListenAddress("10.0.0.1", behind_proxy=True, open_metrics=True))
