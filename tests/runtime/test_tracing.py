"""Traces: a real collector that speaks OTLP over HTTP gets the spans of flows, agents, tools and calls."""

import asyncio
import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

from tests.interfaces.http.served import Served, make_keys, started
from tests.patience import SECONDS

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FLOW = "name: night\nsteps:\n  - id: build\n    run: [env]\n"


TOOLS = """
import asyncio, allswell

@allswell.tool("fetch")
def fetch():
    raise ValueError("nothing there")

async def main():
    async with allswell.tool("search"):
        print((await allswell.run_tool(["sh", "-c", "echo $TRACEPARENT"])).stdout)
        try:
            fetch()
        except ValueError:
            pass
    async with allswell.llm_call("model"):
        pass
    try:
        async with allswell.tool("late", timeout="1ms"):
            await asyncio.Event().wait()
    except allswell.ScopeTimeout:
        pass

asyncio.run(main())
"""


class Collector:
    """Takes what is exported."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        taken = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces"
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                taken.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    @property
    def spans(self) -> dict[str, Any]:
        """By name."""
        return {
            span.name: span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def told(span: Any) -> dict[str, Any]:  # noqa: ANN401 - as protobuf makes it
    """A span's attributes."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def run(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ALLSWELL_", "OTEL_", "TRACE"))}
    command = [sys.executable, *(words if words[0] == "-c" else ("-m", "allswell", *words))]
    return subprocess.run(
        command, cwd=folder, env={**clean, **env}, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def test_a_flow_its_agents_and_their_children_are_one_trace(tmp_path: Path, collector: Collector) -> None:
    (tmp_path / "night.yaml").write_text(FLOW)
    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "TRACEPARENT": f"00-{TRACE}-{PARENT}-01"}
    ran = run(tmp_path, "run", "night.yaml", **traced)
    assert ran.returncode == 0, ran
    workflow = collector.spans["invoke_workflow night"]
    (agent,) = [span for name, span in collector.spans.items() if name.startswith("invoke_agent")]
    assert (workflow.trace_id.hex(), workflow.parent_span_id.hex()) == (TRACE, PARENT)
    assert (agent.trace_id.hex(), agent.parent_span_id) == (TRACE, workflow.span_id)
    assert told(workflow)["gen_ai.workflow.name"] == "night"
    about = told(agent)
    assert about["gen_ai.operation.name"] == "invoke_agent"
    assert about["allswell.outcome"] == "done"
    assert about["allswell.task.id"].startswith("t_")
    printed = [path.read_text() for path in tmp_path.rglob("*.stdout")]
    assert any(f"00-{TRACE}-{agent.span_id.hex()}-" in text for text in printed), printed


def test_a_failed_command_and_a_tool(tmp_path: Path, collector: Collector) -> None:
    traced = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.url}/v1/traces"}
    assert run(tmp_path, "run", "--name", "bad", "--", "sh", "-c", "exit 3", **traced).returncode == 3
    (agent,) = collector.spans.values()
    assert (agent.status.code, told(agent)["process.exit.code"]) == (2, 3)
    said = run(tmp_path, "-c", TOOLS, **traced)
    tool = collector.spans["execute_tool sh"]
    assert said.stdout.startswith(f"00-{tool.trace_id.hex()}-{tool.span_id.hex()}-"), said
    assert (told(tool)["gen_ai.tool.name"], told(tool)["process.exit.code"]) == ("sh", 0)
    search, fetch, late = (collector.spans[f"execute_tool {name}"] for name in ("search", "fetch", "late"))
    assert (tool.trace_id, tool.parent_span_id) == (search.trace_id, search.span_id)
    assert (fetch.parent_span_id, search.parent_span_id) == (search.span_id, b"")
    assert (search.status.code, fetch.status.code, late.status.code) == (0, 2, 2)
    assert told(search)["gen_ai.operation.name"] == "execute_tool"
    assert not [name for name in collector.spans if "model" in name], "only tools are seen by this name"


def test_a_trace_goes_on_over_http(tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    store = f"sqlite:///{tmp_path}/.allswell/allswell.db"
    keys = asyncio.run(make_keys(store))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    with started(tmp_path, store, "--listen", "127.0.0.1:0") as (process, url):
        served = Served(store, url, keys, process, tmp_path)
        served.ok("GET", "/status", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
        key = {"ALLSWELL_KEY": keys["viewer"], "TRACEPARENT": f"00-{TRACE}-{PARENT}-01"}
        assert run(tmp_path, "tasks", "--store", url, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **key).returncode == 0
        asyncio.run(check_status_by_mcp(url, keys["viewer"]))
        process.terminate()
        assert process.wait(SECONDS) == 0
    called = collector.spans["tools/call status"]
    assert (called.trace_id.hex(), called.parent_span_id.hex()) == (TRACE, PARENT)
    assert told(called)["gen_ai.tool.name"] == "status"
    status = collector.spans["GET /api/v1/status"]
    assert (status.trace_id.hex(), status.parent_span_id.hex()) == (TRACE, PARENT)
    assert told(status)["http.response.status_code"] == 200
    assert collector.spans["POST /api/v1/views"].trace_id.hex() == TRACE


async def check_status_by_mcp(url: str, key: str) -> None:
    """A call by a client of the SDK, inside a trace: the SDK writes it into the `_meta` of what it sends."""
    given = SpanContext(int(TRACE, 16), int(PARENT, 16), is_remote=True, trace_flags=TraceFlags(1))
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=SECONDS) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        with use_span(NonRecordingSpan(given)):
            assert not (await client.call_tool("status")).is_error


def test_it_is_off_unless_it_is_wanted_and_never_in_the_way(tmp_path: Path) -> None:
    """Nothing of OpenTelemetry is imported, and no variable is set; a collector that is away holds up nobody."""
    code = "import sys, allswell.interfaces.cli, allswell.runtime.attempt, allswell.remote.connection"
    code += "; print(sorted(name for name in sys.modules if name.startswith('opentelemetry')))"
    assert run(tmp_path, "-c", code).stdout.strip() == "[]"
    plain = run(tmp_path, "run", "--", "sh", "-c", "echo [$TRACEPARENT]")
    assert "[]" in plain.stdout
    away = run(tmp_path, "run", "--json", "--", "true", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert away.returncode == 0
    assert json.loads(away.stdout)
