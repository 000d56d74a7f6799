"""Spans of OpenTelemetry, where somebody wants them; elsewhere nothing, at the price of one look.

They are wanted where the program has set OpenTelemetry up itself, or where the standard variable
`OTEL_EXPORTER_OTLP_ENDPOINT` (or `…_TRACES_ENDPOINT`) names a collector: then they are sent there by OTLP over HTTP,
with `allswell[telemetry]`. Nothing of OpenTelemetry is imported before that, so the command line starts as before. A
trace goes on in children and in calls by what W3C has for it: `TRACEPARENT`, and the header `traceparent`.

Telemetry is never in the way: what goes wrong with it is logged, and the work goes on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

log = logging.getLogger("allswell.telemetry")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
VARIABLES = ("TRACEPARENT", "TRACESTATE")
Value = str | int | float | bool
_SEND_SECONDS = 3.0
"""How long a collector that does not answer may hold up the end of a process."""
_API = "opentelemetry.trace"
_made: list[Tracer | None] = []
"""The tracer, once it was asked for; None where there can be none."""


class Traced:
    """What is being done, as its span has it; or nothing, where nobody wants one."""

    def __init__(self, span: Span | None = None) -> None:
        self._span = span

    def note(self, attributes: Mapping[str, Value | None]) -> None:
        """What is known of it now."""
        if self._span is not None:
            self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})

    def failed(self, why: str) -> None:
        """It did not end well."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, why[:200]))


NOTHING = Traced()


def is_wanted() -> bool:
    """Whether anybody wants spans."""
    return _tracer() is not None


@contextlib.contextmanager
def traced(
    name: str,
    attributes: Mapping[str, Value | None],
    *,
    title: str = "",
    carried: Mapping[str, str] | None = None,
    serves: bool = False,
) -> Iterator[Traced]:
    """A span for as long as something is done: under the one that is current here, or that was `carried` here.

    `title` stands behind its name; `serves` says that it answers a call from elsewhere.
    """
    tracer = _tracer()
    if tracer is None:
        yield NOTHING
        return
    from opentelemetry.trace import SpanKind

    told = {key: value for key, value in attributes.items() if value is not None}
    kind = SpanKind.SERVER if serves else SpanKind.INTERNAL
    context = _carried(os.environ if carried is None else carried)
    shown = f"{name} {title}".rstrip()
    with tracer.start_as_current_span(shown, context, kind, told, set_status_on_exception=True) as span:
        yield Traced(span)


@contextlib.contextmanager
def gone_on_with() -> Iterator[None]:
    """What is done inside, by whoever makes its spans, goes on with the trace that this process was started in."""
    if _tracer() is None:
        yield
        return
    from opentelemetry.context import attach, detach

    context = _carried(os.environ)
    if context is None:
        yield
        return
    before = attach(context)
    try:
        yield
    finally:
        detach(before)


def trace_environment() -> dict[str, str]:
    """The variables that have a child go on with the trace that is current here; empty where there is none."""
    return {name.upper(): value for name, value in trace_headers().items()}


def trace_headers() -> dict[str, str]:
    """The headers that have another service go on with the trace that is current here; empty where there is none."""
    if _tracer() is None:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, _carried(os.environ))
    return carrier


def _carried(carrier: Mapping[str, str]) -> Context | None:
    """The context that came from elsewhere; None where there is one here already, or none came."""
    from opentelemetry.trace import get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if get_current_span().get_span_context().is_valid:
        return None
    given = {name.lower(): value for name, value in carrier.items() if name.upper() in VARIABLES}
    return TraceContextTextMapPropagator().extract(given) if given else None


def _tracer() -> Tracer | None:
    if _made:
        return _made[0]
    wanted = any(os.environ.get(name) for name in ENDPOINTS)
    if not wanted and _API not in sys.modules:
        return None  # asked again the next time: a program may still set it up
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        made = _set_up() if wanted else _theirs()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the work goes on
        log.warning("there will be no traces: %s", error)
        made = None
        wanted = True
    if wanted or made is not None:
        _made.append(made)
    return made


def _theirs() -> Tracer | None:
    """The tracer of a program that has set OpenTelemetry up; None as long as it has not."""
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider) else provider.get_tracer("allswell")


def _set_up() -> Tracer:
    """A tracer that sends to the collector that the environment names; the program's own, if it has one."""
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise RuntimeError(
            "traces need the extra `telemetry`: in Allswell's clone, type `uv tool install '.[telemetry]'`"
        ) from None
    theirs = _theirs()
    if theirs is not None:
        return theirs
    about: dict[str, Any] = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "allswell"}
    provider = TracerProvider(resource=Resource.create(about))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=_SEND_SECONDS)))
    trace.set_tracer_provider(provider)
    return provider.get_tracer("allswell")
