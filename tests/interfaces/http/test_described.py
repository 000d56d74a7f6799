"""Every route as OpenAPI describes it, called by schemathesis: no answer that is not described, and no error of ours.

`make chaos` sends more; ALLSWELL_DESCRIBED_CALLS says how many for each route.
"""

import os

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from allswell.interfaces.http.routing import openapi_document
from allswell.interfaces.http.server import PREFIX, ROUTES
from tests.interfaces.http.served import Served

CALLS = int(os.environ.get("ALLSWELL_DESCRIBED_CALLS", "2"))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SCHEMA = schemathesis.openapi.from_dict(openapi_document(ROUTES, PREFIX))


@pytest.mark.parametrize("route", [f"{route.method} {route.path}" for route in ROUTES])
def test_a_route_answers_as_it_is_described(served: Served, route: str) -> None:
    method, _, path = route.partition(" ")
    operation = SCHEMA[f"{PREFIX}{path}"][method]

    @given(st.data())
    @settings(
        max_examples=CALLS,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def called(data: st.DataObject) -> None:
        case = data.draw(operation.as_strategy())
        if case.query and "wait_ms" in case.query:
            case.query["wait_ms"] = 0
        if isinstance(case.body, dict) and "wait_ms" in case.body:
            case.body["wait_ms"] = 0
        key = {"Authorization": f"Bearer {served.keys['admin']}"}
        case.headers.clear()
        case.call_and_validate(base_url=served.url, headers=key, checks=CHECKS, timeout=30)

    called()
