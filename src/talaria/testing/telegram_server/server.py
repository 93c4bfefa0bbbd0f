"""A strict Bot API server on loopback: real HTTP, with simulated people."""

import asyncio
from types import TracebackType
from typing import Any, Self

import msgspec
from aiohttp import BodyPartReader, web
from msgspec import Struct

from talaria.testing.telegram_server.chat import BotAccount, Chat
from talaria.testing.telegram_server.files import LARGEST_UPLOAD, Upload
from talaria.testing.telegram_server.messages import Message, Update
from talaria.testing.telegram_server.methods import METHODS, Method
from talaria.testing.telegram_server.parts import BotCommand, ChatInfo, ChatType, User
from talaria.testing.telegram_server.refusals import BrokenMethod, Fail, Faults, Refusal, bad_request
from talaria.testing.telegram_server.world import Delivered, World
from talaria.testing.wait import LIMIT

TOKEN = "7000000001:AAH-loopback-token-for-tests-only-000000"  # noqa: S105 - of a bot that exists in tests only


class Call(Struct, frozen=True):
    """An answered request: its parameters and its whole answer."""

    method: str
    parameters: dict[str, Any]
    status: int
    answer: Any


class TelegramServer:
    """A Bot API server at a free port of loopback; ``async with`` starts and ends it.

    ``privacy`` is Telegram's privacy mode: in groups the bot sees only messages addressed to it. ``topics`` allows
    topics in private chats. ``calls`` has all answered requests, in order, ``deliveries`` all attempts to reach the
    webhook, ``menus`` the commands that were set, by scope and language; ``world`` changes properties of chats.
    """

    def __init__(
        self,
        *,
        token: str = TOKEN,
        username: str = "talaria_bot",
        privacy: bool = False,
        topics: bool = False,
        port: int = 0,
    ) -> None:
        self.token = token
        self.bot = User(id=int(token.partition(":")[0]), first_name="Talaria", username=username, is_bot=True)
        self.calls: list[Call] = []
        self._faults = Faults()
        self._port = port
        self._account = BotAccount(self.bot, privacy=privacy, topics=topics)
        self.world = World(self._account)
        self.deliveries: list[Delivered] = self.world.webhook.attempts
        self.menus: dict[tuple[object, str], list[BotCommand]] = self.world.menus
        self._arrived: list[str] = []
        self._group = asyncio.TaskGroup()
        self._delivery: asyncio.Task[None] | None = None
        application = web.Application(client_max_size=2 * LARGEST_UPLOAD)
        application.router.add_route("*", "/bot{token}/{method}", self._answer)
        application.router.add_get("/file/bot{token}/{path:.+}", self._download)
        self._runner = web.AppRunner(application, handler_cancellation=True, access_log=None, shutdown_timeout=0.01)

    @property
    def url(self) -> str:
        """Return where to reach it."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        """Return what stands before the token in the addresses of methods."""
        return f"{self.url}/bot"

    @property
    def base_file_url(self) -> str:
        """Return what stands before the token in the addresses of files."""
        return f"{self.url}/file/bot"

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        await self._group.__aenter__()
        self._delivery = self._group.create_task(self.world.webhook.deliver())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._delivery is not None:
            self._delivery.cancel()
        await self._group.__aexit__(None, None, None)
        await self._runner.cleanup()

    def user(self, name: str, *, username: str = "") -> User:
        """Return the person of that name."""
        return self.world.person(name, username or f"{name.lower()}_of_tests")

    def private(self, user: User) -> Chat:
        """Return the chat of a person with the bot; it has been started."""
        info = ChatInfo(id=user.id, type="private", first_name=user.first_name, username=user.username)
        return Chat(self.world.rooms.get(user.id) or self.world.add(info, [user], admin=False))

    def group(
        self, title: str, *members: User, kind: ChatType = "group", admin: bool = False, username: str = ""
    ) -> Chat:
        """Open a group, a supergroup or a channel with the bot in it; its first member owns it."""
        number = self.world.free_id(large=kind != "group")
        info = ChatInfo(id=number, type=kind, title=title, username=username)
        return Chat(self.world.add(info, members, admin=admin or kind == "channel"))

    def forum(self, title: str, *members: User, admin: bool = True) -> Chat:
        """Open a supergroup with topics; as an administrator the bot may make topics too."""
        info = ChatInfo(id=self.world.free_id(large=True), type="supergroup", title=title, is_forum=True)
        return Chat(self.world.add(info, members, admin=admin))

    def redeliver(self, update: Update | Message, *, times: int = 2) -> None:
        """Deliver an update, or the one that a message came with, so many times more."""
        found = update.update if isinstance(update, Message) else update
        if found is None:
            raise LookupError("The bot was never notified of this message.")
        self._account.updates.put_again(found, times)

    def flood(self, *, after: int, retry_after: int) -> None:
        """Let so many messages and edits pass, then refuse them with 429 for so many seconds."""
        self._faults.flood(after=after, retry_after=retry_after)

    def fail(self, method: str, status: int, times: int = 1, *, description: str = "") -> None:
        """Answer so many calls with an error; the method ``*`` is any."""
        self._faults.add(BrokenMethod(method, times, fail=Fail(status, description)))

    def hang(self, method: str, *, times: float = float("inf"), done: bool = False) -> None:
        """Accept calls and never answer; with ``done`` they take effect all the same. `recover` ends it."""
        self._faults.add(BrokenMethod(method, times, loss="hang", done=done))

    def lose(self, method: str, *, times: float = 1, done: bool = True) -> None:
        """Break the connection in place of an answer, by default after the call has taken effect."""
        self._faults.add(BrokenMethod(method, times, loss="drop", done=done))

    def recover(self) -> None:
        """End all faults; what hangs already hangs on."""
        self._faults.clear()

    def drop_connections(self) -> None:
        """Break all connections that clients have open now."""
        for connection in self._runner.server.connections if self._runner.server else []:
            if connection.transport is not None:
                connection.transport.abort()

    async def called(self, method: str, times: int = 1, *, within: float = LIMIT) -> None:
        """Wait until a method has been called so many times, answered or not."""
        await self._account.changes.until(lambda: self._arrived.count(method) >= times, within=within)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["method"]
        method = METHODS.get(name.lower())
        parameters: dict[str, object] = {}
        try:
            parameters = await read_request(request)
            self._arrived.append(method.name if method else name)
            self._account.changes.happened()
            result = await self._do(request, method, parameters)
            status, answer = 200, {"ok": True, "result": result}
        except Refusal as refusal:
            status, answer = refusal.code, refusal.body()
        body = msgspec.json.encode(answer)
        self.calls.append(
            Call(method.name if method else name, decode_values(parameters), status, msgspec.json.decode(body))
        )
        self._account.changes.happened()
        return web.Response(status=status, body=body, content_type="application/json")

    async def _do(self, request: web.Request, method: Method | None, parameters: dict[str, object]) -> object:
        """Run a method, unless a fault is in its way."""
        if request.match_info["token"] != self.token:
            raise Refusal(401, "Unauthorized")
        if method is None:
            raise Refusal(404, "Not Found")
        broken = self._faults.take(method.name)
        if broken is None or broken.done:
            self._faults.check_flood(method.name)
            result = await method.call(self.world, parameters)
        if broken is None:
            return result
        if broken.fail is not None:
            raise broken.fail.refusal()
        if broken.loss == "drop" and request.transport is not None:
            request.transport.abort()
        return await asyncio.Event().wait()

    async def _download(self, request: web.Request) -> web.Response:
        file = self._account.files.at(request.match_info["path"])
        if request.match_info["token"] != self.token or file is None:
            refusal = Refusal(404, "Not Found") if file is None else Refusal(401, "Unauthorized")
            return web.json_response(refusal.body(), status=refusal.code)
        return web.Response(body=file.data, content_type="application/octet-stream")


async def read_request(request: web.Request) -> dict[str, object]:
    """Return the parameters by name; files are `Upload`, values of forms are text."""
    values: dict[str, object] = dict(request.query)
    match request.content_type:
        case "application/json":
            values |= await _read_json(request)
        case "application/x-www-form-urlencoded":
            values |= {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
        case "multipart/form-data":
            values |= await _read_multipart(request)
    return values


def decode_values(values: dict[str, object]) -> dict[str, object]:
    """Return the parameters as a test looks at them: what is JSON inside a form is decoded."""
    return {name: _decode_value(value) if isinstance(value, str) else value for name, value in values.items()}


def _decode_value(value: str) -> object:
    if not value.startswith(("{", "[")):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


async def _read_json(request: web.Request) -> dict[str, object]:
    body = await request.read()
    if not body:
        return {}
    try:
        return msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise bad_request(f"can't parse request body as JSON object: {error}") from error


async def _read_multipart(request: web.Request) -> dict[str, object]:
    values: dict[str, object] = {}
    try:
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader) or part.name is None:
                raise bad_request("can't parse multipart/form-data")
            data = bytes(await part.read(decode=True))
            if part.filename is None:
                values[part.name] = data.decode()
            else:
                values[part.name] = Upload(data, part.filename, part.headers.get("Content-Type", ""))
    except ValueError as error:
        raise Refusal(400, "Bad Request: can't parse multipart/form-data") from error
    return values
