"""A real gateway whose disk, store, model or network fails."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.app import warm_program
from tests.app.program import Outcome, Program
from tests.app.warm_program import WarmProcess

from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import LIMIT

SECRET = "sesame-open-4711-0815"
STORE_NOTICE = "I can't reach my database right now. I'll answer as soon as it's back."


@dataclass
class OutageFixture:
    """A profile with a model and a chat network that everyone may use."""

    home: Path
    server: ModelServer
    network: LoopbackNetwork

    def __post_init__(self) -> None:
        self.program = Program(self.home)
        self.folder = self.home / "profiles" / "default"

    @property
    def store(self) -> Path:
        return self.folder / "talaria.db"

    def write_settings(self, *, model: str = "", store: str = "", more: str = "") -> None:
        """Write the settings; `SECRET` is the key of the model, so that it is masked."""
        self.folder.mkdir(mode=0o700, parents=True)
        (self.folder / "config.toml").write_text(
            f'[model]\nprovider = "mine"\nname = "scripted"\n{model}'
            f'[providers.mine]\nbase_url = "{self.server.url}/v1"\nkey = "MINE_KEY"\n'
            f'{more}[log]\nformat = "json"\n[access]\neveryone = true\nowners = ["loopback:ann"]\n'
            f"[gateway]\nlease_seconds = 1.0\ndrain_seconds = 5.0\n[store]\nbusy_timeout_seconds = 0.3\n{store}"
            f'[platforms.loopback.options]\naddress = "{self.network.address}"\n'
        )
        (self.folder / ".env").write_text(f"MINE_KEY={SECRET}\n")
        for name in ("config.toml", ".env"):
            (self.folder / name).chmod(0o600)
        self.server.answering(lambda received: Say(f"re: {received.question}"))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[WarmProcess]:
        """Run a gateway, which must run until the end of the block and then exit cleanly."""
        process = await warm_program.start(
            *("gateway", "run"),
            env=self.program.environment(),
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await self.network.until(lambda: self.network.receivers > 0)
            yield process
            assert process.returncode is None
        finally:
            if process.returncode is None:
                process.terminate()
            async with asyncio.timeout(LIMIT):
                _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        assert "Traceback" not in errors.decode()

    async def run(self, *arguments: str) -> Outcome:
        return await asyncio.to_thread(self.program.run, *arguments)

    async def status(self) -> dict[str, Any]:
        done = await self.run("gateway", "status", "--json")
        assert done.code == 0, done.err
        assert SECRET not in done.out
        (one,) = json.loads(done.out)
        found: dict[str, Any] = one
        return found

    async def until_status(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read the status until a condition holds."""
        deadline = time.monotonic() + 30
        while not holds(status := await self.status()):
            assert time.monotonic() < deadline, status
        return status

    async def get(self, address: str, path: str) -> tuple[int, str]:
        """Send a request to the HTTP server of the gateway."""
        host, _, port = address.removeprefix("http://").partition(":")
        async with asyncio.timeout(LIMIT):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            answer = (await reader.read()).decode()
            writer.close()
        return int(answer.split()[1]), answer.partition("\r\n\r\n")[2]

    async def shown(self, chat: str, *texts: str, seconds: float = LIMIT) -> None:
        """Wait until a chat shows exactly these texts, in this order."""
        try:
            await self.network.until(lambda: self.network.shown(chat) == list(texts), seconds)
        except TimeoutError:
            assert self.network.shown(chat) == list(texts), (self.network.shown(chat), self.log()[-12:])

    async def wait_for_text(self, chat: str, text: str, seconds: float = LIMIT) -> None:
        """Wait until a text is shown in a chat."""
        try:
            await self.network.until(lambda: text in self.network.shown(chat), seconds)
        except TimeoutError:
            assert text in self.network.shown(chat), self.network.shown(chat)

    async def send_and_wait(self, chat: str, text: str) -> None:
        """Send a message, and wait until it is answered and everything about it is stored."""
        self.network.say(chat, text, sender=chat)
        await self.wait_for_text(chat, f"re: {text}")
        await self.until_status(lambda status: not (status["undelivered"] or status["waiting"] or status["turns"]))

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the log."""
        text = (self.folder / "logs" / "talaria.log").read_text()
        return [json.loads(line) for line in text.splitlines() if line]

    def check_log(self) -> None:
        """Check that the expected failure left neither a traceback nor a secret."""
        lines = self.log()
        assert [line for line in lines if line.get("error")] == []
        assert SECRET not in str(lines)
        assert SECRET not in str(self.network.records)
