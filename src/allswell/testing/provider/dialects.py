"""The two chat APIs in as many words as their SDKs need: OpenAI's completions and responses, Anthropic's messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Protocol

import msgspec

from allswell.testing.provider.acts import CallTool

Json = Mapping[str, Any]

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def _type_of(status: int) -> str:
    return _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")


def _pieces(text: str) -> list[str]:
    """A text as it is streamed: word by word, and nothing is lost."""
    words = text.split(" ")
    return [word if place == 0 else " " + word for place, word in enumerate(words)]


def event(data: Json | str, name: str | None = None) -> bytes:
    """One server-sent event."""
    body = data if isinstance(data, str) else msgspec.json.encode(data).decode()
    return (f"event: {name}\n" if name else "").encode() + f"data: {body}\n\n".encode()


class Dialect(Protocol):
    """How one API says things."""

    def reply(self, text: str, asked: Json) -> Json:
        """A whole answer."""
        ...

    def stream(self, text: str, asked: Json) -> Iterator[bytes]:
        """The same answer as a stream of events."""
        ...

    def call(self, tool: CallTool, asked: Json) -> Json:
        """A whole answer that has a tool called."""
        ...

    def stream_call(self, tool: CallTool, asked: Json) -> Iterator[bytes]:
        """The same as a stream of events."""
        ...

    def error(self, status: int, code: str, message: str) -> Json:
        """An error body."""
        ...

    def error_event(self, code: str, message: str) -> bytes:
        """An error inside a stream."""
        ...


_calls = count(1)


def _call_id() -> str:
    """An id for a call, which no other one has: clients take what has the same id for the same."""
    return f"call_{next(_calls)}"


class Completions:
    """OpenAI's chat completions."""

    def reply(self, text: str, asked: Json) -> Json:
        """A whole answer."""
        message = {"role": "assistant", "content": text, "refusal": None}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": asked.get("model", "fake"),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }

    def stream(self, text: str, asked: Json) -> Iterator[bytes]:
        """The same answer as a stream of events."""
        for delta, finish in (
            ({"role": "assistant", "content": ""}, None),
            *(({"content": piece}, None) for piece in _pieces(text)),
            ({}, "stop"),
        ):
            yield event(
                {
                    "id": "chatcmpl-1",
                    "object": "chat.completion.chunk",
                    "created": 1_700_000_000,
                    "model": asked.get("model", "fake"),
                    "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
                }
            )
        yield event("[DONE]")

    def _called(self, tool: CallTool) -> Json:
        said = {"name": tool.name, "arguments": msgspec.json.encode(tool.arguments).decode()}
        return {"index": 0, "id": _call_id(), "type": "function", "function": said}

    def call(self, tool: CallTool, asked: Json) -> Json:
        """A whole answer that has a tool called."""
        message = {"role": "assistant", "content": None, "tool_calls": [self._called(tool)]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": None}
        return {**self.reply("", asked), "choices": [choice]}

    def stream_call(self, tool: CallTool, asked: Json) -> Iterator[bytes]:
        """The same as a stream of events."""
        called = {"role": "assistant", "content": None, "tool_calls": [self._called(tool)]}
        for delta, finish in ((called, None), ({}, "tool_calls")):
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            yield event({**self.reply("", asked), "object": "chat.completion.chunk", "choices": [choice]})
        yield event("[DONE]")

    def error(self, status: int, code: str, message: str) -> Json:
        """An error body."""
        return {"error": {"message": message, "type": _type_of(status), "param": None, "code": code or None}}

    def error_event(self, code: str, message: str) -> bytes:
        """An error inside a stream."""
        return event({"error": {"message": message, "type": code, "param": None, "code": code}})


class Responses(Completions):
    """OpenAI's responses."""

    def reply(self, text: str, asked: Json) -> Json:
        """A whole answer."""
        content = [{"type": "output_text", "text": text, "annotations": []}]
        message = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content}
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_700_000_000,
            "status": "completed",
            "model": asked.get("model", "fake"),
            "output": [message],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 1,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 1,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 2,
            },
        }

    def stream(self, text: str, asked: Json) -> Iterator[bytes]:
        """The same answer as a stream of events."""
        whole = self.reply(text, asked)
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": []}
        yield event({"type": "response.created", "sequence_number": 0, "response": whole}, "response.created")
        (message,) = whole["output"]
        begun = {**message, "status": "in_progress", "content": []}
        yield event(_item("added", begun), "response.output_item.added")
        for number, piece in enumerate(_pieces(text), start=1):
            delta = {"type": "response.output_text.delta", "sequence_number": number, "delta": piece, **place}
            yield event(delta, "response.output_text.delta")
        yield event(_item("done", message), "response.output_item.done")
        done = {"type": "response.completed", "sequence_number": 1_000, "response": whole}
        yield event(done, "response.completed")

    def call(self, tool: CallTool, asked: Json) -> Json:
        """A whole answer that has a tool called."""
        said = msgspec.json.encode(tool.arguments).decode()
        id_ = _call_id()
        item = {"type": "function_call", "id": f"fc_{id_}", "call_id": id_, "name": tool.name, "arguments": said}
        item |= {"status": "completed"} | ({"namespace": tool.namespace} if tool.namespace else {})
        return {**self.reply("", asked), "id": f"resp_{id_}", "output": [item]}

    def stream_call(self, tool: CallTool, asked: Json) -> Iterator[bytes]:
        """The same as a stream of events."""
        whole = self.call(tool, asked)
        (item,) = whole["output"]
        begun = {**whole, "status": "in_progress", "output": []}
        yield event({"type": "response.created", "sequence_number": 0, "response": begun}, "response.created")
        yield event(_item("added", {**item, "status": "in_progress"}), "response.output_item.added")
        yield event(_item("done", item), "response.output_item.done")
        done = {"type": "response.completed", "sequence_number": 1_000, "response": whole}
        yield event(done, "response.completed")


def _item(what: str, message: Json) -> Json:
    """An item of an answer begins or is over."""
    return {
        "type": f"response.output_item.{what}",
        "sequence_number": 0 if what == "added" else 999,
        "output_index": 0,
        "item": message,
    }


class Messages:
    """Anthropic's messages."""

    def _message(self, asked: Json, **more: object) -> Json:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": asked.get("model", "fake"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
            **more,
        }

    def reply(self, text: str, asked: Json) -> Json:
        """A whole answer."""
        return self._message(asked, content=[{"type": "text", "text": text}], stop_reason="end_turn")

    def stream(self, text: str, asked: Json) -> Iterator[bytes]:
        """The same answer as a stream of events."""
        events: list[dict[str, object]] = [
            {"type": "message_start", "message": self._message(asked)},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *(
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
                for piece in _pieces(text)
            ),
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 1},
            },
            {"type": "message_stop"},
        ]
        for one in events:
            yield event(one, str(one["type"]))

    def call(self, tool: CallTool, asked: Json) -> Json:
        """A whole answer that has a tool called."""
        id_ = _call_id()
        used = {"type": "tool_use", "id": id_, "name": tool.name, "input": dict(tool.arguments)}
        return self._message(asked, id=f"msg_{id_}", content=[used], stop_reason="tool_use")

    def stream_call(self, tool: CallTool, asked: Json) -> Iterator[bytes]:
        """The same as a stream of events."""
        said = msgspec.json.encode(tool.arguments).decode()
        id_ = _call_id()
        used = {"type": "tool_use", "id": id_, "name": tool.name, "input": {}}
        part = {"type": "input_json_delta", "partial_json": said}
        stop = {"stop_reason": "tool_use", "stop_sequence": None}
        events: list[dict[str, object]] = [
            {"type": "message_start", "message": self._message(asked, id=f"msg_{id_}")},
            {"type": "content_block_start", "index": 0, "content_block": used},
            {"type": "content_block_delta", "index": 0, "delta": part},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
        for one in events:
            yield event(one, str(one["type"]))

    def error(self, status: int, code: str, message: str) -> Json:
        """An error body."""
        return {"type": "error", "error": {"type": code or _type_of(status), "message": message}, "request_id": "req_1"}

    def error_event(self, code: str, message: str) -> bytes:
        """An error inside a stream."""
        return event({"type": "error", "error": {"type": code, "message": message}}, "error")


DIALECTS: Mapping[str, Dialect] = {
    "/v1/chat/completions": Completions(),
    "/v1/responses": Responses(),
    "/v1/messages": Messages(),
}
"""Which API is spoken at which path."""
