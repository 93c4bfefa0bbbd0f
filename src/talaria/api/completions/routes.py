"""`/v1/chat/completions`: the request, the session it continues, and its turn."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial

import msgspec
from msgspec import Struct

from talaria.api.completions.outgoing import ChunkEncoder, CompletionCollector
from talaria.api.completions.wire import (
    ChatCompletion,
    Chunk,
    CreateCompletion,
    FileData,
    FilePart,
    ImagePart,
    RefusalPart,
    TextPart,
    WireMessage,
)
from talaria.api.files import ImageStore
from talaria.api.front_door import ApiCaller, ApiRequest
from talaria.api.meta import ModelNames
from talaria.api.turns.session_pool import SESSION_HEADER, SessionPool, require_session
from talaria.api.turns.turn import ApiTurn, TurnRequest
from talaria.contracts.store import Transaction
from talaria.contracts.turns import TurnResult
from talaria.contracts.values import SessionValue
from talaria.core.errors import TalariaError
from talaria.core.events import ToolAnswered, ToolCalled, TurnAnswered
from talaria.core.ids import SessionId, new_session_id
from talaria.core.messages import Message, Part, Text, ToolCall, ToolResult
from talaria.http.errors import Problem, make_unsupported, to_problem
from talaria.http.routing import Reply, Route, make_event_reply, make_json_reply

_TOOLS = "The agent uses its own tools and can't call a client's. Remove `{name}`."
_INSTRUCTION_ROLES = ("system", "developer")
EVENTS_HEADER = "x-talaria-events"
HISTORY_DIGEST = SessionValue("history_digest", int)  # number of messages, by digest of the history


class CompletionInput(Struct, frozen=True):
    """A parsed request: instructions, history, and the new message."""

    instructions: str
    history: tuple[WireMessage, ...]
    last: WireMessage


def check_supported(body: CreateCompletion) -> None:
    """Raise a `Problem` for unsupported options instead of ignoring them."""
    if body.tools:
        raise make_unsupported("tools", _TOOLS.format(name="tools"))
    if body.functions:
        raise make_unsupported("functions", _TOOLS.format(name="functions"))
    if body.n not in (None, 1):
        raise make_unsupported("n", "Each request gets one answer: `n` must be 1.")
    if body.response_format is not None and body.response_format.type != "text":
        raise make_unsupported("response_format", "The agent answers in plain text: `response_format` must be `text`.")
    if body.stop:
        raise make_unsupported("stop", "Stop sequences are not supported. Remove `stop`.")
    if body.logprobs:
        raise make_unsupported("logprobs", "Log probabilities are not available. Remove `logprobs`.")
    if body.audio is not None or (body.modalities or ["text"]) != ["text"]:
        raise make_unsupported("modalities", "The agent answers in text: `modalities` must be `text`.")


def split_messages(messages: Sequence[WireMessage]) -> CompletionInput:
    """Return the parsed messages; raises a `Problem` unless the last one is from a user."""
    entries = [get_text(message) for message in messages if message.role in _INSTRUCTION_ROLES]
    dialogue = [message for message in messages if message.role not in _INSTRUCTION_ROLES]
    if not dialogue or dialogue[-1].role != "user":
        raise Problem("The last message must have the role `user`.", param="messages", code="invalid_value")
    last = dialogue[-1]
    if not (get_text(last).strip() or list_image_urls(last) or list_files(last)):
        raise Problem("The last message is empty.", param="messages", code="invalid_value")
    return CompletionInput("\n\n".join(filter(None, entries)), tuple(dialogue[:-1]), dialogue[-1])


def get_text(message: WireMessage) -> str:
    """Return the text of a message, without characters that a store rejects."""
    if message.content is None or isinstance(message.content, str):
        return (message.content or "").replace("\0", "")
    texts = (_get_part_text(part) for part in message.content if not isinstance(part, ImagePart | FilePart))
    return "\n".join(texts).replace("\0", "")


def list_image_urls(message: WireMessage) -> list[str]:
    """Return the URLs of its images."""
    parts = message.content if isinstance(message.content, list) else []
    return [part.image_url.url for part in parts if isinstance(part, ImagePart)]


def list_files(message: WireMessage) -> list[FileData]:
    """Return its files."""
    parts = message.content if isinstance(message.content, list) else []
    return [part.file for part in parts if isinstance(part, FilePart)]


def compute_fingerprint(
    caller: str, instructions: str, messages: Sequence[WireMessage], reply: str | None = None
) -> str:
    """Return the fingerprint of a history as a client sends it; ``reply`` is the last answer.

    Only words count: some clients change what is between them.
    """
    entries = [(message.role, get_text(message).split(), list_image_urls(message)) for message in messages]
    if reply is not None:
        entries.append(("assistant", reply.split(), []))
    return hashlib.sha256(msgspec.json.encode((caller, instructions, entries))).hexdigest()


def _get_part_text(part: TextPart | RefusalPart) -> str:
    return part.text if isinstance(part, TextPart) else part.refusal


async def convert_history(
    messages: Sequence[WireMessage], image_store: ImageStore, session_id: SessionId
) -> tuple[Message, ...]:
    """Return the messages of a new session.

    A call without its result, and a result without its call, are left out: models accept them only together.
    """
    result_ids = {message.tool_call_id for message in messages if message.role == "tool"}
    call_ids = {call.id for message in messages for call in message.tool_calls or ()}
    paired = {name for name in call_ids if name in result_ids}
    found = [await _convert(message, paired, image_store, session_id) for message in messages]
    return tuple(message for message in found if message.parts)


async def convert_message(message: WireMessage, image_store: ImageStore, session_id: SessionId) -> Message:
    """Return the message of the user."""
    return await _convert(message, set(), image_store, session_id)


async def _convert(message: WireMessage, paired: set[str], image_store: ImageStore, session_id: SessionId) -> Message:
    now, words = datetime.now(UTC), get_text(message)
    if message.role in {"tool", "function"}:
        known = message.tool_call_id in paired
        return Message(role="tool", parts=(ToolResult(message.tool_call_id or "", words),) if known else (), at=now)
    images: list[Part] = [await image_store.store_image(url, session_id) for url in list_image_urls(message)]
    images += [await image_store.store_file(one.file_data, one.filename, session_id) for one in list_files(message)]
    parts: list[Part] = [Text(words)] if words else []
    calls = [
        ToolCall(call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls or ()
        if call.id in paired
    ]
    return Message(role="assistant" if message.role == "assistant" else "user", parts=(*parts, *images, *calls), at=now)


class CompletionRoutes:
    """The route for chat completions."""

    def __init__(self, session_pool: SessionPool, models: ModelNames, image_store: ImageStore) -> None:
        self._session_pool = session_pool
        self._store = session_pool.application.store
        self._models = models
        self._image_store = image_store

    def routes(self) -> tuple[Route, ...]:
        """Return the route."""
        return (
            Route(
                method="POST",
                path="/v1/chat/completions",
                handler=self._create,
                summary="Create a chat completion",
                scope="chat",
                takes=CreateCompletion,
                reply_type=ChatCompletion,
                events=Chunk,
                repeatable=True,
                used_headers=(SESSION_HEADER, EVENTS_HEADER),
                tag="chat completions",
            ),
        )

    async def _create(self, request: ApiRequest) -> Reply:
        body = request.read(CreateCompletion)
        check_supported(body)
        parsed = split_messages(body.messages)
        answer = CompletionCollector(_find_address(request))
        turn = ApiTurn(self._session_pool, await self._build_request(request, body, parsed, answer), request.caller)
        headers = {SESSION_HEADER: turn.session_id}
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(turn)
            if body.stream:
                counting = body.stream_options is not None and bool(body.stream_options.include_usage)
                chunks = ChunkEncoder(body.model, counting=counting)
                tool_events = request.headers.get(EVENTS_HEADER, "")
                shown = CompletionCollector(_find_address(request))
                stream = _CompletionStream(turn, chunks, shown, tool_events, stack.pop_all())
                return make_event_reply(stream, headers=headers)
            async for _ in turn:
                pass  # ``answer`` hears them
        problem = answer.problem
        if problem is not None:
            problem.headers |= headers
            raise problem
        return make_json_reply(answer.build_completion(body.model), headers=headers)

    async def _build_request(
        self, request: ApiRequest, body: CreateCompletion, parsed: CompletionInput, collector: CompletionCollector
    ) -> TurnRequest:
        """Return the turn to run: in the named session, in the one with this history, or in a new one.

        ``collector`` gets its events.
        """
        caller, model = request.caller.name, await self._models.resolve(body.model)
        named = request.headers.get(SESSION_HEADER, "")
        if named:  # before anything is stored in its folder
            await self._store.read(lambda tx: require_session(tx, named, request.caller))
        session_id = named or await self._find_session(request.caller, parsed)
        target_id = SessionId(session_id) if session_id else new_session_id()
        past_messages = () if session_id else await convert_history(parsed.history, self._image_store, target_id)
        store_fingerprint = partial(
            _store_fingerprint, caller=caller, parsed=parsed, collector=collector, streamed=bool(body.stream)
        )
        return TurnRequest(
            message=await convert_message(parsed.last, self._image_store, target_id),
            session_id=session_id,
            new_id=target_id,
            instructions=parsed.instructions,
            history=past_messages,
            model=model,
            ended=None if named else store_fingerprint,
            on_event=collector.take,
        )

    async def _find_session(self, caller: ApiCaller, parsed: CompletionInput) -> str:
        """Return the session whose transcript is the history of the request, if there is one.

        It is found once: a second client that continues from the same point starts a branch.
        """
        if not parsed.history:
            return ""
        digest = compute_fingerprint(caller.name, parsed.instructions, parsed.history)
        if not await self._store.read(lambda tx: HISTORY_DIGEST.with_item(tx, digest)):
            return ""
        return await self._store.write(lambda tx: _claim_session(tx, digest, caller))


class _CompletionStream:
    """Implements `Stream`; ``tool_events`` selects the events of tools, and closing ``stack`` leaves the turn."""

    def __init__(
        self,
        turn: ApiTurn,
        chunks: ChunkEncoder,
        answer: CompletionCollector,
        tool_events: str,
        stack: AsyncExitStack,
    ) -> None:
        self._turn = turn
        self._stack = stack
        self._answer = answer
        self._chunks = chunks
        self._hides_tools = tool_events == "none"
        self._names_tool_events = tool_events == "tools"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._chunks.begin()
        try:
            async for event in self._turn:
                new = self._answer.take(event)
                if new:
                    yield self._chunks.encode_text(new)
                elif isinstance(event, ToolCalled | ToolAnswered) and not self._hides_tools:
                    yield self._chunks.encode_tool_progress(event, named=self._names_tool_events)
            last = self._chunks.end(self._answer)
        except TalariaError as error:
            last = self._chunks.encode_error(to_problem(error))
        yield last

    @property
    def is_whole(self) -> bool:
        return self._answer.end is not None

    async def close(self) -> None:
        await self._stack.aclose()


def _find_address(request: ApiRequest) -> str:
    """Return the address of this server as the client reaches it, if it is known."""
    host = request.headers.get("host", "")
    scheme = "https" if request.headers.get("x-forwarded-proto") == "https" else "http"
    return f"{scheme}://{host}" if host else ""


def _claim_session(tx: Transaction, digest: str, caller: ApiCaller) -> str:
    """Return the latest session with this history, if it is still at its end; any other one isn't found again."""
    found = [point for point in HISTORY_DIGEST.with_item(tx, digest) if HISTORY_DIGEST.delete(tx, point[0], digest)]
    if not found:
        return ""
    session_id, count = found[-1]
    try:
        session = require_session(tx, session_id, caller)
    except Problem:  # the key had other rights when it was started
        return ""
    return session_id if session.message_count == count else ""


def _store_fingerprint(
    tx: Transaction,
    result: TurnResult,
    *,
    caller: str,
    parsed: CompletionInput,
    collector: CompletionCollector,
    streamed: bool,
) -> None:
    """Store the fingerprint by which the next request, with this history, finds the session."""
    session = tx.sessions.get(result.session_id)
    if not isinstance(result.end, TurnAnswered) or session is None:
        return
    reply = collector.compose_streamed() if streamed else collector.compose_final(result.end)
    digest = compute_fingerprint(caller, parsed.instructions, (*parsed.history, parsed.last), reply)
    HISTORY_DIGEST.write(tx, result.session_id, session.message_count, digest)
