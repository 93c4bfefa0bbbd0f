"""A strict Slack workspace on loopback, real HTTP and a real WebSocket, and its channels as people see them."""

import asyncio
import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from msgspec import Struct

from talaria.testing.slack_server.methods import METHODS, choices_of
from talaria.testing.slack_server.socket_mode import SocketModeHub
from talaria.testing.slack_server.world import Message, MethodError, StoredChannel, StoredFile, User, World
from talaria.testing.wait import LIMIT

_APP = {"token": "verification", "team_id": "T0TESTS", "api_app_id": "A0TALARIA", "type": "event_callback"}
TOKEN = "xoxb-loopback-token-for-tests-only"  # noqa: S105 -- of an app that exists in tests only
APP_TOKEN = "xapp-loopback-token-for-tests-only"  # noqa: S105 -- the same
_LARGEST = 100_000_000


class Channel:
    """One channel, or one private chat."""

    def __init__(self, world: World, hub: SocketModeHub, channel: StoredChannel) -> None:
        self.id = channel.id
        self._world = world
        self._hub = hub
        self._channel = channel

    @property
    def messages(self) -> list[Message]:
        """All messages."""
        return self._channel.messages

    @property
    def answers(self) -> list[Message]:
        """Return the messages of the app."""
        return [one for one in self._channel.messages if one.bot]

    async def says(self, user: User, text: str, *, thread: str = "", mention: bool = False) -> Message:
        """Write as a person; ``mention`` puts the app's name first."""
        named = f"<@{self._world.bot.id}> {text}" if mention else text
        message = Message(self._world.stamp(), user.id, named, thread)
        self._channel.messages.append(message)
        shown = self._world.shown(message) | {"client_msg_id": f"client-{message.ts}"}
        await self._send_event(shown | self._make_parent_fields(thread) | {"channel_type": self._channel.kind})
        if f"<@{self._world.bot.id}>" in named and self._channel.kind != "im":
            await self._send_event(shown | {"type": "app_mention"})
        return message

    async def shares(self, user: User, file: StoredFile, text: str = "", *, thread: str = "") -> Message:
        """Send a file as a person."""
        message = Message(self._world.stamp(), user.id, text, thread, files=[file])
        self._channel.messages.append(message)
        shown = self._world.shown(message) | self._make_parent_fields(thread)
        await self._send_event(shown | {"subtype": "file_share", "channel_type": self._channel.kind})
        return message

    async def edits(self, user: User, message: Message, text: str) -> None:
        """Edit a message as a person; an unchanged text simulates a link preview added by Slack."""
        before = self._world.shown(message)
        message.text = text
        edited = {"edited": {"user": user.id, "ts": self._world.stamp()}} if before["text"] != text else {}
        await self._send_event(
            {
                "type": "message",
                "subtype": "message_changed",
                "hidden": True,
                "channel_type": self._channel.kind,
                "ts": self._world.stamp(),
                "message": self._world.shown(message) | edited,
                "previous_message": before,
            }
        )

    async def reacts(self, user: User, message: Message, name: str) -> None:
        """React to a message as a person."""
        message.reactions.setdefault(name, []).append(user.id)
        item = {"type": "message", "channel": self.id, "ts": message.ts}
        event = {"type": "reaction_added", "user": user.id, "reaction": name, "item": item, "item_user": message.user}
        await self._send_event(event, channel=False)

    async def chooses(self, user: User, message: Message, label: str) -> None:
        """Press a button, or choose from a list, as a person."""
        action = next(action for shown, action in choices_of(message.blocks) if shown == label)
        container = {"type": "message", "message_ts": message.ts, "channel_id": self.id, "is_ephemeral": False}
        thread = {"thread_ts": message.thread_ts} if message.thread_ts else {}
        name = "directmessage" if self._channel.kind == "im" else self._channel.name
        payload = {
            "type": "block_actions",
            "user": {"id": user.id, "username": user.name.lower(), "name": user.name, "team_id": "T0TESTS"},
            "api_app_id": "A0TALARIA",
            "container": container | thread,
            "trigger_id": self._world.stamp(),
            "channel": {"id": self.id, "name": name},
            "message": self._world.shown(message),
            "response_url": f"{self._world.url}/response",
            "actions": [action | {"block_id": "b", "action_ts": self._world.stamp()}],
        }
        await self._hub.post("interactive", payload)

    async def runs(self, user: User, command: str, text: str = "") -> None:
        """Use a slash command as a person; not possible in a thread."""
        payload = {
            "command": command,
            "text": text,
            "channel_id": self.id,
            "channel_name": "directmessage" if self._channel.kind == "im" else self._channel.name,
            "user_id": user.id,
            "user_name": user.name.lower(),
            "trigger_id": self._world.stamp(),
            "response_url": f"{self._world.url}/response",
            "team_id": "T0TESTS",
            "api_app_id": "A0TALARIA",
        }
        await self._hub.post("slash_commands", payload)

    async def opens_assistant(self, user: User) -> Message:
        """Open an assistant thread as a person; return its first message."""
        root = Message(self._world.stamp(), self._world.bot.id, "New thread", bot=True)
        self._channel.messages.append(root)
        thread = {"user_id": user.id, "channel_id": self.id, "thread_ts": root.ts, "context": {}}
        await self._send_event({"type": "assistant_thread_started", "assistant_thread": thread}, channel=False)
        return root

    def remove_bot(self) -> None:
        """Take the app out of the channel."""
        self._channel.members.remove(self._world.bot.id)

    async def wait_for(self, matches: Callable[[Message], bool], *, within: float = LIMIT) -> Message:
        """Wait for a message of the app that matches, and return the first."""
        async with asyncio.timeout(within):
            while not (found := [one for one in self.answers if matches(one)]):  # noqa: ASYNC110 -- people look
                await asyncio.sleep(0.02)
        return found[0]

    def _make_parent_fields(self, thread: str) -> dict[str, str]:
        parent = self._channel.find(thread) if thread else None
        return {"parent_user_id": parent.user} if parent else {}

    async def _send_event(self, event: dict[str, Any], *, channel: bool = True) -> None:
        stamp = self._world.stamp()
        where = {"channel": self.id} if channel else {}
        event = event | where | {"event_ts": event.get("ts", stamp)}
        await self._hub.post("events_api", _APP | {"event_id": f"Ev{stamp}", "event_time": 0, "event": event})


class Call(Struct, frozen=True):
    """An answered request."""

    method: str
    parameters: dict[str, Any]
    answer: dict[str, Any]


class _Fault(Struct):
    """A fault of a method, for so many calls; ``done`` means that the method still takes effect."""

    answer: Callable[[], web.Response] | None
    times: int
    done: bool = False


class SlackServer:
    """A workspace at a free port; ``async with`` starts and ends it.

    ``calls`` has all answered requests, ``hub`` the delivered envelopes. ``missing`` are scopes that the app lacks,
    ``absent`` missing methods, and ``revoked`` means that its tokens are invalid.
    """

    def __init__(self) -> None:
        self.world = World()
        self.hub = SocketModeHub()
        self.calls: list[Call] = []
        self.missing: set[str] = set()
        self.absent: set[str] = set()
        self.revoked = False
        self._faults: dict[str, _Fault] = {}
        self._recovered = asyncio.Event()
        self._direct: dict[str, Channel] = {}
        application = web.Application(client_max_size=_LARGEST)
        application.router.add_route("*", "/api/{method}", self._answer)
        application.router.add_post("/upload/v1/{file}", self._upload)
        application.router.add_get("/files/{file}/download", self._download)
        application.router.add_get("/link", self.hub.serve)
        self._runner = web.AppRunner(application, handler_cancellation=True, access_log=None, shutdown_timeout=0.01)

    @property
    def base_url(self) -> str:
        """Return what stands before the methods."""
        return f"{self.world.url}/api/"

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.world.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.recover()
        self.hub.cut()
        await self._runner.cleanup()

    def user(self, name: str) -> User:
        """Return the person of that name."""
        known = next((one for one in self.world.users.values() if one.name == name), None)
        user = known or User(f"U{len(self.world.users):06}{name.upper()}", name)
        self.world.users[user.id] = user
        return user

    def direct(self, user: User) -> Channel:
        """Return the private chat of a person with the app."""
        if user.id not in self._direct:
            self._direct[user.id] = self._open(StoredChannel(f"D{user.id[1:]}", "", "im", [user.id, self.world.bot.id]))
        return self._direct[user.id]

    def channel(self, name: str, *members: User) -> Channel:
        """Open a channel with the app in it."""
        people = [*(one.id for one in members), self.world.bot.id]
        return self._open(StoredChannel(f"C{len(self.world.channels):06}", name, "channel", people))

    def file(self, name: str, data: bytes, mimetype: str = "text/plain", subtype: str = "") -> StoredFile:
        """Return a file of a person."""
        file = self.world.add_file(name, len(data))
        file.data, file.mimetype, file.subtype = data, mimetype, subtype
        return file

    def fail(self, method: str, error: str = "", *, status: int = 200, retry_after: int = 0, times: int = 1) -> None:
        """Make a method fail: with a Slack error, or with an answer that isn't from Slack."""

        def answer() -> web.Response:
            headers = {"Retry-After": str(retry_after)} if retry_after else {}
            if not error:
                return web.Response(status=status, text="<html>Bad gateway</html>", content_type="text/html")
            return web.json_response({"ok": False, "error": error}, status=status, headers=headers)

        self._faults[method] = _Fault(answer, times)

    def hang(self, method: str) -> None:
        """Let a method take requests and never answer them."""
        self._recovered.clear()
        self._faults[method] = _Fault(None, 1_000_000)

    def swallow(self, method: str) -> None:
        """Make a method act once without ever answering."""
        self._recovered.clear()
        self._faults[method] = _Fault(None, 1, done=True)

    def recover(self) -> None:
        """Let everything go well again."""
        self._faults.clear()
        self._recovered.set()
        self.hub.deaf = False
        self.revoked = False

    def _open(self, channel: StoredChannel) -> Channel:
        self.world.channels[channel.id] = channel
        return Channel(self.world, self.hub, channel)

    async def _answer(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        parameters_given = await _read_parameters(request)
        fault = self._faults.get(method)
        if fault is not None and fault.times > 0:
            fault.times -= 1
            if fault.answer is not None:
                return fault.answer()
            if fault.done:
                self._answer_method(method, parameters_given, request)
            await self._recovered.wait()
            raise web.HTTPServiceUnavailable
        return web.json_response(self._answer_method(method, parameters_given, request))

    def _answer_method(self, method: str, parameters_given: dict[str, Any], request: web.Request) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = {"ok": True} | self._run(
                method, parameters_given, request.headers.get("Authorization", "")
            )
        except MethodError as no:
            answer = {"ok": False, "error": no.error} | no.details
        self.calls.append(Call(method, parameters_given, answer))
        return answer

    def _run(self, method: str, parameters_given: dict[str, Any], token: str) -> dict[str, Any]:
        if self.revoked:
            raise MethodError("invalid_auth")
        if method == "apps.connections.open":
            if token != f"Bearer {APP_TOKEN}":
                raise MethodError("not_allowed_token_type" if token == f"Bearer {TOKEN}" else "invalid_auth")
            return {"url": f"{self.world.url.replace('http', 'ws')}/link?ticket={self.hub.ticket()}"}
        known = METHODS.get(method)
        if known is None or method in self.absent:
            raise MethodError("unknown_method")
        if token != f"Bearer {TOKEN}":
            raise MethodError("invalid_auth" if token else "not_authed")
        if known.scope in self.missing:
            raise MethodError("missing_scope", needed=known.scope, provided="")
        unknown_names = set(parameters_given) - {*known.needs, *known.takes}
        if unknown_names or any(not parameters_given.get(name) for name in known.needs):
            raise MethodError("invalid_arguments", unknown_names=sorted(unknown_names))
        return known.run(self.world, parameters_given)

    async def _upload(self, request: web.Request) -> web.Response:
        file = self.world.files.get(request.match_info["file"])
        data = await request.read()
        if file is None or len(data) != file.length:
            return web.Response(status=400, text="no such upload")
        file.data = data
        return web.Response(text=f"OK - {len(data)}")

    async def _download(self, request: web.Request) -> web.Response:
        file = self.world.files.get(request.match_info["file"])
        if request.headers.get("Authorization") != f"Bearer {TOKEN}" or "files:read" in self.missing:
            return web.Response(status=302, headers={"Location": f"{self.world.url}/login"})
        if file is None or file.data is None:
            return web.Response(status=404)
        return web.Response(body=file.data, content_type=file.mimetype)


async def _read_parameters(request: web.Request) -> dict[str, Any]:
    """Return the parameters of a request: a query, a form (lists in it are JSON), or JSON."""
    parameters_given: dict[str, Any] = dict(request.query)
    if request.content_type == "application/json":
        parameters_given |= await request.json()
        return parameters_given
    parameters_given |= dict(await request.post())
    return {name: json.loads(one) if str(one).startswith(("[", "{")) else one for name, one in parameters_given.items()}
