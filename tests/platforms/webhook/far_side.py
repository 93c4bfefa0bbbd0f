"""The far side of webhooks for the contract suite: a program that posts each event until it is accepted."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from aiohttp import ClientError
from tests.platforms.webhook.webhook_peers import SECRET, Receiver, post, receiver, standard

from talaria.core.addresses import Address
from talaria.platforms.webhook.adapter import Webhooks
from talaria.platforms.webhook.settings import WebhookSettings
from talaria.testing.platform_suite import FailureKind, VisibleMessage
from talaria.testing.system_servers import free_port

SECRETS = {"WEBHOOK_SECRET": SECRET}
_PAUSE = 0.02


def write_route(folder: Path, name: str, **fields: object) -> None:
    """Write a route file with JSON literals as values; they are valid TOML too."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{key} = {msgspec.json.encode(value).decode()}\n" for key, value in fields.items()]
    (folder / f"{name}.toml").write_text("".join(lines))


class Program:
    """Posts events one after the other, each until it is accepted."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._events: deque[tuple[str, bytes]] = deque()
        self._more = asyncio.Event()
        self._count = 0
        self.hangs_up = False

    def say(self, text: str) -> None:
        self._count += 1
        self._events.append((f"event-{self._count}", msgspec.json.encode({"text": text})))
        self.last = self._events[-1]
        self._more.set()

    def say_again(self) -> None:
        self._events.append(self.last)
        self._more.set()

    async def run(self) -> None:
        while True:
            while not self._events:
                self._more.clear()
                await self._more.wait()
            if await self._is_accepted(*self._events[0]):
                self._events.popleft()
            else:
                await asyncio.sleep(_PAUSE)  # real time: a sender tries again later

    async def _is_accepted(self, number: str, body: bytes) -> bool:
        if self.hangs_up:
            self.hangs_up = False
            await self._break_off(number, body)
            return False
        try:
            status, _, _ = await post(self._url, body, standard(body, number))
        except (ClientError, TimeoutError):
            return False
        return status == 202

    async def _break_off(self, number: str, body: bytes) -> None:
        """Post, and disconnect before the answer."""
        there = urlsplit(self._url)
        _, writer = await asyncio.open_connection(there.hostname, there.port)
        head = {"host": there.netloc, "content-length": str(len(body)), **standard(body, number)}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        writer.write(f"POST {there.path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
        await writer.drain()
        writer.transport.abort()


class WebhookFarSide:
    """A program on the route `ann` that posts as a person; there are no groups, threads, files or buttons."""

    def __init__(self, platform: Webhooks, program: Program, receiver: Receiver) -> None:
        self.platform = platform
        self.secret = SECRET
        self.private = Address("webhook", "ann")
        self.group: Address | None = None
        self.thread: Address | None = None
        self.nowhere = Address("webhook", "nowhere")
        self._program = program
        self._receiver = receiver

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        self._program.say(text)

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        raise NotImplementedError

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        raise NotImplementedError

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        raise NotImplementedError

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        raise NotImplementedError

    async def redelivers(self) -> bool:
        self._program.say_again()
        return True

    async def seen(self, at: Address) -> list[VisibleMessage]:
        assert self._receiver.refused == 0
        return [
            VisibleMessage(message_id=one.key, text=one.body["text"], reply_to=one.body["reply_to"])
            for one in self._receiver.replies
            if one.body["route"] == at.chat_id
        ]

    async def disrupt(self, failure: FailureKind) -> bool:
        match failure:
            case "slow_down":
                self._receiver.answer = lambda: 429
            case "failing":
                self._receiver.answer = lambda: 502
            case "silent":
                self._receiver.answer = lambda: 0
            case "cut":
                self._receiver.hang_up()
                self._program.hangs_up = True
            case _:  # there is no login and no standing connection
                return False
        return True

    async def calm(self) -> None:
        self._receiver.calm()


@asynccontextmanager
async def webhook_far_side(folder: Path) -> AsyncIterator[WebhookFarSide]:
    """Open the adapter with one route, its sending program and its receiver of replies."""
    async with receiver() as there:
        write_route(folder, "ann", title="Ann", template="{{ text }}", fenced=False, deliver_to=there.url)
        settings = WebhookSettings(routes=str(folder), port=free_port(), posting=timedelta(seconds=2))
        platform = Webhooks(settings, SECRETS.get)
        program = Program(f"http://127.0.0.1:{settings.port}/webhooks/ann")
        posting = asyncio.ensure_future(program.run())
        try:
            yield WebhookFarSide(platform, program, there)
        finally:
            posting.cancel()
            await asyncio.gather(posting, return_exceptions=True)
            await platform.close()
