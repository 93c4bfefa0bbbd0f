"""Routes of a conversation: say, steer, stop, answer, commands, take over and hand back."""

import asyncio
from datetime import UTC, datetime
from typing import TypeVar

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Part, Text
from talaria.handoff.service import request_handoff_to, wait_for_handoff
from talaria.http.errors import Problem, make_conflict
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.runtime.active_session import bind_session
from talaria.runtime.live.control import AnswerQuestion, StopTurn, redirect_running_turn, send_control_message
from talaria.runtime.live.remote import quote_in_chat, send_to_session
from talaria.runtime.questions import format_refusal
from talaria.runtime.workers import is_gateway_alive
from talaria.sessions.keys import build_session_key
from talaria.sessions.preferences import PlanMode, Preferences, read_plan_mode, read_preferences
from talaria.web.changes import SessionListWatcher
from talaria.web.conversations import WebConversations, is_elsewhere
from talaria.web.files import WebFiles
from talaria.web.front_door import AGENT_OWNER, SOURCE, USER, WebCaller, WebRequest
from talaria.web.session_views import TAKEN_FROM, find_queued, new_thread, read_detail, require_session
from talaria.web.web_commands import WebCommands
from talaria.web.wire import (
    AnswerRequest,
    BeginRequest,
    BegunSession,
    BranchRequest,
    ChoiceView,
    CommandReply,
    CommandRequest,
    CompletionsQuery,
    Done,
    SayRequest,
    SessionDetail,
)

_TAG = "web"
_SURFACE_NAME = "the web app"
_HANDOFF_SECONDS = 30.0
_NUL_REFUSED = "Null characters aren't allowed."


class ChatRoutes:
    """Everything that a person says and does in a conversation, wherever it runs."""

    def __init__(
        self,
        store: Store,
        conversations: WebConversations,
        commands: WebCommands,
        session_list: SessionListWatcher,
        files: WebFiles,
    ) -> None:
        self._store = store
        self._files = files
        self._conversations = conversations
        self._commands = commands
        self._session_list = session_list

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        one = "/web/sessions/{session_id}"
        return (
            Route(method="POST", path="/web/sessions", handler=self._begin, summary="Begin a conversation",
                  scope=USER, takes=BeginRequest, reply_type=BegunSession, status=201, lasting=True, repeatable=True,
                  tag=_TAG),
            Route(method="POST", path=f"{one}/messages", handler=self._send_message, summary="Say something",
                  scope=USER, takes=SayRequest, reply_type=Done, lasting=True, tag=_TAG),
            Route(method="POST", path=f"{one}/stop", handler=self._stop, summary="Stop the running turn",
                  scope=USER, reply_type=Done, lasting=True, tag=_TAG),
            Route(method="POST", path=f"{one}/answers/{{question_id}}", handler=self._answer,
                  summary="Answer a question or an approval", scope=USER, takes=AnswerRequest, reply_type=Done,
                  lasting=True, tag=_TAG),
            Route(method="POST", path="/web/commands", handler=self._run_command, summary="Run a command in a new "
                  "conversation", scope=USER, takes=CommandRequest, reply_type=CommandReply, lasting=True, tag=_TAG),
            Route(method="POST", path=f"{one}/commands", handler=self._run_command, summary="Run a slash command",
                  scope=USER, takes=CommandRequest, reply_type=CommandReply, lasting=True, tag=_TAG),
            Route(method="POST", path=f"{one}/branch", handler=self._branch, summary="Edit a message in a branch, or "
                  "branch after it", scope=USER, takes=BranchRequest, reply_type=CommandReply, lasting=True, tag=_TAG),
            Route(method="DELETE", path=f"{one}/queue/{{item_id}}", handler=self._withdraw,
                  summary="Withdraw a pending message", scope=USER, reply_type=Done, tag=_TAG),
            Route(method="GET", path="/web/completions", handler=self._complete, summary="Complete a command line "
                  "or a file name", scope=USER, asks=CompletionsQuery, reply_type=list[ChoiceView], tag=_TAG),
            Route(method="POST", path=f"{one}/take", handler=self._take, summary="Take a conversation over from a chat",
                  scope=AGENT_OWNER, reply_type=SessionDetail, lasting=True, tag=_TAG),
            Route(method="POST", path=f"{one}/hand-back", handler=self._hand_back,
                  summary="Hand a conversation back to its chat", scope=AGENT_OWNER, reply_type=SessionDetail,
                  lasting=True, tag=_TAG),
        )  # fmt: skip

    async def _begin(self, request: WebRequest) -> Reply:
        body, caller = _read_said(request, BeginRequest), request.caller
        session = await self._conversations.begin(caller)
        for text in body.commands:
            await self._commands.run_command(session, text, caller)
        self._conversations.hub.add_session(body.stream, caller, session.session_id)
        await self._put_here(session.session_id, body, caller)
        self._session_list.check_soon()
        return make_json_reply(BegunSession(session.session_id), status=201)

    async def _send_message(self, request: WebRequest) -> Reply:
        body, session = _read_said(request, SayRequest), await self._find(request)
        await self._deliver(session, body, request.caller)
        return make_json_reply(Done())

    async def _deliver(self, session: Session, body: SayRequest, caller: WebCaller) -> None:
        """Pass a message to the process that serves the conversation; without one, it runs here."""
        if not await self._is_elsewhere(session):
            await self._put_here(session.id, body, caller)
            return
        files = await self._attach(session.id, body, caller)
        await self._store.write(lambda tx: quote_in_chat(tx, session.id, body.text, _SURFACE_NAME))
        await send_to_session(
            self._store,
            session.id,
            _make_message(*([Text(body.text)] if body.text else []), *files),
            source=SOURCE,
            sender=caller.sender,
            steering=body.steer,
            external_id=_build_external_id(body, caller),
        )

    async def _put_here(self, session_id: SessionId, body: SayRequest, caller: WebCaller) -> None:
        session = await self._conversations.open(session_id, caller)
        conversation = session.chat.conversation
        parts = await self._commands.make_parts(session, body.text, caller) if body.text else ()
        await conversation.put(
            _make_message(*parts, *await self._attach(session_id, body, caller)),
            source=SOURCE,
            external_id=_build_external_id(body, caller),
            sender=caller.sender,
            steering=body.steer and conversation.busy,
        )

    async def _attach(self, session_id: SessionId, body: SayRequest, caller: WebCaller) -> tuple[Part, ...]:
        if not body.files:
            return ()
        return await asyncio.to_thread(self._files.attach, caller.person, body.files, session_id)

    async def _stop(self, request: WebRequest) -> Reply:
        await self._stop_turn(await self._find(request))
        return make_json_reply(Done())

    async def _stop_turn(self, session: Session) -> None:
        local = self._conversations.find(session.id)
        if local is not None and local.busy and local.chat.conversation.stop():
            return
        if not await send_control_message(self._store, session.id, StopTurn()):
            raise make_conflict("Nothing is running.", code="idle")

    async def _answer(self, request: WebRequest) -> Reply:
        session, question_id = await self._find(request), request.parts["question_id"]
        given = request.read(AnswerRequest)
        text = format_refusal(given.reason.strip()) if given.reason.strip() else given.text
        if not self._conversations.answer(session.id, question_id, text):
            sent = await send_control_message(self._store, session.id, AnswerQuestion(question_id, text))
            if not sent:
                raise make_conflict("This question is closed.", code="closed")
        return make_json_reply(Done())

    async def _run_command(self, request: WebRequest) -> Reply:
        text, caller = request.read(CommandRequest).text, request.caller
        if "session_id" not in request.parts:
            return make_json_reply(await self._run_in_new_session(text, caller))
        session = await self._find(request)
        if await self._is_elsewhere(session):
            return make_json_reply(await self._run_elsewhere(session, text, caller))
        local = await self._conversations.open(session.id, caller)
        reply = await self._commands.run_command(local, text, caller)
        self._session_list.check_soon()
        return make_json_reply(reply)

    async def _run_in_new_session(self, text: str, caller: WebCaller) -> CommandReply:
        """Run a command in a new conversation, which stays if the command starts a turn or changes the session."""
        begun = await self._conversations.begin(caller)
        before = await self._store.read(lambda tx: _read_choices(tx, begun.session_id))
        reply = await self._commands.run_command(begun, text, caller)
        if reply.session_id:
            return reply
        after = await self._store.read(lambda tx: _read_choices(tx, begun.session_id))
        if begun.busy or after != before:
            return CommandReply(reply.shown, begun.session_id)
        await self._conversations.forget(begun.session_id)  # nothing was said in it
        return reply

    async def _run_elsewhere(self, session: Session, text: str, caller: WebCaller) -> CommandReply:
        name, _, words = text.strip().partition(" ")
        if name == "/stop":
            await self._stop_turn(session)
        elif name == "/steer" and words.strip():
            body = SayRequest(words.strip(), f"steer-{datetime.now(UTC).timestamp():.6f}".replace(".", "-"), steer=True)
            await self._deliver(session, body, caller)
        else:
            raise make_conflict(
                "This conversation runs elsewhere: only `/stop` and `/steer` work here. Take it over for the rest.",
                code="elsewhere",
            )
        return CommandReply([])

    async def _branch(self, request: WebRequest) -> Reply:
        session, branch = await self._find(request), request.read(BranchRequest)
        if "\0" in branch.text:
            raise Problem(_NUL_REFUSED, param="text", code="invalid_value")
        if await self._is_elsewhere(session):
            raise make_conflict("This conversation runs elsewhere. Take it over first.", code="elsewhere")
        local = await self._conversations.open(session.id, request.caller)
        reply = await self._commands.branch(local, branch, request.caller)
        self._session_list.check_soon()
        return make_json_reply(reply)

    async def _withdraw(self, request: WebRequest) -> Reply:
        session, item_id, caller = await self._find(request), request.parts["item_id"], request.caller

        def withdraw(tx: Transaction) -> None:
            found = find_queued(tx, session.id, int(item_id) if item_id.isdecimal() else 0, caller)
            if found is None:
                raise make_conflict("This message is no longer waiting.", code="taken")
            tx.inbox.settle([found.id])

        await self._store.write(withdraw)
        return make_json_reply(Done())

    async def _complete(self, request: WebRequest) -> Reply:
        asked, caller = request.parse_query(CompletionsQuery), request.caller
        if asked.session:
            session = await self._store.read(lambda tx: require_session(tx, asked.session, caller))
            local = await self._conversations.open(session.id, caller)
        else:
            local = await self._conversations.begin(caller)
        try:
            offers = await self._commands.complete(local, asked.text, caller)
        finally:
            if not asked.session:
                await self._conversations.forget(local.session_id)
        return make_json_reply([ChoiceView(value, about) for value, about in offers])

    async def _take(self, request: WebRequest) -> Reply:
        session = await self._find(request)

        def take(tx: Transaction) -> None:
            address = new_thread(request.caller.person)
            for binding in tx.bindings.of_session(session.id)[:1]:
                TAKEN_FROM.write(tx, session.id, binding.address)
            bind_session(tx, session.id, build_session_key(address), address)
            redirect_running_turn(tx, session.id, ReplyRoute(address))

        await self._store.write(take)
        return await self._show(session.id, request.caller)

    async def _hand_back(self, request: WebRequest) -> Reply:
        session = await self._find(request)

        def hand_back(tx: Transaction) -> Address:
            address = TAKEN_FROM.get(tx, session.id)
            if address is None:
                raise make_conflict("This conversation wasn't taken over from a chat.", code="not_taken")
            if not is_gateway_alive(tx):
                message = "No gateway is running to take it back. Start one with `talaria gateway start`."
                raise make_conflict(message, code="no_gateway")
            request_handoff_to(tx, session.id, address, immediate=True)
            return address

        await self._store.write(hand_back)
        state = await wait_for_handoff(self._store, session.id, _HANDOFF_SECONDS)
        if state["state"] != "completed":
            raise make_conflict(f"It wasn't handed back: {state['error'] or 'the handoff failed'}.", code="not_moved")
        await self._store.write(lambda tx: TAKEN_FROM.delete(tx, session.id))
        if not self._conversations.is_running(session.id):
            await self._conversations.forget(session.id)
        return await self._show(session.id, request.caller)

    async def _show(self, session_id: SessionId, caller: WebCaller) -> Reply:
        self._session_list.check_soon()
        runs_here, limit = self._conversations.is_running(session_id), self._conversations.context_limit(session_id)
        detail = await self._store.read(
            lambda tx: read_detail(
                tx, require_session(tx, session_id, caller), caller, runs_here=runs_here, context_limit=limit
            )
        )
        return make_json_reply(detail)

    async def _find(self, request: WebRequest) -> Session:
        name, caller = request.parts["session_id"], request.caller
        return await self._store.read(lambda tx: require_session(tx, name, caller))

    async def _is_elsewhere(self, session: Session) -> bool:
        return await is_elsewhere(self._store, self._conversations, session)


def _read_choices(tx: Transaction, session_id: SessionId) -> tuple[PlanMode, Preferences, str]:
    """Return what commands choose for a session: plan mode, model, effort, personality, sandbox and title."""
    session = tx.sessions.get(session_id)
    return read_plan_mode(tx, session_id), read_preferences(tx, session_id), session.title if session else ""


_Said = TypeVar("_Said", bound=SayRequest)


def _read_said(request: WebRequest, kind: type[_Said]) -> _Said:
    body = request.read(kind)
    if not body.text and not body.files:
        raise Problem("There is nothing to say.", param="text", code="invalid_value")
    if "\0" in body.text:
        raise Problem(_NUL_REFUSED, param="text", code="invalid_value")
    return body


def _make_message(*parts: Part) -> Message:
    return Message(role="user", parts=parts, at=datetime.now(UTC))


def _build_external_id(body: SayRequest, caller: WebCaller) -> str:
    return f"{caller.name}:{body.id}"
