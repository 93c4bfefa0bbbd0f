"""OpenAI's Chat Completions, as the vendor's server speaks it."""

import time
from collections.abc import Iterator, Mapping, Sequence

from talaria.testing.model_server.exchange import Ask, Exchange, ProtocolName, Say, Tokens
from talaria.testing.model_server.faults import Fail
from talaria.testing.model_server.wire import Frame, Json, bearer_key, error_object, event, model_list

_STOPS = {"end": "stop", "tool_calls": "tool_calls", "length": "length", "refused": "content_filter"}
_DONE = Frame(b"data: [DONE]\n\n")


class ChatWire:
    """``POST /v1/chat/completions``."""

    name: ProtocolName = "chat"
    request_id_header = "x-request-id"

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Return the key that a request carries."""
        return bearer_key(headers)

    def whole(self, say: Say, exchange: Exchange) -> Json:
        """Return the reply as one body."""
        message: dict[str, object] = {"role": "assistant", "content": say.text or None, "refusal": None}
        if not say.calls:
            message["content"] = say.text
        if say.reasoning:
            message["reasoning_content"] = say.reasoning
        if say.calls:
            message["tool_calls"] = [_call(call) for call in say.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS[say.ending]}
        usage = _usage(say.tokens(exchange.prompt_bytes))
        return {**_head(exchange, "chat.completion"), "choices": [choice], "usage": usage}

    def frames(self, say: Say, exchange: Exchange) -> Iterator[Frame]:
        """Yield the reply as a stream."""
        head = _head(exchange, "chat.completion.chunk") | ({"usage": None} if exchange.asked.wants_usage else {})
        yield _chunk(
            head, {"role": "assistant", "content": None if say.calls and not say.text else "", "refusal": None}
        )
        for piece in say.pieces(say.reasoning):
            yield _chunk(head, {"reasoning_content": piece}, piece=True)
        for piece in say.pieces(say.text):
            yield _chunk(head, {"content": piece}, piece=True)
        for index, call in enumerate(say.calls):
            opening = {"index": index, **_call(call, arguments="")}
            yield _chunk(head, {"tool_calls": [opening]})
            for piece in say.argument_pieces(call):
                delta = {"index": index, "function": {"arguments": piece}}
                yield _chunk(head, {"tool_calls": [delta]}, piece=True)
        yield _chunk(head, {}, finish=_STOPS[say.ending])
        if exchange.asked.wants_usage:
            yield event({**head, "choices": [], "usage": _usage(say.tokens(exchange.prompt_bytes))})
        yield _DONE

    def error(self, fail: Fail, request_id: str) -> Json:
        """Return the body of an error."""
        return {"error": error_object(fail)}

    def stream_error(self, fail: Fail, exchange: Exchange, number: int) -> Frame:
        """Return an error that comes inside a stream."""
        return event(self.error(fail, exchange.id))

    def models(self, names: Sequence[str]) -> Json:
        """Return the body that lists models."""
        return model_list(names)


def _head(exchange: Exchange, kind: str) -> dict[str, object]:
    return {
        "id": f"chatcmpl-{exchange.id}",
        "object": kind,
        "created": int(time.time()),
        "model": exchange.asked.model,
        "service_tier": "default",
        "system_fingerprint": "fp_talaria",
    }


def _chunk(head: Json, delta: Json, *, finish: str | None = None, piece: bool = False) -> Frame:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return event({**head, "choices": [choice]}, piece=piece)


def _call(call: Ask, *, arguments: str | None = None) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.written if arguments is None else arguments}
    return {"id": call.id_like("call_"), "type": "function", "function": function}


def _usage(tokens: Tokens) -> Json:
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.prompt + tokens.output,
        "prompt_tokens_details": {
            "cached_tokens": tokens.cache_read,
            "cache_write_tokens": tokens.cache_write,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": tokens.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
