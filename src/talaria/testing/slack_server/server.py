"""A strict Slack workspace on loopback: real HTTP and a real WebSocket."""

import asyncio
import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from msgspec import Struct

from talaria.testing.slack_server.channel import Channel
from talaria.testing.slack_server.methods import METHODS
from talaria.testing.slack_server.office import SocketModeHub
from talaria.testing.slack_server.world import MethodError, StoredChannel, StoredFile, User, World

TOKEN = "xoxb-loopback-token-for-tests-only"  # noqa: S105 -- of an app that exists in tests only
APP_TOKEN = "xapp-loopback-token-for-tests-only"  # noqa: S105 -- the same
_LARGEST = 100_000_000


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

    ``calls`` has all answered requests, ``office`` the delivered envelopes. ``missing`` are scopes that the app lacks,
    ``absent`` missing methods, and ``revoked`` means that its tokens are invalid.
    """

    def __init__(self) -> None:
        self.world = World()
        self.office = SocketModeHub()
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
        application.router.add_get("/link", self.office.serve)
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
        self.office.cut()
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
        return self._open(StoredChannel(f"C{len(self.world.places):06}", name, "channel", people))

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
        self.office.deaf = False
        self.revoked = False

    def _open(self, place: StoredChannel) -> Channel:
        self.world.places[place.id] = place
        return Channel(self.world, self.office, place)

    async def _answer(self, request: web.Request) -> web.Response:
        method = request.match_info["method"]
        parameters_given = await _parameters(request)
        fault = self._faults.get(method)
        if fault is not None and fault.times > 0:
            fault.times -= 1
            if fault.answer is not None:
                return fault.answer()
            if fault.done:
                self._done(method, parameters_given, request)
            await self._recovered.wait()
            raise web.HTTPServiceUnavailable
        return web.json_response(self._done(method, parameters_given, request))

    def _done(self, method: str, parameters_given: dict[str, Any], request: web.Request) -> dict[str, Any]:
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
            return {"url": f"{self.world.url.replace('http', 'ws')}/link?ticket={self.office.ticket()}"}
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


async def _parameters(request: web.Request) -> dict[str, Any]:
    """Return the parameters of a request: a query, a form (lists in it are JSON), or JSON."""
    parameters_given: dict[str, Any] = dict(request.query)
    if request.content_type == "application/json":
        parameters_given |= await request.json()
        return parameters_given
    parameters_given |= dict(await request.post())
    return {name: json.loads(one) if str(one).startswith(("[", "{")) else one for name, one in parameters_given.items()}
