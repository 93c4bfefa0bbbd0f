"""Every live setting takes effect in a running process, also in open sessions."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.app.serving_process import Process, process, send_message
from tests.app.test_live_chat_settings import SHOWN_IN_CHATS
from tests.app.test_live_work_settings import SHOWN_AT_WORK
from tests.open_requests import change_request

from talaria.contracts.stores.sessions import SessionChanges
from talaria.core.errors import Refused, TalariaError
from talaria.core.events import TurnOutOfBudget
from talaria.runtime.open_session import OpenSession
from talaria.settings.model import Settings
from talaria.settings.schema import SettingsSchema
from talaria.settings.secrets import store_secret
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.tools.output import MASK

LIVE = {field.key.replace("<name>", "scripted"): field for field in SettingsSchema().fields() if field.live}
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
        "shared",
    ),
    *("cat", "alloy", "never", "owner", "loopback:1", "always", "https://collector.test", "anthropic"),
    *(["127.0.0.1"], "git", "deny", "/srv/notes"),
)
# Their effect is shown by other tests: in chats, in turns, jobs and commands, and at the end of this file.
SHOWN_ELSEWHERE = {
    key.replace(".loopback.", ".scripted.").replace(".sammy.", ".scripted.") for key in SHOWN_IN_CHATS
} | {
    *SHOWN_AT_WORK,
    *("approval.mode", "agent.max_iterations", "agent.max_turn_tokens", "budget.turn"),
    # A sign-in reads them when it begins, and the chat when it opens: tests/app/logins, tests/install.
    *(f"logins.scripted.{name}" for name in ("client_id", "exchange_url", "issuer", "scope")),
    "update.check",
    # A tool, command or server reads them with each use: their tests are those of the tool.
    *(
        key
        for key in LIVE
        if key.startswith(("browser.", "checkpoints.", "images.", "mcp.", "rules.", "api.proxy_", "api.voice_"))
    ),
    "gateway.diff_lines",
    # Each message is admitted by the rules of that moment: tests/gateway/test_rooms.py, tests/system/test_routes.py.
    *(key for key in LIVE if key.startswith(("personas.", "routes.", "platforms.scripted.rooms."))),
}


async def _signature(here: Process, chat: OpenSession) -> object:
    return await here.signature(chat)


async def _effort(here: Process, chat: OpenSession) -> object:
    return (await here.application.agent_spec(change_request(here.request, resume=chat.conversation.session_id))).effort


async def _chosen(here: Process, chat: OpenSession) -> object:
    return await here.application.models.resolve_default_model()


async def _choosable(here: Process, chat: OpenSession) -> object:
    try:
        return await here.application.models.resolve_default_model()
    except Refused as error:
        return str(error)


async def _alias(here: Process, chat: OpenSession) -> object:
    try:
        return await here.application.models.find("fast")
    except TalariaError as error:
        return str(error)


async def _caps(here: Process, chat: OpenSession) -> object:
    session_id = chat.conversation.session_id
    session = await here.application.store.read(lambda tx: tx.sessions.get(session_id))
    assert session is not None
    return here.application.caps(session)


async def _goals(here: Process, chat: OpenSession) -> object:
    return here.application.goal_budgets


async def _accounts(here: Process, chat: OpenSession) -> object:
    return here.application.models.accounts()


async def _zone(here: Process, chat: OpenSession) -> object:
    return here.application.zone


async def _log_level(here: Process, chat: OpenSession) -> object:
    return logging.getLogger("talaria").level


PROBES: dict[str, Callable[[Process, OpenSession], Awaitable[object]]] = {
    "model.provider": _chosen,
    "model.name": _chosen,
    "model.effort": _effort,
    "model.aliases": _alias,
    "model.": _signature,
    "models.": _signature,
    "providers.": _accounts,
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
    "embedded.enabled": _choosable,
}


def _other_value(key: str) -> object:
    found = LIVE[key]
    if key == "model.provider":
        return "mine"
    if key == "model.aliases":
        return {"fast": "mine:spare"}
    return next(one for one in CANDIDATES if one != found.default and found.accepts(one))


def _to_toml(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {_to_toml(one)}' for name, one in value.items())} }}"
    return msgspec.json.encode(value).decode()


def _value(settings: Settings, key: str) -> object:
    found: Any = settings
    for name in key.split("."):
        found = found[name] if isinstance(found, Mapping) else getattr(found, name)
    return msgspec.json.decode(msgspec.json.encode(found))


def _find_probe(key: str) -> Callable[[Process, OpenSession], Awaitable[object]] | None:
    return next((probe for prefix, probe in PROBES.items() if key.startswith(prefix)), None)


def test_every_live_setting_has_a_test_of_its_effect() -> None:
    assert {key for key in LIVE if _find_probe(key) is None} <= SHOWN_ELSEWHERE


@pytest.mark.parametrize("key", sorted(key for key in LIVE if _find_probe(key)))
async def test_live_setting_takes_effect_in_an_open_session(tmp_path: Path, key: str) -> None:
    probe = _find_probe(key)
    assert probe is not None
    provider = {"TALARIA__MODEL__PROVIDER": "mine"} if key == "model.name" else {}
    async with process(tmp_path, **provider) as here:
        chat = await here.open()
        before = await probe(here, chat)
        await here.write(key, _to_toml(_other_value(key)))
        assert await probe(here, chat) != before
        assert _value(here.application.settings, key) == _other_value(key)


async def test_live_settings_are_applied_one_after_another(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        await here.open()
        for key in sorted(key for key in LIVE if _find_probe(key) is None):
            await here.write(key, _to_toml(_other_value(key)))
            assert _value(here.application.settings, key) == _other_value(key), key


async def test_changed_approval_mode_applies_to_an_open_session(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        await here.write("approval.mode", '"off"')
        chat = await here.open(attended=False)
        here.server.script(Say(calls=[Ask("terminal", {"command": "sudo -n true; echo first"})]), Say("one"))
        await send_message(chat, "go")
        here.application.profile.config_file.write_text(
            here.application.profile.config_file.read_text().replace('mode = "off"', 'mode = "ask"')
        )
        await here.until(lambda: here.application.settings.approval.mode == "ask")
        here.server.script(Say(calls=[Ask("terminal", {"command": "sudo -n true; echo second"})]), Say("two"))
        await send_message(chat, "again")
        results = [one.json["messages"][-1]["content"] for one in here.server.received]
        assert "first" in str(results[1])
        assert "Not allowed" in str(results[-1])


@pytest.mark.parametrize(
    ("key", "value"), [("agent.max_iterations", "1"), ("agent.max_turn_tokens", "1"), ("budget.turn", "0.000001")]
)
async def test_changed_limits_apply_to_the_next_turn_of_an_open_session(tmp_path: Path, key: str, value: str) -> None:
    async with process(tmp_path) as here:
        await here.write("models.scripted.input_price", "1000.0")
        await here.write("models.scripted.output_price", "1000.0")
        chat = await here.open()
        calls = [Say(calls=[Ask("list_files", {"depth": number})]) for number in range(1, 4)]
        here.server.script(*calls, Say("done"))
        assert not isinstance(await send_message(chat, "go"), TurnOutOfBudget)
        await here.write(key, value)
        here.server.script(*calls, Say("done"))
        assert isinstance(await send_message(chat, "again"), TurnOutOfBudget)


async def test_changed_fallback_and_auxiliary_models_are_used(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        chosen = await here.application.models.choose("mine", "scripted", "")
        assert [one.model for one in here.application.models.build_chain(chosen)] == ["scripted"]
        await here.write("model.fallbacks", '["mine:spare"]')
        assert [one.model for one in here.application.models.build_chain(chosen)] == ["scripted", "spare"]
        text = here.application.profile.config_file.read_text()
        here.application.profile.config_file.write_text(
            text.replace("[model]\n", '[model]\nauxiliary = "mine:judge"\n')
        )
        await here.until(lambda: here.application.settings.model.auxiliary == "mine:judge")
        assert [one.model for one in here.application.models.build_auxiliary_chain(chosen)] == ["judge", "spare"]


async def test_new_sessions_use_the_new_address_and_key_of_a_provider(tmp_path: Path) -> None:
    async with process(tmp_path) as here, ModelServer() as other:
        application = here.application
        file = application.profile.config_file
        file.write_text(file.read_text().replace(here.server.url, other.url))
        store_secret(application.profile, "NEW_KEY", "key-number-two")
        await here.write("providers.mine.key", '"NEW_KEY"')
        await here.until(lambda: application.secrets.get("NEW_KEY") == "key-number-two")
        other.otherwise(Say("Hello"))
        await send_message(await here.open(), "Hi")
        assert other.received[0].headers["authorization"] == "Bearer key-number-two"
        assert application.mask("It is key-number-two.") == f"It is {MASK}."


async def test_new_owner_changes_the_tools_of_an_open_session(tmp_path: Path) -> None:
    async with process(tmp_path) as here:
        chat = await here.open(owner="loopback:ann")
        before = await here.signature(chat)
        session_id = chat.conversation.session_id
        await here.application.store.write(lambda tx: tx.sessions.update(session_id, SessionChanges(owner="")))
        assert await here.signature(chat) != before


def test_settings_covered_by_other_tests_are_live() -> None:
    assert LIVE.keys() >= SHOWN_ELSEWHERE
