"""Every setting that is marked as live is taken over by a running process, also in conversations that are open."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from talaria.app.house import House, open_house
from talaria.app.live_settings import follow_settings
from talaria.contracts.stores.sessions import SessionChanges
from talaria.core.events import TurnEnd, TurnEvent, TurnOutOfBudget
from talaria.core.ids import new_id
from talaria.core.messages import Message, Text
from talaria.sessions.chat import Chat, ChatWish
from talaria.settings.fields import Model
from talaria.settings.load import load_settings
from talaria.settings.model import Settings
from talaria.settings.profiles import Profiles
from talaria.settings.secrets import read_secrets
from talaria.testing.model_server import Ask, ModelServer, Say

SECONDS = 60.0
LIVE = {field.key.replace("<name>", "scripted"): field for field in Model().fields() if field.live}
CANDIDATES: tuple[Any, ...] = (
    *(True, False, 1, 2, 7, 0.5, 3.5, ["loopback:1"], ["terminal"], {"status": ["loopback:1"]}, {"chat": "be brief"}),
    2000,
    *(
        "debug",
        "steer",
        "off",
        "ask",
        "high",
        "mine:spare",
        "mine",
        "10m",
        "UTC",
        "08:00-09:00",
        "light",
        "new",
        "idle",
    ),
    *("cat", "alloy", "never", "owner", "loopback:1", "always", "https://collector.test"),
)
# Each of these is read from the settings of the process whenever it is used, by the code that its section names.
READ_AT_USE = (
    *(
        "cli.color",
        "cli.theme",
        "cli.busy",
        "sessions.",
        "doctor.",
        "embedded.",
        "schedule.",
        "heartbeat.",
        "gateway.busy",
        "gateway.reply_characters",
    ),
    *("media.", "voice.", "delegation.", "access.", "platforms.", "people.", "approval.", "agent.", "budget.turn"),
)


@dataclass
class Process:
    """A process that serves, with a conversation open in it."""

    house: House
    server: ModelServer
    stack: AsyncExitStack
    jobs: asyncio.TaskGroup
    wish: ChatWish
    events: list[TurnEvent] = field(default_factory=list)

    async def open(self, **wish: Any) -> Chat:
        self.wish = structs.replace(self.wish, **wish)
        return await self.house.open_chat(self.wish, self.events.append, self.stack, self.jobs)

    async def write(self, key: str, value: str) -> None:
        """Change a setting in the file, as another process does, and wait until it is taken over."""
        text = self.house.profile.config_file.read_text()
        table, _, name = key.rpartition(".")
        self.house.profile.config_file.write_text(f"{text}\n[{table}]\n{name} = {value}\n")
        before = self.house.settings
        await self.until(lambda: self.house.settings is not before)

    async def until(self, come_true: Callable[[], bool]) -> None:
        """Wait until something is true of the process."""
        async with asyncio.timeout(SECONDS):
            while not come_true():  # noqa: ASYNC110 (files tell nobody that they change)
                await asyncio.sleep(0.02)

    async def signature(self, chat: Chat) -> str:
        """Return what the agent of an open conversation would be made of at the next message."""
        wish = structs.replace(self.wish, resume=chat.conversation.session_id)
        return (await self.house.prospect(wish)).signature


@asynccontextmanager
async def process(home: Path, **variables: str) -> AsyncIterator[Process]:
    profile = Profiles(home).active()
    profile.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", **variables}
    async with ModelServer(models=("scripted",)) as server, asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        profile.config_file.write_text(
            f'[providers.mine]\nbase_url = "{server.url}/v1"\n[providers.other]\nbase_url = "{server.url}/v1"\n'
            "[platforms.loopback]\nenabled = false\n"
        )
        settings = load_settings(profile, environment)
        house = open_house(settings, profile, read_secrets(profile, environment), environment, stack)
        stack.callback(jobs.create_task(follow_settings(house, lambda text: None, pause=0.01)).cancel)
        yield Process(
            house, server, stack, jobs, ChatWish(source="cli", folder=home, model="mine:scripted", titled=False)
        )


def message(text: str) -> Message:
    return Message(role="user", parts=(Text(text),), at=datetime.now(UTC))


async def said(chat: Chat, text: str) -> TurnEnd | None:
    return await chat.conversation.say(message(text), source="cli", external_id=new_id())


async def _signature(here: Process, chat: Chat) -> object:
    return await here.signature(chat)


async def _effort(here: Process, chat: Chat) -> object:
    return (await here.house.prospect(structs.replace(here.wish, resume=chat.conversation.session_id))).effort


async def _chosen(here: Process, chat: Chat) -> object:
    return await here.house.models.chosen()


async def _caps(here: Process, chat: Chat) -> object:
    session_id = chat.conversation.session_id
    session = await here.house.store.read(lambda tx: tx.sessions.get(session_id))
    assert session is not None
    return here.house.caps(session)


async def _goals(here: Process, chat: Chat) -> object:
    return here.house.goal_budgets


async def _zone(here: Process, chat: Chat) -> object:
    return here.house.zone


async def _log_level(here: Process, chat: Chat) -> object:
    return logging.getLogger("talaria").level


PROBES: dict[str, Callable[[Process, Chat], Awaitable[object]]] = {
    "model.provider": _chosen,
    "model.name": _chosen,
    "model.effort": _effort,
    "model.": _signature,
    "models.": _signature,
    "access.guest_tools": _signature,
    "delegation.depth": _signature,
    "goals.judge_seconds": _signature,
    "goals.verify_seconds": _signature,
    "goals.": _goals,
    "budget.total": _caps,
    "budget.person": _caps,
    "budget.session": _caps,
    "cli.time_zone": _zone,
    "log.level": _log_level,
}


def _other_value(key: str) -> object:
    found = LIVE[key]
    if key == "model.provider":
        return "mine"
    return next(one for one in CANDIDATES if one != found.default and found.accepts(one))


def _written(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {_written(one)}' for name, one in value.items())} }}"
    return msgspec.json.encode(value).decode()


def _value(settings: Settings, key: str) -> object:
    found: Any = settings
    for name in key.split("."):
        found = found[name] if isinstance(found, Mapping) else getattr(found, name)
    return msgspec.json.decode(msgspec.json.encode(found))


@pytest.mark.parametrize("key", sorted(LIVE))
async def test_a_live_setting_is_taken_over(tmp_path: Path, key: str) -> None:
    probes = [probe for prefix, probe in PROBES.items() if key.startswith(prefix)]
    assert probes or key.startswith(READ_AT_USE), f"{key} is marked as live: say here how that shows"
    provider = {"TALARIA__MODEL__PROVIDER": "mine"} if key == "model.name" else {}
    async with process(tmp_path, **provider) as here:
        chat = await here.open()
        before = [await probe(here, chat) for probe in probes[:1]]
        await here.write(key, _written(_other_value(key)))
        assert [await probe(here, chat) for probe in probes[:1]] != before or not probes
        assert _value(here.house.settings, key) == _other_value(key)


async def test_approval_holds_in_an_open_conversation(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        await here.write("approval.mode", '"off"')
        chat = await here.open(attended=False)
        here.server.script(Say(calls=[Ask("terminal", {"command": "sudo -n true; echo first"})]), Say("one"))
        await said(chat, "go")
        here.house.profile.config_file.write_text(
            here.house.profile.config_file.read_text().replace('mode = "off"', 'mode = "ask"')
        )
        await here.until(lambda: here.house.settings.approval.mode == "ask")
        here.server.script(Say(calls=[Ask("terminal", {"command": "sudo -n true; echo second"})]), Say("two"))
        await said(chat, "again")
        results = [one.json["messages"][-1]["content"] for one in here.server.received]
        assert "first" in str(results[1])
        assert "Not allowed" in str(results[-1])


@pytest.mark.parametrize(
    ("key", "value"), [("agent.max_iterations", "1"), ("agent.max_turn_tokens", "1"), ("budget.turn", "0.000001")]
)
async def test_limits_hold_for_the_next_turn_of_an_open_conversation(tmp_path: Path, key: str, value: str) -> None:
    async with process(tmp_path) as here:
        await here.write("models.scripted.input_price", "1000.0")
        chat = await here.open()
        calls = [Say(calls=[Ask("list_files", {"depth": number})]) for number in range(1, 4)]
        here.server.script(*calls, Say("done"))
        assert not isinstance(await said(chat, "go"), TurnOutOfBudget)
        await here.write(key, value)
        here.server.script(*calls, Say("done"))
        assert isinstance(await said(chat, "again"), TurnOutOfBudget)


async def test_fallbacks_and_auxiliary_models_are_those_of_the_settings(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        chosen = await here.house.models.choose("mine", "scripted", "")
        assert [one.model for one in here.house.models.chain(chosen)] == ["scripted"]
        await here.write("model.fallbacks", '["mine:spare"]')
        assert [one.model for one in here.house.models.chain(chosen)] == ["scripted", "spare"]
        text = here.house.profile.config_file.read_text()
        here.house.profile.config_file.write_text(text.replace("[model]\n", '[model]\nauxiliary = "mine:judge"\n'))
        await here.until(lambda: here.house.settings.model.auxiliary == "mine:judge")
        assert [one.model for one in here.house.models.auxiliary(chosen)] == ["judge", "spare"]


async def test_a_new_owner_gets_their_tools_in_the_open_conversation(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        chat = await here.open(owner="loopback:ann")
        before = await here.signature(chat)
        session_id = chat.conversation.session_id
        await here.house.store.write(lambda tx: tx.sessions.update(session_id, SessionChanges(owner="")))
        assert await here.signature(chat) != before
