"""The scripted model server: real HTTP on loopback, three wire protocols, any fault, refusals like the vendors'."""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import web

from talaria.core.ids import new_id
from talaria.testing.model_server.anthropic import AnthropicWire
from talaria.testing.model_server.exchange import Exchange, Fail, Received, RequestOptions, Say
from talaria.testing.model_server.media import AudioEndpoints, ImageEndpoints
from talaria.testing.model_server.openai import ChatWire, ResponsesWire
from talaria.testing.model_server.wire import Answer, Delivery, Wire

Answering = Callable[[Received], Answer | Awaitable[Answer]]
_CHAT = ChatWire()
_RESPONSES = ResponsesWire()
_ANTHROPIC = AnthropicWire()
_PATHS: dict[str, Wire] = {
    "/v1/chat/completions": _CHAT,
    "/v1/responses": _RESPONSES,
    "/v1/messages": _ANTHROPIC,
}
_LARGEST_REQUEST = 256 * 1024 * 1024
_REQUIRED = {
    "chat": ("model", "messages"),
    "responses": ("model", "input"),
    "anthropic": ("model", "max_tokens", "messages"),
}


class ModelServer:
    """A scripted server at a free port of loopback; ``async with`` starts and ends it.

    Each model call takes the next answer of the script, then the one set by `otherwise` or `answering`. With ``keys``
    given, any other key is refused. ``received`` has all model calls so far, including refused ones, except those that
    `answer_when` answers: these are in ``received_apart``. ``audio`` and ``images`` have these
    routes.
    """

    def __init__(
        self, *, keys: Collection[str] | None = None, models: Sequence[str] = ("test-model",), port: int = 0
    ) -> None:
        self.received: list[Received] = []
        self.received_apart: list[Received] = []
        self.open_streams = 0
        self._keys = None if keys is None else frozenset(keys)
        self.audio = AudioEndpoints(self._keys)
        self.images = ImageEndpoints(self._keys)
        self._models = models
        self._port = port
        self._script: deque[Answer] = deque()
        self._answer_function: Answering = lambda _: Say("ok")
        self._answers_apart: list[tuple[Callable[[Received], bool], Answer]] = []
        self._disconnects = 0
        self._changed = asyncio.Event()
        self._runner = web.AppRunner(
            self._make_application(), handler_cancellation=True, access_log=None, shutdown_timeout=0.01
        )

    @property
    def url(self) -> str:
        """Return where to reach it, without ``/v1``."""
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def script(self, *answers: Answer) -> None:
        """Add answers for the next model calls, one each, in this order."""
        self._script.extend(answers)

    def otherwise(self, answer: Answer) -> None:
        """Give this answer whenever the script is empty."""
        self._answer_function = lambda _: answer

    def answering(self, answering: Answering) -> None:
        """Compute the answer from the request whenever the script is empty; ``answering`` may be async."""
        self._answer_function = answering

    def answer_when(self, matches: Callable[[Received], bool], answer: Answer) -> None:
        """Answer matching calls apart from the script: for calls that run in parallel with the turns under test.

        If several conditions match, the latest counts.
        """
        self._answers_apart.append((matches, answer))

    async def arrived(self, calls: int = 1) -> None:
        """Wait until so many model calls have come in."""
        while len(self.received) < calls:
            await self._change()

    async def gone(self, clients: int = 1) -> None:
        """Wait until so many clients have hung up before their answer was complete."""
        while self._disconnects < clients:
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _make_application(self) -> web.Application:
        application = web.Application(client_max_size=_LARGEST_REQUEST)
        for path in _PATHS:
            application.router.add_post(path, self._answer)
        application.router.add_get("/v1/models", self._list_models)
        self.audio.add_routes(application.router)
        self.images.add_routes(application.router)
        return application

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        wire = _PATHS[request.path]
        async with self._stream():
            received = Received(wire.name, request.path, request.headers, await request.read())
            apart = next((answer for matches, answer in reversed(self._answers_apart) if matches(received)), None)
            (self.received if apart is None else self.received_apart).append(received)
            self._changed.set()
            refusal = _check_headers(wire, request.headers, self._keys) or _check_body(received)
            if refusal:
                return _make_unknown_route(request, wire).fail(refusal)
            options = msgspec.json.decode(received.body, type=RequestOptions)
            exchange = Exchange(new_id(), options, len(received.body))
            return await Delivery(request, wire, exchange).send(apart or await self._take_answer(received))

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[None]:
        """Count a request as open while it is answered, and its client as gone if it left early."""
        self.open_streams += 1
        try:
            yield
        except (asyncio.CancelledError, ConnectionError):
            self._disconnects += 1
            raise
        finally:
            self.open_streams -= 1
            self._changed.set()

    async def _take_answer(self, received: Received) -> Answer:
        if self._script:
            return self._script.popleft()
        answer = self._answer_function(received)
        return await answer if inspect.isawaitable(answer) else answer

    async def _list_models(self, request: web.Request) -> web.Response:
        wire: Wire = _ANTHROPIC if "anthropic-version" in request.headers else _CHAT
        refusal = _check_headers(wire, request.headers, self._keys)
        if refusal:
            return _make_unknown_route(request, wire).fail(refusal)
        return web.json_response(body=msgspec.json.encode(wire.models(self._models)))


def _make_unknown_route(request: web.Request, wire: Wire) -> Delivery:
    return Delivery(request, wire, Exchange(new_id(), RequestOptions(""), 0))


def _check_headers(wire: Wire, headers: Mapping[str, str], keys: Collection[str] | None) -> Fail | None:
    """Return the error for a wrong key or version; without ``keys`` any key is accepted."""
    key = wire.key(headers)
    if wire.name == "anthropic" and not key:
        return Fail(401, message="x-api-key header is required")
    if keys is not None and key not in keys:
        return Fail(401)
    if wire.name == "anthropic" and "anthropic-version" not in headers:
        return Fail(400, message="anthropic-version: header is required")
    return None


def _check_body(received: Received) -> Fail | None:
    """Return the error in the body: not JSON, a missing field, a tool call without a result."""
    try:
        body = received.json
        msgspec.convert(body, RequestOptions)
    except msgspec.ValidationError as error:
        return Fail(400, message=str(error))
    except msgspec.DecodeError:
        return Fail(400, message="We could not parse the JSON body of your request.")
    for name in _REQUIRED[received.protocol]:
        if name not in body:
            return Fail(400, kind=_choose_missing_kind(received), param=name, message=f"{name}: Field required")
    unpaired = next(_UNPAIRED[received.protocol](body), None)
    return Fail(400, message=unpaired) if unpaired else None


def _choose_missing_kind(received: Received) -> str | None:
    return None if received.protocol == "anthropic" else "missing_required_parameter"


def _find_unpaired_in_chat(body: dict[str, Any]) -> Iterator[str]:
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


def _find_unpaired_in_responses(body: dict[str, Any]) -> Iterator[str]:
    items = body["input"] if isinstance(body["input"], list) else []
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    for call in calls:
        if call not in outputs:
            yield f"No tool output found for function call {call}."
    for output in outputs:
        if output not in calls and not body.get("previous_response_id"):
            yield f"No tool call found for function call output with call_id {output}."


def _find_unpaired_in_anthropic(body: dict[str, Any]) -> Iterator[str]:
    waiting: set[str] = set()
    for number, message in enumerate(body["messages"]):
        results = _collect_ids(message, "tool_result", "tool_use_id")
        if results - waiting:
            yield f"messages.{number}: unexpected `tool_use_id` in `tool_result` blocks"
        if waiting - results:
            yield f"messages.{number - 1}: `tool_use` ids were found without `tool_result` blocks immediately after"
        waiting = _collect_ids(message, "tool_use", "id")
    if waiting:
        yield f"messages.{len(body['messages']) - 1}: `tool_use` ids were found without `tool_result` blocks after"


def _collect_ids(message: dict[str, Any], kind: str, field: str) -> set[str]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return {block.get(field, "") for block in blocks if block.get("type") == kind}


_UNPAIRED = {
    "chat": _find_unpaired_in_chat,
    "responses": _find_unpaired_in_responses,
    "anthropic": _find_unpaired_in_anthropic,
}
