"""A strict Mattermost server on loopback: posts, threads, files, buttons, slash commands and the websocket."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import msgspec
from aiohttp import ClientSession, WSMsgType, web
from msgspec import Struct

from talaria.testing.platform_suite import FailureKind

_TEXT_LIMIT = 16383
_MOST_FILES = 10
_POST_FIELDS = frozenset(
    {"channel_id", "message", "root_id", "file_ids", "props", "metadata", "pending_post_id", "create_at"}
)
_COMMAND_FIELDS = frozenset(
    {"team_id", "method", "trigger", "url", "auto_complete", "auto_complete_desc", "auto_complete_hint", "display_name"}
)
_ERRORS = {400: "api.context.invalid_body_param.app_error", 401: "api.context.session_expired.app_error",
           403: "api.context.permissions.app_error", 404: "app.post.get.app_error",
           413: "api.file.upload_file.too_large_detailed.app_error", 429: "api.context.limit",
           500: "api.internal"}  # fmt: skip


class ServerChannel(Struct):
    """A channel with its members; ``type`` is D (direct), G (group), O (open) or P (private)."""

    id: str
    type: str
    members: set[str]
    team_id: str = ""
    display_name: str = ""
    last_post_at: int = 0


class IntegrationAnswer(Struct, frozen=True):
    """Answer of an integration to a press or a slash command."""

    status: int
    body: bytes


class _Refusal(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class MattermostServer:
    """People, channels and posts. The holder of ``token`` is the user ``bot``."""

    def __init__(self, token: str, *, file_limit: int) -> None:
        self.token = token
        self.url = ""
        self.failure: FailureKind | None = None
        self.users: dict[str, str] = {}
        self.channels: dict[str, ServerChannel] = {}
        self.posts: dict[str, dict[str, Any]] = {}
        self.typing: list[str] = []
        self.commands: dict[str, dict[str, Any]] = {}
        self.answers: list[IntegrationAnswer] = []
        self.may_manage_commands = True
        self._calls: set[asyncio.Future[None]] = set()
        self._file_limit = file_limit
        self._files: dict[str, tuple[dict[str, Any], bytes]] = {}
        self._pending: dict[str, str] = {}
        self._sockets: dict[web.WebSocketResponse, asyncio.Queue[dict[str, Any]]] = {}
        self._transports: set[asyncio.BaseTransport] = set()
        self._numbers = 0
        self._last_time = 0
        self.bot = self.add_user("talaria")
        self.team = self._make_id("t")

    @property
    def is_followed(self) -> bool:
        """Return whether a client receives posts."""
        return bool(self._sockets)

    def add_user(self, name: str) -> str:
        """Make an account and return its id."""
        user_id = self._make_id("u")
        self.users[user_id] = name
        return user_id

    def add_channel(self, kind: str, *members: str, name: str = "") -> ServerChannel:
        """Make a channel of these people and the bot."""
        team = "" if kind in "DG" else self.team
        channel = ServerChannel(self._make_id("c"), kind, {*members, self.bot}, team, name)
        self.channels[channel.id] = channel
        return channel

    def add_file(self, user_id: str, channel_id: str, name: str, data: bytes) -> str:
        """Store a file and return its id."""
        file_id = self._make_id("f")
        info = {"id": file_id, "name": name, "mime_type": "application/octet-stream", "size": len(data)}
        self._files[file_id] = (info | {"user_id": user_id, "channel_id": channel_id}, data)
        return file_id

    def publish(self, user_id: str, channel_id: str, message: str, **fields: Any) -> dict[str, Any]:
        """Add a post of a user, and notify those who follow."""
        channel = self.channels[channel_id]
        files = [self._files[one][0] for one in fields.get("file_ids", ())]
        now = self._make_time()
        post: dict[str, Any] = {
            "id": self._make_id("p"), "channel_id": channel_id, "user_id": user_id, "create_at": now, "update_at": now,
            "edit_at": 0, "delete_at": 0, "message": message, "root_id": "", "type": "", "props": {}, "file_ids": [],
            "metadata": {"files": files} if files else {},
        } | fields  # fmt: skip
        self.posts[post["id"]] = post
        channel.last_post_at = now
        self._notify("posted", post)
        return post

    def change(self, post_id: str, message: str) -> dict[str, Any]:
        """Edit a post, and notify those who follow."""
        now = self._make_time()
        post = self.posts[post_id] = self.posts[post_id] | {"message": message, "edit_at": now, "update_at": now}
        self._notify("post_edited", post)
        return post

    def press(self, user_id: str, post_id: str, label: str, **changes: Any) -> None:
        """Press a button as a person: the server calls its integration in the background."""
        post = self.posts[post_id]
        action = next(one for one in _list_actions(post["props"]) if one["name"] == label)
        channel = self.channels[post["channel_id"]]
        body = {
            "user_id": user_id, "user_name": self.users[user_id], "channel_id": channel.id, "channel_name": channel.id,
            "team_id": channel.team_id, "team_domain": "tests", "post_id": post_id, "trigger_id": self._make_id("x"),
            "type": "button", "data_source": "", "context": action["integration"]["context"],
        } | changes  # fmt: skip
        headers = {"content-type": "application/json"}
        self._call(action["integration"]["url"], msgspec.json.encode(body), headers)

    def run_command(self, user_id: str, channel_id: str, text: str, **changes: str) -> None:
        """Use the slash command of the team as a person."""
        (command,) = self.commands.values()
        form = {
            "channel_id": channel_id, "channel_name": channel_id, "command": f"/{command['trigger']}", "text": text,
            "response_url": f"{self.url}/hooks/commands/x", "team_domain": "tests", "team_id": self.team,
            "token": command["token"], "trigger_id": self._make_id("x"), "user_id": user_id,
            "user_name": self.users[user_id],
        } | changes  # fmt: skip
        headers = {"content-type": "application/x-www-form-urlencoded", "authorization": f"Token {form['token']}"}
        self._call(command["url"], urlencode(form).encode(), headers)

    def _call(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        call = asyncio.ensure_future(self._call_integration(url, body, headers))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call_integration(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        async with ClientSession() as session, session.post(url, data=body, headers=headers) as answer:
            self.answers.append(IntegrationAnswer(answer.status, await answer.read()))

    async def end_calls(self) -> None:
        """Give up the calls that are not answered."""
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def hang_up(self) -> None:
        """Break all connections."""
        for transport in self._transports:
            transport.abort()  # type: ignore[attr-defined] # all of them are TCP connections

    def application(self) -> web.Application:
        """Return its routes."""
        application = web.Application(middlewares=[self._guard], client_max_size=self._file_limit + 1024)
        base = "/api/v4"
        application.add_routes(
            [
                web.get(f"{base}/websocket", self._follow),
                web.get(f"{base}/users/me/channels", self._list_channels),
                web.get(f"{base}/users/me/teams", self._list_teams),
                web.get(f"{base}/users/{{id}}", self._show_user),
                web.post(f"{base}/users/me/typing", self._note_typing),
                web.get(f"{base}/channels/{{id}}", self._show_channel),
                web.get(f"{base}/channels/{{id}}/posts", self._list_posts),
                web.get(f"{base}/channels/{{id}}/members/me", self._show_membership),
                web.get(f"{base}/commands", self._list_commands),
                web.post(f"{base}/commands", self._create_command),
                web.put(f"{base}/commands/{{id}}", self._update_command),
                web.post(f"{base}/posts", self._create),
                web.get(f"{base}/posts/{{id}}", self._show_post),
                web.put(f"{base}/posts/{{id}}/patch", self._edit_post),
                web.post(f"{base}/files", self._upload),
                web.get(f"{base}/files/{{id}}", self._download),
            ]
        )
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        assert request.transport is not None
        self._transports.add(request.transport)
        try:
            if not request.path.endswith("/websocket"):
                await self._admit(request)
            response: web.StreamResponse = await handler(request)
        except _Refusal as error:
            body = {"id": _ERRORS[error.status], "message": str(error), "status_code": error.status}
            headers = {"X-Ratelimit-Reset": "7"} if error.status == 429 else None
            return web.json_response(body, status=error.status, headers=headers)
        return response

    async def _admit(self, request: web.Request) -> None:
        """Refuse a request without the token, and those that a disruption concerns."""
        if self.failure == "revoked" or request.headers.get("authorization") != f"Bearer {self.token}":
            raise _Refusal(401, "Invalid or expired session, please login again.")
        if request.method == "GET":
            return
        if self.failure == "slow_down":
            raise _Refusal(429, "limit exceeded")
        if self.failure == "failing":
            raise _Refusal(500, "internal error")
        if self.failure == "silent":
            await asyncio.Event().wait()

    async def _show_user(self, request: web.Request) -> web.StreamResponse:
        user_id = self.bot if request.match_info["id"] == "me" else request.match_info["id"]
        if user_id not in self.users:
            raise _Refusal(404, "Unable to find the user.")
        return web.json_response({"id": user_id, "username": self.users[user_id], "is_bot": user_id == self.bot})

    async def _list_channels(self, request: web.Request) -> web.StreamResponse:
        return web.json_response([self._render(one) for one in self.channels.values() if self.bot in one.members])

    async def _show_channel(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(self._render(self._find_channel(request.match_info["id"])))

    async def _show_membership(self, request: web.Request) -> web.StreamResponse:
        channel = self._find_channel(request.match_info["id"])
        return web.json_response({"channel_id": channel.id, "user_id": self.bot, "roles": "channel_user"})

    async def _list_teams(self, request: web.Request) -> web.StreamResponse:
        return web.json_response([{"id": self.team, "name": "tests", "display_name": "Tests"}])

    async def _list_commands(self, request: web.Request) -> web.StreamResponse:
        self._check_right(request.query.get("team_id", ""))
        return web.json_response(list(self.commands.values()))

    async def _create_command(self, request: web.Request) -> web.StreamResponse:
        command = await self._read_body(request, _COMMAND_FIELDS)
        self._check_right(command.get("team_id", ""))
        if command.get("method") not in ("P", "G") or not command.get("url", "").startswith("http"):
            raise _Refusal(400, "Invalid or missing command")
        if any(one["trigger"] == command["trigger"] for one in self.commands.values()):
            raise _Refusal(400, "This trigger word is already in use. Please choose another word.")
        made = command | {"id": self._make_id("k"), "token": self._make_id("s"), "creator_id": self.bot}
        self.commands[made["id"]] = made
        return web.json_response(made, status=201)

    async def _update_command(self, request: web.Request) -> web.StreamResponse:
        command = await self._read_body(request, _COMMAND_FIELDS | {"id", "token", "creator_id"})
        self._check_right(command.get("team_id", ""))
        known = self.commands.get(request.match_info["id"])
        if known is None or command.get("id") != known["id"]:
            raise _Refusal(404, "Unable to find the command.")
        self.commands[known["id"]] = command | {"token": known["token"], "creator_id": known["creator_id"]}
        return web.json_response(self.commands[known["id"]])

    def _check_right(self, team_id: str) -> None:
        if team_id != self.team or not self.may_manage_commands:
            raise _Refusal(403, "You do not have the appropriate permissions.")

    async def _list_posts(self, request: web.Request) -> web.StreamResponse:
        channel = self._find_channel(request.match_info["id"])
        since = request.query.get("since", "")
        if not since.isdigit() or set(request.query) != {"since"}:
            raise _Refusal(400, "Invalid or missing parameters in URL")
        found = [
            one for one in self.posts.values() if one["channel_id"] == channel.id and one["update_at"] > int(since)
        ]
        found.sort(key=lambda post: -int(post["create_at"]))
        return web.json_response({"order": [one["id"] for one in found], "posts": {one["id"]: one for one in found}})

    async def _create(self, request: web.Request) -> web.StreamResponse:
        body = await self._read_body(request, _POST_FIELDS)
        channel = self._find_channel(body.get("channel_id", ""))
        message, files, root = body.get("message", ""), body.get("file_ids", []), body.get("root_id", "")
        if len(message) > _TEXT_LIMIT or len(files) > _MOST_FILES or not (message.strip() or files):
            raise _Refusal(400, "Invalid message")
        if root and (root not in self.posts or self.posts[root]["channel_id"] != channel.id):
            raise _Refusal(400, "Invalid RootId parameter.")
        if root and self.posts[root]["root_id"]:
            raise _Refusal(400, "Invalid RootId parameter: it is not the first post of a thread.")
        if any(one not in self._files or self._files[one][0]["channel_id"] != channel.id for one in files):
            raise _Refusal(400, "Invalid file ids")
        if (pending := body.get("pending_post_id", "")) and pending in self._pending:
            return web.json_response(self.posts[self._pending[pending]], status=201)
        _check_props(props := body.get("props", {}))
        post = self.publish(self.bot, channel.id, message, root_id=root, file_ids=files, props=props)
        if pending:
            self._pending[pending] = post["id"]
        return web.json_response(_remove_integrations(post), status=201)

    async def _show_post(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(_remove_integrations(self._find_post(request)))

    async def _edit_post(self, request: web.Request) -> web.StreamResponse:
        body = await self._read_body(request, frozenset({"message", "file_ids", "props", "is_pinned", "has_reactions"}))
        post = self._find_post(request)
        if post["user_id"] != self.bot:
            raise _Refusal(403, "You do not have the appropriate permissions.")
        if len(body["message"]) > _TEXT_LIMIT:
            raise _Refusal(400, "Invalid message")
        _check_props(body.get("props", {}))
        self.posts[post["id"]] = post | {"props": body.get("props", post["props"])}
        return web.json_response(_remove_integrations(self.change(post["id"], body["message"])))

    async def _note_typing(self, request: web.Request) -> web.StreamResponse:
        body = await self._read_body(request, frozenset({"channel_id", "parent_id"}))
        self.typing.append(self._find_channel(body.get("channel_id", "")).id)
        return web.json_response({"status": "OK"})

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        channel, name = self._find_channel(request.query.get("channel_id", "")), request.query.get("filename", "")
        data = await request.read()
        if not name:
            raise _Refusal(400, "filename is missing")
        if len(data) > self._file_limit:
            raise _Refusal(413, "Unable to upload file. File is too large.")
        file_id = self.add_file(self.bot, channel.id, name, data)
        return web.json_response({"file_infos": [self._files[file_id][0]], "client_ids": []}, status=201)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        found = self._files.get(request.match_info["id"])
        if found is None:
            raise _Refusal(404, "Unable to get the file info.")
        return web.Response(body=found[1], content_type=found[0]["mime_type"])

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        first = await socket.receive()
        challenge = msgspec.json.decode(first.data) if first.type is WSMsgType.TEXT else {}
        if self.failure == "revoked" or challenge.get("data", {}).get("token") != self.token:
            await socket.close()
            return socket
        if challenge.get("action") != "authentication_challenge":
            raise AssertionError(f"not a login: {challenge}")
        await socket.send_json({"status": "OK", "seq_reply": challenge["seq"]})
        events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        events.put_nowait({"event": "hello", "data": {"server_version": "10.0"}, "broadcast": {}, "seq": 0})
        self._sockets[socket] = events
        try:
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(self._send_events(socket, events))
                async for message in socket:
                    request_of_client = msgspec.json.decode(message.data)
                    if request_of_client["action"] == "ping" and self.failure != "deaf":
                        pong = {"status": "OK", "data": {"text": "pong"}, "seq_reply": request_of_client["seq"]}
                        await socket.send_json(pong)
                sending.cancel()
        finally:
            del self._sockets[socket]
        return socket

    async def _send_events(self, socket: web.WebSocketResponse, events: "asyncio.Queue[dict[str, Any]]") -> None:
        while True:
            event = await events.get()
            if self.failure != "deaf":
                await socket.send_json(event)

    def _notify(self, kind: str, post: Mapping[str, Any]) -> None:
        channel = self.channels[post["channel_id"]]
        data = {
            "post": msgspec.json.encode(_remove_integrations(post)).decode(),
            "channel_type": channel.type, "channel_name": channel.id, "channel_display_name": channel.display_name,
            "sender_name": f"@{self.users[post['user_id']]}",
        }  # fmt: skip
        for events in self._sockets.values():
            events.put_nowait({"event": kind, "data": data, "broadcast": {"channel_id": channel.id}, "seq": 1})

    async def _read_body(self, request: web.Request, fields: frozenset[str]) -> dict[str, Any]:
        try:
            body = msgspec.json.decode(await request.read(), type=dict[str, Any])
        except msgspec.DecodeError:
            raise _Refusal(400, "Invalid or missing request body.") from None
        if unknown := body.keys() - fields:
            raise _Refusal(400, f"unknown fields: {', '.join(sorted(unknown))}")
        return body

    def _find_channel(self, channel_id: str) -> ServerChannel:
        channel = self.channels.get(channel_id)
        if channel is None or self.bot not in channel.members:
            raise _Refusal(403, "You do not have the appropriate permissions.")
        return channel

    def _find_post(self, request: web.Request) -> dict[str, Any]:
        post = self.posts.get(request.match_info["id"])
        if post is None:
            raise _Refusal(404, "Unable to get the post.")
        return post

    def _render(self, channel: ServerChannel) -> dict[str, Any]:
        return {"id": channel.id, "type": channel.type, "team_id": channel.team_id, "name": channel.id,
                "display_name": channel.display_name, "last_post_at": channel.last_post_at}  # fmt: skip

    def _make_id(self, kind: str) -> str:
        self._numbers += 1
        return f"{kind}{self._numbers:025}"  # ids have 26 characters

    def _make_time(self) -> int:
        self._last_time = max(self._last_time + 1, int(time.time() * 1000))
        return self._last_time


def _list_actions(props: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [action for one in props.get("attachments", []) for action in one.get("actions", [])]


def _check_props(props: Mapping[str, Any]) -> None:
    """Refuse properties that are not attachments with valid buttons."""
    ids = [action.get("id", "") for action in _list_actions(props)]
    if props.keys() - {"attachments"} or len(set(ids)) < len(ids):
        raise _Refusal(400, "Invalid props")
    for action in _list_actions(props):
        integration = action.get("integration", {})
        is_called = str(integration.get("url", "")).startswith(("http://", "https://"))
        if not (action["id"].isalnum() and action.get("name") and is_called and action.get("type") == "button"):
            raise _Refusal(400, "Invalid action")


def _remove_integrations(post: Mapping[str, Any]) -> dict[str, Any]:
    """Return a post as clients get it: addresses and contexts of its buttons stay on the server."""
    attachments = [
        one | {"actions": [{key: action[key] for key in ("id", "name", "type")} for action in one.get("actions", [])]}
        for one in post["props"].get("attachments", [])
    ]
    return dict(post) | {"props": {"attachments": attachments} if attachments else {}}


@asynccontextmanager
async def mattermost_server(token: str, *, file_limit: int = 1024 * 1024) -> AsyncIterator[MattermostServer]:
    """Serve on a free port."""
    server = MattermostServer(token, file_limit=file_limit)
    runner = web.AppRunner(server.application(), shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await server.end_calls()
        server.hang_up()
        await runner.cleanup()
