"""Tools of a session: described from their classes, constructed on the first call, released after the session."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec import structs
from tests.tools.tool_calls import call_from

from talaria.agent.toolbox import Toolbox
from talaria.app.session.toolsets import TOOLSETS, ToolContext, build_sandbox, is_guest_tool, list_toolsets, make_tools
from talaria.contracts.provider import ModelInfo
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.core.os_processes import is_running
from talaria.settings import model
from talaria.settings.model import Settings, ToolSettings
from talaria.settings.profiles import Profile, Profiles
from talaria.settings.sections.chats import AccessSettings
from talaria.settings.sections.tools import SandboxSettings
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.wait import LIMIT
from talaria.tools.terminal.tool import TerminalArguments


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    profile = Profiles(tmp_path).active()
    profile.prepare()
    return profile


@pytest.fixture
async def closing() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


def make_context(
    profile: Profile, closing: AsyncExitStack, settings: Settings, info: ModelInfo | None = None
) -> ToolContext:
    store = open_sqlite_store(profile.database_file)
    closing.push_async_callback(store.close)
    return ToolContext(
        settings=settings,
        profile=profile,
        store=store,
        session_id=SessionId("one"),
        folder=profile.folder,
        closing=closing,
        model=info or ModelInfo(name="any", tools=True, images=True),
    )


def test_toolsets_of_the_settings_are_the_existing_ones() -> None:
    assert tuple(TOOLSETS) == (*model.TOOLSETS, *model.OPTIONAL_TOOLSETS)


async def test_listed_tools_are_the_tools_that_are_created(profile: Profile, closing: AsyncExitStack) -> None:
    made = make_tools(make_context(profile, closing, Settings(sandbox=SandboxSettings(enabled=True))))
    left_out = {"process", "vision", "send_message", "send_file", "delegate_task"}
    left_out |= {"image_generate", "speak", "browser", "browser_act"}  # off until they are set up
    listed = [one for toolset in list_toolsets(Settings()) for one in toolset.tools if one.name not in left_out]
    assert [(tool.name, tool.description) for tool in made] == [(tool.name, tool.does) for tool in listed]
    specs = {spec.name: spec for spec in Toolbox(made).specs}
    assert all(len(bytes(specs[tool.name].parameters)) < tool.bytes for tool in listed)


async def test_shared_skills_are_those_of_the_given_home(profile: Profile, closing: AsyncExitStack) -> None:
    context = structs.replace(make_context(profile, closing, Settings()), environment={"HOME": "/people/me"})
    assert Path("/people/me/.claude/skills") in context.skill_folders
    assert all(folder.is_relative_to("/people/me") for folder in context.skill_folders[-3:])


@pytest.mark.slow
async def test_tools_are_released_after_the_session_that_uses_them(profile: Profile, closing: AsyncExitStack) -> None:
    settings = Settings(tools=ToolSettings(toolsets=("terminal",)), sandbox=SandboxSettings(enabled=False))
    running: list[bool] = []
    printed = asyncio.Queue[str]()
    call = structs.replace(
        call_from(profile.folder, environment={"PATH": "/usr/bin:/bin"}), progress=printed.put_nowait
    )

    async def close_session() -> None:
        running.append(is_running(pid))
        work.cancel()
        await asyncio.wait([work])

    async with asyncio.TaskGroup() as group, asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        (terminal,) = make_tools(structs.replace(make_context(profile, closing, settings), closing=stack))
        stack.push_async_callback(close_session)
        work = group.create_task(terminal.run(TerminalArguments("echo $$; exec sleep 60"), call))
        pid = int(await printed.get())
    assert running == [True]


async def test_missing_sandbox_fails_to_start(
    profile: Profile, closing: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    sandbox = build_sandbox(make_context(profile, closing, Settings(sandbox=SandboxSettings(enabled=True))))
    assert sandbox is not None
    with pytest.raises(ToolFailed, match="bubblewrap"):
        await sandbox.start()


async def test_guests_get_no_tools_that_write_files_or_run_programs(profile: Profile, closing: AsyncExitStack) -> None:
    def tool_names(settings: Settings) -> set[str]:
        return {tool.name for tool in make_tools(structs.replace(make_context(profile, closing, settings), guest=True))}

    usual = tool_names(Settings())
    assert usual == {
        *("web_fetch", "web_search", "memory", "session_search", "todo", "clarify"),
        *("read_file", "list_files", "search_files"),
    }
    assert tool_names(Settings(access=AccessSettings(guest_tools=("code", "write_file")))) == {
        "execute_code",
        "write_file",
    }
    assert tool_names(
        Settings(access=AccessSettings(guest_tools=("web",)), tools=ToolSettings(disabled=("web_search",)))
    ) == {"web_fetch"}


def test_tools_of_mcp_servers_are_for_guests_only_if_named() -> None:
    assert not is_guest_tool(Settings(), "notes_read")
    assert is_guest_tool(Settings(access=AccessSettings(guest_tools=("mcp",))), "notes_read")
    assert is_guest_tool(Settings(access=AccessSettings(guest_tools=("notes_read",))), "notes_read")
    assert not is_guest_tool(Settings(access=AccessSettings(guest_tools=("mcp",))), "terminal")


async def test_disabled_tools_are_not_created(profile: Profile, closing: AsyncExitStack) -> None:
    settings = Settings(tools=ToolSettings(toolsets=("files", "planning"), disabled=("todo", "write_file")))
    made = [tool.name for tool in make_tools(make_context(profile, closing, settings))]
    assert made == ["read_file", "edit_file", "search_files", "list_files", "clarify"]
    listed = [tool.name for toolset in list_toolsets(settings) for tool in toolset.tools if tool.enabled]
    assert listed == made


async def test_send_message_tool_exists_only_with_a_chat_network(profile: Profile, closing: AsyncExitStack) -> None:
    alone = make_context(profile, closing, Settings(tools=ToolSettings(toolsets=("send",))))
    assert make_tools(alone) == []
    assert [tool.name for tool in make_tools(structs.replace(alone, networks=("telegram",)))] == ["send_message"]


async def test_model_without_tool_support_gets_no_tools(profile: Profile, closing: AsyncExitStack) -> None:
    assert make_tools(make_context(profile, closing, Settings(), ModelInfo(name="small", tools=False))) == []
