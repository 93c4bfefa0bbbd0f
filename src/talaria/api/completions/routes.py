"""`/v1/chat/completions`: one answer, as a whole or as it grows."""

from collections.abc import AsyncIterator
from functools import partial

from talaria.api.completions.incoming import Said, check, fingerprint, taken_apart
from talaria.api.completions.outgoing import Answer, Chunks
from talaria.api.completions.transcript import spoken, transcribed
from talaria.api.completions.wire import Chunk, Completion, CreateCompletion
from talaria.api.conversations import SESSION_HEADER, Conversations, entered
from talaria.api.http import Reply, Request, event_reply, json_reply
from talaria.api.keys import Caller
from talaria.api.models import ModelNames
from talaria.api.pictures import Pictures
from talaria.api.problems import Problem, problem_of
from talaria.api.router import Route
from talaria.api.turns import Turn, Wanted
from talaria.contracts.follower import Ending
from talaria.contracts.store import Transaction
from talaria.core.errors import TalariaError
from talaria.core.events import ToolAnswered, ToolCalled, TurnAnswered
from talaria.core.ids import SessionId, new_session_id

EVENTS_HEADER = "x-talaria-events"
_OF_HISTORY = "api-history:"


class Completions:
    """The route, over conversations that nobody can be asked back in."""

    def __init__(self, conversations: Conversations, models: ModelNames, pictures: Pictures) -> None:
        self._conversations = conversations
        self._store = conversations.house.store
        self._models = models
        self._pictures = pictures

    def routes(self) -> tuple[Route, ...]:
        """Return it."""
        return (
            Route(
                method="POST",
                path="/v1/chat/completions",
                handler=self._create,
                summary="Say something and get an answer",
                takes=CreateCompletion,
                gives=Completion,
                events=Chunk,
                repeatable=True,
                heeds=(SESSION_HEADER, EVENTS_HEADER),
                tag="chat completions",
            ),
        )

    async def _create(self, request: Request) -> Reply:
        body = request.read(CreateCompletion)
        check(body)
        said = taken_apart(body.messages)
        turn = Turn(self._conversations, await self._wanted(request, body, said), request.caller)
        headers = {SESSION_HEADER: turn.session_id}
        if body.stream:
            await turn.begin()
            counting = body.stream_options is not None and bool(body.stream_options.include_usage)
            chunks = Chunks(body.model, counting=counting)
            asked = request.headers.get(EVENTS_HEADER, "")
            return event_reply(_CompletionStream(turn, chunks, asked), headers=headers)
        answer = Answer()
        async with turn:
            async for event in turn:
                answer.take(event)
        problem = answer.problem
        if problem is not None:
            problem.headers |= headers
            raise problem
        return json_reply(answer.completion(body.model), headers=headers)

    async def _wanted(self, request: Request, body: CreateCompletion, said: Said) -> Wanted:
        """Return the turn to take: in the conversation that is named, or whose history is told, or in a new one."""
        caller, model = request.caller.name, await self._models.resolve(body.model)
        named = request.headers.get(SESSION_HEADER, "")
        if named:  # before anything is stored in its folder
            await self._store.read(lambda tx: entered(tx, named, request.caller))
        session_id = named or await self._recognised(request.caller, said)
        place = SessionId(session_id) if session_id else new_session_id()
        told = () if session_id else await transcribed(said.history, self._pictures, place)
        heard = Answer()
        note = partial(_note, caller=caller, said=said, heard=heard if body.stream else None)
        return Wanted(
            message=await spoken(said.last, self._pictures, place),
            session_id=session_id,
            new_id=place,
            instructions=said.instructions,
            history=told,
            model=model,
            ended=None if named else note,
            heard=heard.take if body.stream else None,
        )

    async def _recognised(self, caller: Caller, said: Said) -> str:
        """Return the conversation whose history a client tells, if it stands where that history ends.

        It is found so once: a second client that goes on from the same point begins a branch of its own.
        """
        if not said.history:
            return ""
        key = _OF_HISTORY + fingerprint(caller.name, said.instructions, said.history)
        if await self._store.read(lambda tx: tx.state.get(key)) is None:
            return ""
        return await self._store.write(lambda tx: _taken(tx, key, caller))


class _CompletionStream:
    """Implements `Stream`; ``asked`` is what the client wants to hear of tools."""

    def __init__(self, turn: Turn, chunks: Chunks, asked: str) -> None:
        self._turn = turn
        self._answer = Answer()
        self._chunks = chunks
        self._silent = asked == "none"
        self._named = asked == "tools"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._chunks.begin()
        try:
            async for event in self._turn:
                new = self._answer.take(event)
                if new:
                    yield self._chunks.words(new)
                elif isinstance(event, ToolCalled | ToolAnswered) and not self._silent:
                    yield self._chunks.news(event, named=self._named)
            last = self._chunks.end(self._answer)
        except TalariaError as error:
            last = self._chunks.broken(problem_of(error))
        yield last

    @property
    def is_whole(self) -> bool:
        return self._answer.end is not None

    async def close(self) -> None:
        await self._turn.leave()


def _taken(tx: Transaction, key: str, caller: Caller) -> str:
    entry = tx.state.get(key)
    if entry is None:
        return ""
    tx.state.delete(key)
    session_id, _, count = entry.value.partition(" ")
    try:
        session = entered(tx, session_id, caller)
    except Problem:  # it is gone, or the key had other rights when it started it
        return ""
    return session_id if str(session.message_count) == count else ""


def _note(tx: Transaction, ending: Ending, *, caller: str, said: Said, heard: Answer | None) -> None:
    """Let the conversation be found by its history, as the client will tell it: in a stream it heard every word."""
    session = tx.sessions.get(ending.session_id)
    if not isinstance(ending.end, TurnAnswered) or session is None:
        return
    reply = heard.text if heard is not None else ending.end.text
    digest = fingerprint(caller, said.instructions, (*said.history, said.last), reply)
    tx.state.put(_OF_HISTORY + digest, f"{ending.session_id} {session.message_count}")
