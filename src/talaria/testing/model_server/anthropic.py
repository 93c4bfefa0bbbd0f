"""Anthropic's Messages, as the vendor's server speaks it."""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from talaria.testing.model_server.exchange import Ask, Exchange, Fail, ProtocolName, Say, Tokens
from talaria.testing.model_server.wire import Frame, Json, bearer_key, event

_STOPS = {"end": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "refused": "refusal"}
_ERRORS: Mapping[int, tuple[str, str]] = {
    400: ("invalid_request_error", "Invalid request"),
    401: ("authentication_error", "invalid x-api-key"),
    402: ("billing_error", "Your credit balance is too low to access the Anthropic API."),
    403: ("permission_error", "Your API key does not have permission to use the specified resource"),
    404: ("not_found_error", "Not found"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your rate limit"),
    504: ("timeout_error", "Request timed out"),
    529: ("overloaded_error", "Overloaded"),
}
_OTHER = ("api_error", "Internal server error")


class AnthropicWire:
    """``POST /v1/messages``."""

    name: ProtocolName = "anthropic"
    request_id_header = "request-id"

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Return the key that a request carries: its own header, or the bearer that newer clients send."""
        return headers.get("x-api-key") or bearer_key(headers)

    def whole(self, say: Say, exchange: Exchange) -> Json:
        """Return the reply as one body."""
        content: list[Json] = []
        if say.reasoning:
            content.append({"type": "thinking", "thinking": say.reasoning, "signature": _make_signature(say.reasoning)})
        if say.text:
            content.append({"type": "text", "text": say.text})
        content += [{**_make_tool_use(call), "input": _parse_arguments(call.written)} for call in say.calls]
        tokens = say.tokens(exchange.prompt_bytes)
        return {**_make_message(exchange, tokens), "content": content, "stop_reason": _STOPS[say.ending]}

    def frames(self, say: Say, exchange: Exchange) -> Iterator[Frame]:
        """Yield the reply as a stream."""
        tokens = say.tokens(exchange.prompt_bytes)
        start = _make_message(exchange, tokens)
        start["usage"] = {**_make_usage(tokens), "output_tokens": 1}
        yield _make_event({"type": "message_start", "message": start})
        yield _make_event({"type": "ping"})
        for index, block in enumerate(_iterate_blocks(say)):
            yield from _iterate_block_frames(index, *block)
        stop = {"stop_reason": _STOPS[say.ending], "stop_sequence": None}
        yield _make_event({"type": "message_delta", "delta": stop, "usage": _make_usage(tokens)})
        yield _make_event({"type": "message_stop"})

    def error(self, fail: Fail, request_id: str) -> Json:
        """Return the body of an error."""
        kind, message = _ERRORS.get(fail.status, _OTHER)
        error = {"type": fail.kind or kind, "message": fail.message or message}
        return {"type": "error", "error": error, "request_id": request_id}

    def stream_error(self, fail: Fail, exchange: Exchange, number: int) -> Frame:
        """Return an error that comes inside a stream."""
        return _make_event(self.error(fail, exchange.id))

    def models(self, names: Sequence[str]) -> Json:
        """Return the body that lists models."""
        data = [
            {"type": "model", "id": name, "display_name": name, "created_at": "2025-01-01T00:00:00Z"} for name in names
        ]
        edges = {"first_id": names[0], "last_id": names[-1]} if names else {"first_id": None, "last_id": None}
        return {"data": data, "has_more": False, **edges}


_Block = tuple[Json, list[Json]]


def _iterate_blocks(say: Say) -> Iterator[_Block]:
    """Yield each content block of a reply as it starts, and the deltas that fill it."""
    if say.reasoning:
        deltas: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in say.pieces(say.reasoning)]
        deltas.append({"type": "signature_delta", "signature": _make_signature(say.reasoning)})
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if say.text:
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in say.pieces(say.text)]
    for call in say.calls:
        pieces = ["", *say.argument_pieces(call)]
        yield _make_tool_use(call), [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


def _iterate_block_frames(index: int, block: Json, deltas: Sequence[Json]) -> Iterator[Frame]:
    yield _make_event({"type": "content_block_start", "index": index, "content_block": block})
    for delta in deltas:
        carries = delta["type"] != "signature_delta" and delta.get("partial_json") != ""
        yield _make_event({"type": "content_block_delta", "index": index, "delta": delta}, piece=carries)
    yield _make_event({"type": "content_block_stop", "index": index})


def _make_event(data: Json, *, piece: bool = False) -> Frame:
    return event(data, name=str(data["type"]), piece=piece)


def _make_message(exchange: Exchange, tokens: Tokens) -> dict[str, object]:
    return {
        "id": f"msg_{exchange.id}",
        "type": "message",
        "role": "assistant",
        "model": exchange.options.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _make_usage(tokens),
    }


def _make_tool_use(call: Ask) -> dict[str, object]:
    return {"type": "tool_use", "id": call.id_like("toolu_"), "name": call.name, "input": {}}


def _parse_arguments(arguments: str) -> object:
    """Return the input of a tool call; text that isn't JSON stays text."""
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments


def _make_signature(reasoning: str) -> str:
    return base64.b64encode(hashlib.sha256(reasoning.encode()).digest()).decode()


def _make_usage(tokens: Tokens) -> dict[str, object]:
    return {
        "input_tokens": tokens.input,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "output_tokens": tokens.output,
    }
