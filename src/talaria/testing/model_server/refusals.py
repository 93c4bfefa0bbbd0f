"""Requests that the vendors' servers refuse."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from talaria.testing.model_server.exchange import Asked, Received
from talaria.testing.model_server.faults import Fail
from talaria.testing.model_server.wire import Wire

_REQUIRED = {
    "chat": ("model", "messages"),
    "responses": ("model", "input"),
    "anthropic": ("model", "max_tokens", "messages"),
}


def refused_headers(wire: Wire, headers: Mapping[str, str], keys: Collection[str] | None) -> Fail | None:
    """Return the error for a wrong key or version; without ``keys`` any key is accepted."""
    key = wire.key(headers)
    if wire.name == "anthropic" and not key:
        return Fail(401, message="x-api-key header is required")
    if keys is not None and key not in keys:
        return Fail(401)
    if wire.name == "anthropic" and "anthropic-version" not in headers:
        return Fail(400, message="anthropic-version: header is required")
    return None


def refused_body(received: Received) -> Fail | None:
    """Return the error in the body: not JSON, a missing field, a tool call without a result."""
    try:
        body = received.json
        msgspec.convert(body, Asked)
    except msgspec.ValidationError as error:
        return Fail(400, message=str(error))
    except msgspec.DecodeError:
        return Fail(400, message="We could not parse the JSON body of your request.")
    for name in _REQUIRED[received.protocol]:
        if name not in body:
            return Fail(400, kind=_missing_kind(received), param=name, message=f"{name}: Field required")
    unpaired = next(_UNPAIRED[received.protocol](body), None)
    return Fail(400, message=unpaired) if unpaired else None


def _missing_kind(received: Received) -> str | None:
    return None if received.protocol == "anthropic" else "missing_required_parameter"


def _unpaired_in_chat(body: dict[str, Any]) -> Iterator[str]:
    waiting: set[str] = set()
    for message in body["messages"]:
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in waiting:
                yield "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
            waiting.discard(message.get("tool_call_id", ""))
        elif waiting:
            break
        else:
            waiting = {call["id"] for call in message.get("tool_calls") or ()}
    if waiting:
        ids = ", ".join(sorted(waiting))
        yield f"An assistant message with 'tool_calls' must be followed by tool messages. Without response: {ids}"


def _unpaired_in_responses(body: dict[str, Any]) -> Iterator[str]:
    items = body["input"] if isinstance(body["input"], list) else []
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    for call in calls:
        if call not in outputs:
            yield f"No tool output found for function call {call}."
    for output in outputs:
        if output not in calls and not body.get("previous_response_id"):
            yield f"No tool call found for function call output with call_id {output}."


def _unpaired_in_anthropic(body: dict[str, Any]) -> Iterator[str]:
    waiting: set[str] = set()
    for number, message in enumerate(body["messages"]):
        results = _ids(message, "tool_result", "tool_use_id")
        if results - waiting:
            yield f"messages.{number}: unexpected `tool_use_id` in `tool_result` blocks"
        if waiting - results:
            yield f"messages.{number - 1}: `tool_use` ids were found without `tool_result` blocks immediately after"
        waiting = _ids(message, "tool_use", "id")
    if waiting:
        yield f"messages.{len(body['messages']) - 1}: `tool_use` ids were found without `tool_result` blocks after"


def _ids(message: dict[str, Any], kind: str, field: str) -> set[str]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return {block.get(field, "") for block in blocks if block.get("type") == kind}


_UNPAIRED = {
    "chat": _unpaired_in_chat,
    "responses": _unpaired_in_responses,
    "anthropic": _unpaired_in_anthropic,
}
