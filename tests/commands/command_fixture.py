"""A client for messages and commands: a real application with a temporary profile and a scripted model server."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import structs
from tests.open_requests import change_request
from tests.storage.engines import create_empty_store

from talaria.app.application import TalariaApplication, open_application
from talaria.commands.command import Author, Command, CommandContext, Display, run_command
from talaria.commands.registry import REGISTRY, resolve_command
from talaria.core.addresses import Address
from talaria.core.errors import NotFound
from talaria.core.events import TurnEnd, TurnEvent
from talaria.core.messages import Image, Part, Text
from talaria.runtime.active_session import ActiveSession
from talaria.runtime.open_session import OpenRequest, SurfaceInfo
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles
from talaria.settings.secrets import read_secrets
from talaria.testing.model_server import ModelServer
from talaria.testing.wait import LIMIT

THEMES = ("dark", "light", "plain")


@dataclass
class RecordingSurface:
    """Implements `Surface`: records what is shown, and answers choices with ``answers`` in order."""

    name: str = "cli"
    address: Address | None = None
    display: Display = field(default_factory=Display)
    shown: list[str] = field(default_factory=list)
    questions: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    answers: list[int | None] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def home_address(self) -> Address | None:
        return self.address

    def change_display(self, display: Display) -> None:
        self.display = display

    def show(self, text: str) -> None:
        self.shown.append(text)
        self.news.set()

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        self.questions.append((question, tuple(choices)))
        return self.answers.pop(0) if self.answers else None

    async def wait_for_text(self, part: str) -> str:
        """Wait until a text that contains this part is shown, and return it."""
        async with asyncio.timeout(LIMIT):
            while True:
                found = [text for text in self.shown if part in text]
                if found:
                    return found[-1]
                self.news.clear()
                await self.news.wait()


@dataclass
class RecordingScreen:
    """Implements `TerminalSurface`: records what is done to it."""

    theme: str = THEMES[0]
    keys: str = "Enter sends"
    attached: list[Image] = field(default_factory=list)
    filled: list[str] = field(default_factory=list)
    copied: list[str] = field(default_factory=list)
    clipboard: str | Image | None = None
    is_muted: bool = False
    left: bool = False

    def change_theme(self, name: str) -> None:
        if name not in THEMES:
            raise NotFound(f"There is no theme `{name}`. Available: {', '.join(THEMES)}.")
        self.theme = name

    def attach(self, picture: Image) -> None:
        self.attached.append(picture)

    def set_input_text(self, text: str) -> None:
        self.filled.append(text)

    def copy(self, text: str) -> None:
        self.copied.append(text)

    async def paste(self) -> str | Image | None:
        return self.clipboard

    def mute(self) -> None:
        self.is_muted = True

    def leave(self) -> None:
        self.left = True


class ChatClient:
    """Send messages and commands as a person does; ``screen`` is ``None`` if it is a chat on a network."""

    def __init__(
        self,
        application: TalariaApplication,
        active_session: ActiveSession,
        surface: RecordingSurface,
        screen: RecordingScreen | None,
    ) -> None:
        self.application = application
        self.active_session = active_session
        self.surface = surface
        self.screen = screen
        self.author = Author()
        self.commands: tuple[Command, ...] = REGISTRY
        self.events: list[TurnEvent] = []

    @property
    def shown(self) -> list[str]:
        """Everything shown so far."""
        return self.surface.shown

    async def use(self, text: str, **changes: Any) -> str:
        """Run a command and return what it shows; ``changes`` are other values for the context."""
        before = len(self.shown)
        await run_command(text, self.context(**changes))
        return "\n\n".join(self.shown[before:])

    async def offers(self, name: str, arguments: str = "") -> list[tuple[str, str]]:
        """Return the completions of a command's arguments."""
        command = resolve_command(name, self.commands)
        assert command is not None
        return list(await command.offers(self.context(arguments=arguments)))

    async def say(self, *parts: str | Part) -> TurnEnd | None:
        """Send a message, wait until the inbox is empty, and return how the last turn ended."""
        await self.active_session.put(*(Text(part) if isinstance(part, str) else part for part in parts))
        return await self.active_session.chat.conversation.wait_until_idle()

    def context(self, **changes: Any) -> CommandContext:
        """Return the context of a command without arguments."""
        context = CommandContext(
            arguments="",
            active_session=self.active_session,
            surface=self.surface,
            application=self.application,
            commands=self.commands,
            author=self.author,
            screen=self.screen,
        )
        return structs.replace(context, **changes)

    async def transcript(self) -> list[tuple[str, str]]:
        """Return role and text of each message in the active session."""
        session_id = self.active_session.session_id
        stored = await self.application.store.read(lambda tx: tx.messages.load(session_id))
        return [(one.message.role, one.message.text) for one in stored]


@asynccontextmanager
async def open_chat_client(
    home: Path,
    server: ModelServer,
    settings: str = "",
    *,
    secrets: str = "",
    chat: Address | None = None,
    key: str = "",
    **options: Any,
) -> AsyncIterator[ChatClient]:
    """Open a client; opened again in the same folder it has the same profile, as after a restart.

    ``settings`` are lines for config.toml, ``chat`` makes it a chat at that address, bound by ``key``; ``options``
    are changes of the `OpenRequest`. Sessions get no titles unless ``titled`` is set.
    """
    profile = Profiles(home / "home").active()
    _write_profile(profile.folder, server, settings, secrets)
    create_empty_store(profile.database_file)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    folder = home / "work"
    folder.mkdir(exist_ok=True)
    name = chat.platform if chat else "cli"
    request = OpenRequest(surface=SurfaceInfo(source=name, folder=folder, lasting=True), titled=False)
    request = change_request(request, **options)
    surface = RecordingSurface(name, chat)
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        loaded = load_settings(profile, environment)
        application = open_application(loaded, profile, read_secrets(profile, environment), environment, stack)
        events: list[TurnEvent] = []
        active_session = ActiveSession(application, request, events.append, jobs, key=key, address=chat)
        client = ChatClient(application, active_session, surface, None if chat else RecordingScreen())
        client.events = events
        stack.push_async_callback(active_session.close)
        await active_session.open()
        active_session.start_background_task(
            application.supervise_background(
                jobs, lambda: active_session.session_id if active_session.is_open else None
            )
        )
        yield client


def _write_profile(folder: Path, server: ModelServer, settings: str, secrets: str) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{server.url}/v1"\n'
    for name, text in (("config.toml", own + settings), (".env", secrets)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
