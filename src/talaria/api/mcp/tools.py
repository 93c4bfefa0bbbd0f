"""Tools for other agents: conversations, search, messages, handoff and approvals, each a route of the API."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from types import ModuleType
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
from msgspec import Meta, Struct

from talaria.api.front_door import ApiCaller, ApiRequest
from talaria.contracts.platform import Content
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import NotFound
from talaria.core.events import ApprovalAsked
from talaria.core.ids import new_id
from talaria.http.errors import make_conflict, make_not_found
from talaria.http.routing import Reply, Request, Route, make_json_reply
from talaria.runtime.cross_posts import CrossPost, send_cross_post
from talaria.runtime.live.control import AnswerQuestion, post_control_message
from talaria.runtime.questions import OpenQuestion, format_refusal, list_open_questions
from talaria.runtime.workers import is_platform_served
from talaria.sessions.chat_directory import find_target

_TAG = "mcp"
_ANSWERS = {"approve": "once", "approve_session": "session", "approve_always": "always"}


class ApprovalView(Struct, frozen=True, kw_only=True):
    """An approval request, or a question of the agent with an empty ``tool``, that waits for an answer."""

    id: str
    session_id: str
    title: str
    at: datetime
    text: str
    tool: str = ""
    reason: str = ""
    choices: tuple[str, ...] = ()


class ApprovalList(Struct, frozen=True):
    """Everything that waits for an answer, oldest first."""

    data: list[ApprovalView]


class ApprovalDecision(Struct, frozen=True, kw_only=True):
    """The answer: a decision about an approval, or the text for a question."""

    decision: Literal["approve", "approve_session", "approve_always", "deny"] | None = None
    answer: Annotated[str, Meta(max_length=10_000, description="Answer to a question, or reason to deny")] = ""


class Decided(Struct, frozen=True):
    """The request that was answered."""

    id: str


class NewChatMessage(Struct, frozen=True):
    """A message for a chat."""

    to: Annotated[
        str, Meta(min_length=1, max_length=500, description="A network for its home chat, or network:chat[:thread]")
    ]
    text: Annotated[str, Meta(min_length=1, max_length=50_000, description="Markdown")]


class QueuedChatMessage(Struct, frozen=True):
    """A queued message; without a running gateway it waits for one."""

    to: str
    platform: str
    chat_id: str
    gateway: bool


class AgentRoutes:
    """Routes that only other agents use, over one store; ``networks`` are the possible targets of messages."""

    def __init__(self, store: Store, networks: Callable[[], Collection[str]]) -> None:
        self._store = store
        self._networks = networks

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="GET", path="/v1/approvals", handler=self._list, summary="List pending approvals",
                  scope="read", reply_type=ApprovalList, tag=_TAG),
            Route(method="POST", path="/v1/approvals/{approval_id}", handler=self._decide,
                  summary="Answer a pending approval", scope="admin", takes=ApprovalDecision, reply_type=Decided,
                  tag=_TAG),
            Route(method="POST", path="/v1/messages", handler=self._send, summary="Send a message to a chat",
                  scope="admin", takes=NewChatMessage, reply_type=QueuedChatMessage, tag=_TAG),
        )  # fmt: skip

    async def _list(self, request: ApiRequest) -> Reply:
        return make_json_reply(ApprovalList(await self._store.read(_list_views)))

    async def _decide(self, request: ApiRequest) -> Reply:
        decision, name = request.read(ApprovalDecision), request.parts["approval_id"]
        await self._store.write(lambda tx: _answer(tx, name, decision))
        return make_json_reply(Decided(name))

    async def _send(self, request: ApiRequest) -> Reply:
        message, networks = request.read(NewChatMessage), self._networks()
        return make_json_reply(await self._store.write(lambda tx: _queue_message(tx, message, networks)))


def _list_views(tx: Transaction) -> list[ApprovalView]:
    views = []
    for session_id, question in list_open_questions(tx):
        session = tx.sessions.get(session_id)
        if session is not None:
            views.append(_to_view(session_id, session.title, question))
    return views


def _to_view(session_id: str, title: str, question: OpenQuestion) -> ApprovalView:
    asked = question.asked
    if isinstance(asked, ApprovalAsked):
        return ApprovalView(
            id=asked.id, session_id=session_id, title=title, at=question.at, text=asked.summary, tool=asked.tool,
            reason=asked.reason,
        )  # fmt: skip
    return ApprovalView(
        id=asked.id, session_id=session_id, title=title, at=question.at, text=asked.question, choices=asked.choices
    )


def _answer(tx: Transaction, name: str, decision: ApprovalDecision) -> None:
    found = next(((one, question) for one, question in list_open_questions(tx) if question.asked.id == name), None)
    if found is None:
        raise make_not_found(f"Nothing with the id `{name[:64]}` waits for an answer.", code="not_asked")
    session_id, question = found
    text = decision.answer
    if isinstance(question.asked, ApprovalAsked):
        text = _ANSWERS.get(decision.decision or "deny") or format_refusal(decision.answer)
    if not post_control_message(tx, session_id, AnswerQuestion(name, text)):
        raise make_conflict("The turn that asks this has ended.", code="answered")


def _queue_message(tx: Transaction, message: NewChatMessage, networks: Collection[str]) -> QueuedChatMessage:
    address = find_target(tx, message.to, networks)
    post = CrossPost(
        key=f"mcp:{new_id()}",
        address=address,
        content=Content(text=message.text),
        source="another agent",
        at=datetime.now(UTC),
    )
    send_cross_post(tx, post)
    served = is_platform_served(tx, address.platform)
    return QueuedChatMessage(message.to, address.platform, address.chat_id, served)


class AgentTool(Struct, frozen=True):
    """A route as a tool: its name and description for other agents, and whether it only reads."""

    name: str
    description: str
    route: Route

    @property
    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments: those of the path, and those of query or body."""
        given = self.route.asks or self.route.takes
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        if given is not None:
            found = msgspec.json.schema(given)
            definitions = found["$defs"]
            schema = definitions.pop(found["$ref"].rpartition("/")[2])
            schema = {**schema, **({"$defs": definitions} if definitions else {})}
        parts = self._list_path_parts()
        properties = {**{name: {"type": "string"} for name in parts}, **schema.get("properties", {})}
        return {**schema, "properties": properties, "required": [*parts, *schema.get("required", ())]}

    async def call(self, arguments: Mapping[str, Any], caller: ApiCaller) -> str:
        """Call the route for a caller and return its reply as JSON; raises its errors."""
        parts = {name: str(arguments.get(name, "")) for name in self._list_path_parts()}
        if not all(parts.values()):
            raise NotFound(f"{', '.join(name for name, value in parts.items() if not value)} is missing.")
        rest = {name: value for name, value in arguments.items() if name not in parts}
        query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in rest.items()}
        scope = {
            "method": self.route.method,
            "path": self.route.path,
            "headers": [],
            "query_string": urlencode(query).encode() if self.route.method == "GET" else b"",
        }
        request: ApiRequest = Request(scope, _receive_nothing)
        request.caller, request.parts = caller, parts
        request.body = b"" if self.route.method == "GET" else msgspec.json.encode(rest)
        return (await self.route.handler(request)).body.decode()

    def _list_path_parts(self) -> list[str]:
        return [part.strip("{}") for part in self.route.path.split("/") if part.startswith("{")]


_TOOLS = (
    ("GET", "/v1/sessions", "list_conversations", "List conversations of all chats, last used first."),
    ("GET", "/v1/sessions/{session_id}", "get_conversation", "Show one conversation: state, chat, handoff."),
    (
        "GET",
        "/v1/sessions/{session_id}/messages",
        "read_conversation",
        "Read the messages of a conversation.",
    ),
    ("GET", "/v1/sessions/search", "search_conversations", "Search all messages; all words must occur."),
    ("POST", "/v1/messages", "send_message", "Send a message to a chat of the owner."),
    ("POST", "/v1/sessions/{session_id}/move", "hand_off", "Move a conversation to another chat, and wait for it."),
    ("GET", "/v1/approvals", "list_approvals", "List approval requests and questions that wait for an answer."),
    ("POST", "/v1/approvals/{approval_id}", "answer_approval", "Approve, deny or answer something that waits."),
)


def make_agent_tools(routes: Sequence[Route]) -> list[AgentTool]:
    """Return the tools that these routes make up."""
    known = {(route.method, route.path): route for route in routes}
    return [AgentTool(name, about, known[method, path]) for method, path, name, about in _TOOLS]


async def _receive_nothing() -> dict[str, Any]:
    return {"type": "http.disconnect"}


class McpRoutes:
    """The MCP server of the agent over HTTP: what a key may do with its scopes, it may do here."""

    def __init__(self, tools: Sequence[AgentTool], version: str) -> None:
        self._tools = tools
        self._version = version

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="POST", path="/mcp", handler=self._answer, scope="read", tag=_TAG,
                  summary="Answer a message of the Model Context Protocol"),
        )  # fmt: skip

    async def _answer(self, request: ApiRequest) -> Reply:
        module = await asyncio.to_thread(_load_server)  # takes a second: the server answers others meanwhile
        server = module.make_mcp_server(self._tools, request.caller, self._version)
        reply: Reply = await module.answer_http(server, request.headers, request.body)
        return reply


def _load_server() -> ModuleType:
    try:
        from talaria.api.mcp import server  # noqa: PLC0415 (loaded with the first message: needs mcp)
    except ModuleNotFoundError as error:
        from talaria.core.installation import install_command  # noqa: PLC0415 (loaded when the package is missing)

        command = install_command("mcp")
        raise NotFound(f"MCP support is not installed. Install it with `{command}`.") from error
    return server


async def serve_over_stdio(tools: Sequence[AgentTool], version: str) -> None:
    """Serve the owner of this machine on standard input and output, with all rights."""
    await _load_server().serve_stdio(tools, ApiCaller("owner", frozenset({"admin"})), version)
