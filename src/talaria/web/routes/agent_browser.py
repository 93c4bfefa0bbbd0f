"""Routes of the agent's browsers: a list, taking over, and a live view with input; owner only."""

from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from talaria.contracts.browser import BrowserInput, LiveView, SessionBrowsers, ViewFrame
from talaria.contracts.store import Store
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId
from talaria.http.routing import Reply, Route, format_sse, make_event_reply, make_json_reply
from talaria.web.front_door import AGENT_OWNER, WebRequest
from talaria.web.wire import Done

_TAG = "web"
_MOST_INPUTS = 100


class AgentBrowserView(Struct, frozen=True, kw_only=True):
    """The browser of a conversation; ``used_at`` is in seconds since the epoch."""

    session_id: str
    title: str
    url: str
    running: bool
    with_person: bool
    used_at: float


class ControlRequest(Struct, frozen=True):
    """Control over a browser: the person's, or else the agent's."""

    person: bool


class InputRequest(Struct, frozen=True):
    """Inputs of the person, in order."""

    inputs: Annotated[list[BrowserInput], Meta(max_length=_MOST_INPUTS)]


class _FrameStream:
    """Frames of a view as server-sent events; implements `ReplyStream`."""

    def __init__(self, view: LiveView, views: dict[SessionId, LiveView], session_id: SessionId) -> None:
        self._view = view
        self._views = views
        self._session_id = session_id

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for frame in self._view.frames():
            yield format_sse(msgspec.json.encode(frame))

    @property
    def is_whole(self) -> bool:
        """Return whether it ended by itself; the page opens another one."""
        return True

    async def close(self) -> None:
        """End the view."""
        if self._views.get(self._session_id) is self._view:
            del self._views[self._session_id]
        await self._view.close()


class AgentBrowserRoutes:
    """Browsers of all conversations, for the owner of the agent."""

    def __init__(self, store: Store, browsers: SessionBrowsers) -> None:
        self._store = store
        self._browsers = browsers
        self._views: dict[SessionId, LiveView] = {}

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="GET", path="/web/agent-browsers", handler=self._list, summary="List the agent's browsers",
                  scope=AGENT_OWNER, reply_type=list[AgentBrowserView], tag=_TAG),
            Route(method="GET", path="/web/agent-browsers/{session_id}/view", handler=self._view,
                  summary="Follow the page in a browser", scope=AGENT_OWNER, events=ViewFrame, tag=_TAG),
            Route(method="POST", path="/web/agent-browsers/{session_id}/control", handler=self._control,
                  summary="Take a browser over, or hand it back", scope=AGENT_OWNER, takes=ControlRequest,
                  reply_type=Done, tag=_TAG),
            Route(method="POST", path="/web/agent-browsers/{session_id}/input", handler=self._input,
                  summary="Send mouse and keyboard input", scope=AGENT_OWNER, takes=InputRequest, reply_type=Done,
                  tag=_TAG),
        )  # fmt: skip

    async def _list(self, request: WebRequest) -> Reply:
        found = self._browsers.list()
        sessions = await self._store.read(lambda tx: {one.session_id: tx.sessions.get(one.session_id) for one in found})
        return make_json_reply(
            [
                AgentBrowserView(
                    session_id=one.session_id,
                    title=session.title,
                    url=one.url,
                    running=one.running or one.attached,
                    with_person=one.with_person,
                    used_at=one.used_at,
                )
                for one in found
                if (session := sessions[one.session_id]) is not None
            ]
        )

    async def _view(self, request: WebRequest) -> Reply:
        session_id = SessionId(request.parts["session_id"])
        view = await self._browsers.open_view(session_id)
        self._views[session_id] = view
        return make_event_reply(_FrameStream(view, self._views, session_id))

    async def _control(self, request: WebRequest) -> Reply:
        session_id = SessionId(request.parts["session_id"])
        if request.read(ControlRequest).person:
            self._browsers.take_over(session_id)
        else:
            self._browsers.hand_back(session_id)
        return make_json_reply(Done())

    async def _input(self, request: WebRequest) -> Reply:
        wanted = request.read(InputRequest)
        view = self._views.get(SessionId(request.parts["session_id"]))
        if view is None:
            raise NotFound("Open the view of this browser first.")
        await view.send(wanted.inputs)
        return make_json_reply(Done())
