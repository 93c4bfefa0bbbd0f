"""A process that serves sessions and follows its settings, with a scripted model."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomlkit
from tests.open_requests import change_request

from talaria.app.application import TalariaApplication, open_application
from talaria.app.settings_reload import follow_settings
from talaria.core.events import TurnEnd, TurnEvent
from talaria.core.ids import new_id
from talaria.core.messages import Message, Text
from talaria.runtime.open_session import OpenRequest, OpenSession, SurfaceInfo
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles
from talaria.settings.secrets import read_secrets
from talaria.testing.model_server import ModelServer
from talaria.testing.wait import until

SECONDS = 60.0
_NO_CHATS = "[platforms.loopback]\nenabled = false\n"


@dataclass
class Process:
    """A serving process with an open session."""

    application: TalariaApplication
    server: ModelServer
    stack: AsyncExitStack
    jobs: asyncio.TaskGroup
    request: OpenRequest
    events: list[TurnEvent] = field(default_factory=list)

    async def open(self, **request: Any) -> OpenSession:
        self.request = change_request(self.request, **request)
        chat = await self.application.open_session(self.request, self.stack, self.jobs)
        chat.events.subscribe(self.events.append)
        return chat

    async def write(self, key: str, value: str) -> None:
        """Change a setting in the file, as another process does, and wait until it is loaded."""
        file, before = self.application.profile.config_file, self.application.settings
        document: Any = tomlkit.parse(file.read_text())
        *tables, name = key.split(".")
        table = document
        for one in tables:
            table = table.setdefault(one, tomlkit.table())
        table[name] = tomlkit.value(value)
        file.write_text(tomlkit.dumps(document))
        await self.until(lambda: self.application.settings is not before)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition of the process holds."""
        await until(holds)

    async def signature(self, chat: OpenSession) -> str:
        """Return the signature that the agent of an open session would have at the next message."""
        request = change_request(self.request, resume=chat.conversation.session_id)
        return (await self.application.agent_spec(request)).signature


@asynccontextmanager
async def process(home: Path, settings: str = _NO_CHATS, **variables: str) -> AsyncIterator[Process]:
    profile = Profiles(home).active()
    profile.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", **variables}
    async with ModelServer(models=("scripted",)) as server, asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        profile.config_file.write_text(
            f'[providers.mine]\nbase_url = "{server.url}/v1"\n[providers.other]\nbase_url = "{server.url}/v1"\n'
            f"{settings}"
        )
        loaded = load_settings(profile, environment)
        application = open_application(loaded, profile, read_secrets(profile, environment), environment, stack)
        stack.callback(jobs.create_task(follow_settings(application, lambda text: None, pause=0.01)).cancel)
        yield Process(
            application,
            server,
            stack,
            jobs,
            OpenRequest(surface=SurfaceInfo(source="cli", folder=home), model="mine:scripted", titled=False),
        )


def message(text: str) -> Message:
    return Message(role="user", parts=(Text(text),), at=datetime.now(UTC))


async def send_message(chat: OpenSession, text: str) -> TurnEnd | None:
    return await chat.conversation.say(message(text), source="cli", external_id=new_id())
