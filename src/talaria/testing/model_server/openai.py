"""OpenAI's Chat Completions and Responses, as the vendor's server speaks them."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from talaria.core.ids import new_id
from talaria.testing.model_server.exchange import Ask, Exchange, Fail, ProtocolName, Say, Tokens
from talaria.testing.model_server.wire import Frame, Json, bearer_key, error_object, event, model_list

_STOPS = {"end": "stop", "tool_calls": "tool_calls", "length": "length", "refused": "content_filter"}
_DONE = Frame(b"data: [DONE]\n\n")
_INCOMPLETE = {"length": "max_output_tokens", "refused": "content_filter"}
_ENCRYPTED = "reasoning.encrypted_content"
_Event = tuple[Json, bool]


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
            message["tool_calls"] = [_make_call(call) for call in say.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS[say.ending]}
        usage = _make_usage(say.tokens(exchange.prompt_bytes))
        return {**_make_head(exchange, "chat.completion"), "choices": [choice], "usage": usage}

    def frames(self, say: Say, exchange: Exchange) -> Iterator[Frame]:
        """Yield the reply as a stream."""
        head = _make_head(exchange, "chat.completion.chunk") | ({"usage": None} if exchange.options.wants_usage else {})
        yield _make_chunk(
            head, {"role": "assistant", "content": None if say.calls and not say.text else "", "refusal": None}
        )
        for piece in say.pieces(say.reasoning):
            yield _make_chunk(head, {"reasoning_content": piece}, piece=True)
        for piece in say.pieces(say.text):
            yield _make_chunk(head, {"content": piece}, piece=True)
        for index, call in enumerate(say.calls):
            opening = {"index": index, **_make_call(call, arguments="")}
            yield _make_chunk(head, {"tool_calls": [opening]})
            for piece in say.argument_pieces(call):
                delta = {"index": index, "function": {"arguments": piece}}
                yield _make_chunk(head, {"tool_calls": [delta]}, piece=True)
        yield _make_chunk(head, {}, finish=_STOPS[say.ending])
        if exchange.options.wants_usage:
            yield event({**head, "choices": [], "usage": _make_usage(say.tokens(exchange.prompt_bytes))})
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


class ResponsesWire:
    """``POST /v1/responses``."""

    name: ProtocolName = "responses"
    request_id_header = "x-request-id"

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Return the key that a request carries."""
        return bearer_key(headers)

    def whole(self, say: Say, exchange: Exchange) -> Json:
        """Return the reply as one body."""
        return _complete_response(
            _make_response(exchange), say, [item.done for item in _iterate_items(say, exchange)], exchange.prompt_bytes
        )

    def frames(self, say: Say, exchange: Exchange) -> Iterator[Frame]:
        """Yield the reply as a stream, its events numbered in order."""
        for number, (data, piece) in enumerate(_iterate_events(say, exchange)):
            yield event({**data, "sequence_number": number}, name=str(data["type"]), piece=piece)

    def error(self, fail: Fail, request_id: str) -> Json:
        """Return the body of an error."""
        return {"error": error_object(fail)}

    def stream_error(self, fail: Fail, exchange: Exchange, number: int) -> Frame:
        """Return an error that comes inside a stream."""
        error = error_object(fail)
        reason = {"code": error["code"] or error["type"], "message": error["message"]}
        failed = {**_make_response(exchange), "status": "failed", "error": reason}
        return event({"type": "response.failed", "response": failed, "sequence_number": number}, name="response.failed")

    def models(self, names: Sequence[str]) -> Json:
        """Return the body that lists models."""
        return model_list(names)


@dataclass(frozen=True, slots=True)
class _Item:
    """An output item: as it starts, the events that fill it (``delta`` ones are pieces), as it ends."""

    added: Json
    filling: Sequence[Json]
    done: Json


def _make_head(exchange: Exchange, kind: str) -> dict[str, object]:
    return {
        "id": f"chatcmpl-{exchange.id}",
        "object": kind,
        "created": int(time.time()),
        "model": exchange.options.model,
        "service_tier": "default",
        "system_fingerprint": "fp_talaria",
    }


def _make_chunk(head: Json, delta: Json, *, finish: str | None = None, piece: bool = False) -> Frame:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return event({**head, "choices": [choice]}, piece=piece)


def _make_call(call: Ask, *, arguments: str | None = None) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.written if arguments is None else arguments}
    return {"id": call.id_like("call_"), "type": "function", "function": function}


def _make_usage(tokens: Tokens) -> Json:
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


def _iterate_events(say: Say, exchange: Exchange) -> Iterator[_Event]:
    response = _make_response(exchange)
    yield {"type": "response.created", "response": response}, False
    yield {"type": "response.in_progress", "response": response}, False
    output: list[Json] = []
    for index, item in enumerate(_iterate_items(say, exchange)):
        yield {"type": "response.output_item.added", "output_index": index, "item": item.added}, False
        for one in item.filling:
            yield {**one, "item_id": item.done["id"], "output_index": index}, "delta" in one
        yield {"type": "response.output_item.done", "output_index": index, "item": item.done}, False
        output.append(item.done)
    ended = _complete_response(response, say, output, exchange.prompt_bytes)
    yield {"type": f"response.{ended['status']}", "response": ended}, False


def _iterate_items(say: Say, exchange: Exchange) -> Iterator[_Item]:
    if say.reasoning:
        yield _make_reasoning(say, exchange)
    if say.text:
        yield _make_message(say)
    for call in say.calls:
        yield _make_function_call(say, call)


def _make_reasoning(say: Say, exchange: Exchange) -> _Item:
    item: dict[str, object] = {"id": f"rs_{new_id()}", "type": "reasoning", "summary": []}
    if _ENCRYPTED in (exchange.options.include or ()):
        item["encrypted_content"] = f"sealed-{new_id()}"
    part = {"type": "summary_text", "text": say.reasoning}
    kind = "response.reasoning_summary"
    filling: list[Json] = [
        {"type": f"{kind}_part.added", "part": {**part, "text": ""}},
        *({"type": f"{kind}_text.delta", "delta": piece} for piece in say.pieces(say.reasoning)),
        {"type": f"{kind}_text.done", "text": say.reasoning},
        {"type": f"{kind}_part.done", "part": part},
    ]
    return _Item(item, [{**one, "summary_index": 0} for one in filling], {**item, "summary": [part]})


def _make_message(say: Say) -> _Item:
    item = {"id": f"msg_{new_id()}", "type": "message", "role": "assistant", "content": []}
    part = {"type": "output_text", "text": say.text, "annotations": [], "logprobs": []}
    kind = "response.output_text"
    filling: list[Json] = [
        {"type": "response.content_part.added", "part": {**part, "text": ""}},
        *({"type": f"{kind}.delta", "delta": piece, "logprobs": []} for piece in say.pieces(say.text)),
        {"type": f"{kind}.done", "text": say.text, "logprobs": []},
        {"type": "response.content_part.done", "part": part},
    ]
    done = {**item, "status": "incomplete" if say.ending in _INCOMPLETE else "completed", "content": [part]}
    return _Item({**item, "status": "in_progress"}, [{**one, "content_index": 0} for one in filling], done)


def _make_function_call(say: Say, call: Ask) -> _Item:
    item = {"id": f"fc_{new_id()}", "type": "function_call", "name": call.name, "call_id": call.id_like("call_")}
    kind = "response.function_call_arguments"
    filling: list[Json] = [
        *({"type": f"{kind}.delta", "delta": piece} for piece in say.argument_pieces(call)),
        {"type": f"{kind}.done", "arguments": call.written},
    ]
    started = {**item, "status": "in_progress", "arguments": ""}
    return _Item(started, filling, {**item, "status": "completed", "arguments": call.written})


def _make_response(exchange: Exchange) -> dict[str, object]:
    return {
        "id": f"resp_{exchange.id}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": exchange.options.model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None,
    }


def _complete_response(response: Json, say: Say, output: Sequence[Json], prompt_bytes: int) -> Json:
    reason = _INCOMPLETE.get(say.ending)
    return {
        **response,
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "output": output,
        "usage": _make_responses_usage(say.tokens(prompt_bytes)),
    }


def _make_responses_usage(tokens: Tokens) -> Json:
    return {
        "input_tokens": tokens.prompt,
        "input_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.prompt + tokens.output,
    }
