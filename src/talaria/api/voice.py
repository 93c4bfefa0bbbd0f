"""Routes for voice assistants: a question in, a sentence to speak out, within seconds.

An answer that takes longer is sent to the owner's home chat.
"""

import asyncio
from datetime import UTC, datetime
from functools import partial

from msgspec import Struct

from talaria.api.front_door import ApiCaller, ApiRequest
from talaria.api.turns.session_pool import SESSION_HEADER, SessionPool, require_session
from talaria.api.turns.turn import ApiTurn, TurnRequest
from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.contracts.turns import TurnResult
from talaria.contracts.values import NamedValue
from talaria.core.addresses import WEB
from talaria.core.errors import TalariaError
from talaria.core.events import TurnEnd, TurnEvent
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import Message, Text
from talaria.http.errors import Problem
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.runtime.cross_posts import CrossPost, send_cross_post
from talaria.runtime.outbox import render_turn_end
from talaria.sessions.chat_directory import HOME_CHAT, HomeChat
from talaria.settings.model import LiveSettings

_TEXT = "text/plain; charset=utf-8"
_MAX_SECONDS = 300.0
_INSTRUCTIONS = (
    "Your answer is spoken by a voice assistant: one to three short sentences, no Markdown, no lists, no addresses."
)
_LATER = "That takes a little longer. I'll send you the answer."
_NO_HOME = "That takes longer than I can wait here. Ask me again in a minute."
LATE_ANSWER = NamedValue("late_answer", str)  # question whose answer will be sent, by its id


class AskQuery(Struct, frozen=True):
    """Query of a question; ``seconds`` is how long the caller waits, by default as in the settings."""

    seconds: float | None = None


class ConversationInput(Struct, frozen=True):
    """Question in the format of Home Assistant's conversation API."""

    text: str
    language: str = "en"
    conversation_id: str | None = None
    agent_id: str | None = None


class PlainSpeech(Struct, frozen=True):
    """Sentence to speak."""

    speech: str
    extra_data: None = None


class Speech(Struct, frozen=True):
    """Speech of a response."""

    plain: PlainSpeech


class ResponseData(Struct, frozen=True):
    """Devices concerned: always none."""

    targets: tuple[str, ...] = ()
    success: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class ConversationResponse(Struct, frozen=True):
    """Answer in that format."""

    speech: Speech
    language: str
    response_type: str = "query_answer"
    data: ResponseData = ResponseData()


class ConversationResult(Struct, frozen=True):
    """Answer with the id by which the next question continues the conversation."""

    response: ConversationResponse
    conversation_id: str


class VoiceRoutes:
    """Plain questions, and those of Home Assistant."""

    def __init__(self, session_pool: SessionPool, settings: LiveSettings) -> None:
        self._session_pool = session_pool
        self._store = session_pool.application.store
        self._settings = settings

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="POST", path="/v1/ask", handler=self._ask, summary="Ask in plain text, for shortcuts",
                  scope="chat", asks=AskQuery, lasting=True, used_headers=(SESSION_HEADER,), tag="voice"),
            Route(method="POST", path="/api/conversation/process", handler=self._process,
                  summary="Ask as in Home Assistant's conversation API", scope="chat", takes=ConversationInput,
                  reply_type=ConversationResult, lasting=True, tag="voice"),
        )  # fmt: skip

    async def _ask(self, request: ApiRequest) -> Reply:
        seconds = request.parse_query(AskQuery).seconds
        text = request.body.decode(errors="replace").replace("\0", "").strip()
        named = request.headers.get(SESSION_HEADER, "")
        if named:
            await self._store.read(lambda tx: require_session(tx, named, request.caller))
        answer, session_id = await self._answer(request.caller, text, named, seconds)
        return Reply(body=answer.encode(), content_type=_TEXT, headers={SESSION_HEADER: session_id})

    async def _process(self, request: ApiRequest) -> Reply:
        asked = request.read(ConversationInput)
        known = await self._find_session(request.caller, asked.conversation_id or "")
        text, session_id = await self._answer(request.caller, asked.text.replace("\0", "").strip(), known, None)
        response = ConversationResponse(Speech(PlainSpeech(text)), asked.language)
        return make_json_reply(ConversationResult(response, session_id))

    async def _find_session(self, caller: ApiCaller, name: str) -> str:
        """Return a session that the caller may continue; empty for the id of another program."""
        try:
            return (await self._store.read(lambda tx: require_session(tx, name, caller))).id if name else ""
        except Problem:
            return ""

    async def _answer(self, caller: ApiCaller, text: str, named: str, seconds: float | None) -> tuple[str, SessionId]:
        """Return the answer, or a sentence that it will be sent, and the session."""
        if not text:
            raise Problem("The question is empty.", code="invalid_value")
        question = _Question(self._session_pool, caller, text, named)
        patience = self._settings.current.api.voice_seconds if seconds is None else seconds
        running = self._session_pool.jobs.create_task(question.run())
        await asyncio.wait({running}, timeout=min(max(patience, 0.0), _MAX_SECONDS))
        if running.done():
            return question.get_answer(), question.session_id
        promised = not caller.owner and await self._store.write(question.promise)
        if running.done() and (not promised or await self._store.write(question.withdraw_promise)):
            return question.get_answer(), question.session_id  # it ended in this moment
        return _LATER if promised else _NO_HOME, question.session_id


class _Question:
    """Question that is answered even if its caller doesn't wait."""

    def __init__(self, session_pool: SessionPool, caller: ApiCaller, text: str, session_id: str) -> None:
        self._store = session_pool.application.store
        self._platforms = session_pool.application.platforms
        self._id = new_id()
        self._text = text
        self._end: TurnEnd | None = None
        self._error: Problem | TalariaError | None = None
        message = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
        request = TurnRequest(
            message=message,
            session_id=session_id,
            instructions="" if session_id else _INSTRUCTIONS,
            ended=self._turn_ended,
            on_event=self._handle_event,
        )
        self._turn = ApiTurn(session_pool, request, caller)
        self.session_id = self._turn.session_id

    async def run(self) -> None:
        """Run the turn to its end, and send an answer that was promised meanwhile."""
        try:
            async with self._turn:
                async for _ in self._turn:
                    pass
        except (Problem, TalariaError) as error:
            self._error = error
        if self._end is not None:
            await self._store.write(partial(self._send_late, text=render_turn_end(self._end)))

    def get_answer(self) -> str:
        """Return the answer, or raise the error that ended the turn."""
        if self._error is not None:
            raise self._error
        return render_turn_end(self._end) if self._end is not None else _NO_HOME

    def promise(self, tx: Transaction) -> bool:
        """Record that the answer has to be sent; ``False`` if there is no home chat to send it to."""
        if self._find_home(tx) is None:
            return False
        LATE_ANSWER.write(tx, self._id, self._text)
        return True

    def withdraw_promise(self, tx: Transaction) -> bool:
        """Withdraw the promise; ``False`` if the answer was already sent."""
        return LATE_ANSWER.delete(tx, self._id)

    def _find_home(self, tx: Transaction) -> HomeChat | None:
        """Return a home chat that can be reached: one on a network, or else the web app."""
        homes = HOME_CHAT.items(tx)
        reached = [name for name in homes if self._platforms.get(name)]
        return homes[min(reached, key=lambda name: name == WEB)] if reached else None

    def _handle_event(self, event: TurnEvent) -> None:
        if isinstance(event, TurnEnd):
            self._end = event

    def _turn_ended(self, tx: Transaction, result: TurnResult) -> None:
        self._send_late(tx, text=render_turn_end(result.end))

    def _send_late(self, tx: Transaction, text: str) -> None:
        """Send a promised answer to the home chat, once."""
        question = LATE_ANSWER.get(tx, self._id)
        if question is None or not LATE_ANSWER.delete(tx, self._id):
            return
        home = self._find_home(tx)
        if home is not None:
            content = Content(text=f"> {' '.join(question.split())}\n\n{text}")
            key, now = f"voice:{self._id}", datetime.now(UTC)
            send_cross_post(
                tx,
                CrossPost(
                    key=key,
                    address=home.address,
                    content=content,
                    source="a voice assistant",
                    at=now,
                    sender=self.session_id,
                ),
            )
