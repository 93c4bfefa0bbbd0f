"""Real MCP servers: their tools, connection failures and restarts."""

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpcore2
import msgspec
import pytest
from msgspec import Struct
from tests.app import warm_program
from tests.app.warm_program import WarmProcess
from tests.tools.mcp.warm_servers import KITCHEN, server_of
from tests.tools.tool_calls import call_from
from tests.tools.web.web_server import web_server

from talaria.contracts.tool import Effect, Tool, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.testing.system_servers import free_port
from talaria.testing.wait import LIMIT, until
from talaria.tools.mcp.session_servers import McpServers
from talaria.tools.mcp.settings import McpServer
from talaria.tools.mcp.transport import run_server

SERVER = Path(__file__).with_name("mcp_server.py")


@pytest.fixture
def kitchen() -> McpServer:
    """The server as a process that has already imported the library."""
    return server_of("kitchen", *KITCHEN)


@asynccontextmanager
async def connected(folder: Path, *servers: McpServer) -> AsyncIterator[McpServers]:
    mcp_servers = McpServers(servers, folder)
    serving = asyncio.ensure_future(mcp_servers.serve())
    try:
        async with asyncio.timeout(LIMIT):
            await mcp_servers.wait_until_ready()
        yield mcp_servers
    finally:
        serving.cancel()
        await asyncio.wait([serving])


@asynccontextmanager
async def http_server(port: int) -> AsyncIterator[WarmProcess]:
    process = await warm_program.start_module("tests.tools.mcp.mcp_server", "http", str(port))
    try:
        await until(lambda: is_open(port) or process.returncode is not None)
        assert process.returncode is None, "the port is in use"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def over_http(port: int, *, legacy: bool = False) -> McpServer:
    return McpServer(
        name="kitchen", url=f"http://127.0.0.1:{port}/mcp", legacy=legacy, first_pause_seconds=0.05,
        longest_pause_seconds=0.2,
    )  # fmt: skip


def tool_named(servers: McpServers, name: str) -> Tool:
    return next(tool for tool in servers.tools if tool.name == name)


async def run(servers: McpServers, called: str, shown: list[str] | None = None, **arguments: object) -> ToolOutput:
    tool = tool_named(servers, called)
    return await tool.run(msgspec.convert(arguments, tool.arguments), call_from(Path(), progress=shown))


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def schema_of(arguments: type[Struct]) -> str:
    return str(msgspec.json.schema(arguments))


async def test_tools_of_a_published_time_server_can_be_called(tmp_path: Path) -> None:
    async with connected(tmp_path, server_of("time", "mcp_server_time", "--local-timezone", "UTC")) as servers:
        assert servers.problems == {}
        assert [tool.name for tool in servers.tools] == ["mcp_time_get_current_time", "mcp_time_convert_time"]
        output = await run(
            servers, "mcp_time_convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"
        )
        assert "21:00:00+09:00" in output.text
        assert "IANA timezone name" in schema_of(tool_named(servers, "mcp_time_get_current_time").arguments)
        with pytest.raises(ToolFailed, match=r"(?i)timezone"):
            await run(servers, "mcp_time_get_current_time", timezone="Nowhere/Else")


async def test_tools_resources_and_prompts_of_a_server_become_tools(tmp_path: Path, kitchen: McpServer) -> None:
    async with connected(tmp_path, kitchen) as servers:
        effects = {tool.name.removeprefix("mcp_kitchen_"): tool.effect for tool in servers.tools}
        assert effects == {
            "add": Effect.READS, "order": Effect.IDEMPOTENT, "picture": Effect.IRREVERSIBLE,
            "fail": Effect.IRREVERSIBLE, "pid": Effect.IRREVERSIBLE, "bake": Effect.IRREVERSIBLE,
            "choose": Effect.IRREVERSIBLE, "read_resource": Effect.READS, "get_prompt": Effect.READS,
        }  # fmt: skip
        assert (await run(servers, "mcp_kitchen_add", a=2, b=3)).text == "5"
        assert (await run(servers, "mcp_kitchen_add", a=2)).text == "3"
        ordered = await run(servers, "mcp_kitchen_order", items=[{"name": "rye"}, {"name": "salt", "grams": 5}])
        assert ordered.text == "100 g rye, 5 g salt; None"
        drawn = await run(servers, "mcp_kitchen_picture")
        assert drawn.images[0].source == "data:image/png;base64,aGk="
        assert (await run(servers, "mcp_kitchen_read_resource", uri="notes://today")).text == "Soup."
        assert (await run(servers, "mcp_kitchen_get_prompt", name="greet", arguments={"name": "Ada"})).text == (
            "user: Say hello to Ada."
        )
        assert "notes://today" in tool_named(servers, "mcp_kitchen_read_resource").description
        assert "greet(name)" in tool_named(servers, "mcp_kitchen_get_prompt").description


async def test_arguments_of_remote_tools_are_described_and_checked(tmp_path: Path, kitchen: McpServer) -> None:
    async with connected(tmp_path, kitchen) as servers:
        order = tool_named(servers, "mcp_kitchen_order").arguments
        assert "'grams'" in schema_of(order)
        assert "$ref': '#/$defs/Item'" not in schema_of(order)
        with pytest.raises(msgspec.ValidationError, match="missing required field `items`"):
            msgspec.convert({}, order)
        add = tool_named(servers, "mcp_kitchen_add")
        assert msgspec.to_builtins(msgspec.convert({"a": "2"}, add.arguments, strict=False)) == {"a": 2}
        assert add.proposed_action(msgspec.convert({"a": 2}, add.arguments)).target == 'kitchen: add {"a":2}'
        with pytest.raises(ToolFailed, match="burnt"):
            await run(servers, "mcp_kitchen_fail")
        with pytest.raises(ToolFailed, match=r"kitchen: .*nothing"):
            await run(servers, "mcp_kitchen_read_resource", uri="notes://nothing")


async def test_only_included_tools_are_offered(tmp_path: Path, kitchen: McpServer) -> None:
    filtered = msgspec.structs.replace(kitchen, include=("add", "fail"), exclude=("fail",))
    async with connected(tmp_path, filtered) as servers:
        assert [tool.name for tool in servers.tools if tool.effect is not Effect.READS] == []
        assert servers.tools[0].name == "mcp_kitchen_add"


async def test_killed_server_is_restarted(tmp_path: Path, kitchen: McpServer) -> None:
    async with connected(tmp_path, kitchen) as servers:
        first = int((await run(servers, "mcp_kitchen_pid")).text)
        async with asyncio.TaskGroup() as group:
            shown: list[str] = []
            baking = group.create_task(fail_call(servers, "mcp_kitchen_bake", shown))
            await until(lambda: bool(shown))
            os.kill(first, signal.SIGKILL)
        assert "kitchen" in baking.result()
        await until(lambda: bool(servers.problems))
        with pytest.raises(ToolFailed, match="not connected"):
            await run(servers, "mcp_kitchen_pid")
        await until(lambda: not servers.problems)
        second = int((await run(servers, "mcp_kitchen_pid")).text)
        assert second != first
    assert not is_alive(second)
    assert (tmp_path / "mcp-kitchen.log").read_text().count("asked for the process") == 2


async def test_progress_is_shown_and_cancelled_call_leaves_the_connection_intact(
    tmp_path: Path, kitchen: McpServer
) -> None:
    shown: list[str] = []
    async with connected(tmp_path, kitchen) as servers:
        baking = asyncio.ensure_future(run(servers, "mcp_kitchen_bake", shown))
        await until(lambda: bool(shown))
        baking.cancel()
        async with asyncio.timeout(LIMIT):
            await asyncio.wait([baking])
        assert baking.cancelled()
        assert shown == ["kneading"]
        assert (await run(servers, "mcp_kitchen_add", a=1)).text == "2"


async def test_tool_call_that_times_out_fails_and_the_server_stays_connected(
    tmp_path: Path, kitchen: McpServer
) -> None:
    hasty = msgspec.structs.replace(kitchen, call_seconds=3)
    async with connected(tmp_path, hasty) as servers:
        with pytest.raises(ToolFailed, match=r"no answer within 3 s"):
            await run(servers, "mcp_kitchen_bake")
        assert servers.problems == {}


@pytest.mark.parametrize("legacy", [False, True])
async def test_http_server_is_reconnected_after_a_kill(tmp_path: Path, legacy: bool) -> None:
    port = free_port()
    async with http_server(port) as process, connected(tmp_path, over_http(port, legacy=legacy)) as servers:
        await until(lambda: not servers.problems)
        assert (await run(servers, "mcp_kitchen_add", a=2, b=3)).text == "5"
        assert (await run(servers, "mcp_kitchen_read_resource", uri="notes://today")).text == "Soup."
        process.kill()
        await process.wait()
        await fail_call(servers, "mcp_kitchen_pid")
        await until(lambda: bool(servers.problems))
        assert "not connected" in await fail_call(servers, "mcp_kitchen_pid")
        async with http_server(port):
            await until(lambda: not servers.problems)
            assert (await run(servers, "mcp_kitchen_add", a=2, b=3)).text == "5"


@pytest.mark.parametrize("legacy", [False, True])
async def test_http_server_can_restart_between_calls(tmp_path: Path, legacy: bool) -> None:
    port = free_port()
    async with http_server(port) as process, connected(tmp_path, over_http(port, legacy=legacy)) as servers:
        await until(lambda: not servers.problems)
        process.kill()
        await process.wait()
        async with http_server(port):
            if legacy:  # the new process does not know the old session
                await fail_call(servers, "mcp_kitchen_pid")
                await until(lambda: bool(servers.problems))
            assert await add_after_reconnect(servers) == "2"


@pytest.mark.slow
@pytest.mark.parametrize("legacy", [False, True])
async def test_calls_cancelled_at_any_await_leak_no_connection(tmp_path: Path, legacy: bool) -> None:
    port = free_port()
    async with http_server(port), connected(tmp_path, over_http(port, legacy=legacy)) as servers:
        for steps in range(0, 400, 10):
            call = asyncio.ensure_future(run(servers, "mcp_kitchen_add", a=1))
            for _ in range(steps):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        assert (await run(servers, "mcp_kitchen_add", a=2, b=3)).text == "5"
        pools = [one for one in gc.get_objects() if isinstance(one, httpcore2.AsyncConnectionPool)]
        assert pools
        assert not [connection for pool in pools for connection in pool.connections if " NEW," in repr(connection)]


async def test_configured_headers_are_sent(tmp_path: Path) -> None:
    async with web_server() as server:
        with_headers = McpServer(name="kitchen", url=server.url("/mcp"), headers={"Authorization": "Bearer x"})
        async with connected(tmp_path, with_headers) as servers:
            assert list(servers.problems) == ["kitchen"]
    assert {request.headers["Authorization"] for request in server.requests} == {"Bearer x"}


async def test_server_that_cannot_be_started_does_not_affect_others(tmp_path: Path, kitchen: McpServer) -> None:
    missing = McpServer(name="missing", command="/no/such/program")
    closed = McpServer(name="closed", url=f"http://127.0.0.1:{free_port()}/mcp")
    async with connected(tmp_path, missing, closed, kitchen) as servers:
        assert servers.problems == {
            "missing": "the program `/no/such/program` isn't installed, or isn't on the PATH",
            "closed": f"nothing answers at {closed.url}",
        }
        assert (await run(servers, "mcp_kitchen_add", a=1)).text == "2"


async def test_cancelled_connection_attempt_ends_at_once(tmp_path: Path) -> None:
    closed = McpServer(name="closed", url=f"http://127.0.0.1:{free_port()}/mcp", first_pause_seconds=3600)
    for steps in range(60):
        serving = asyncio.ensure_future(McpServers([closed], tmp_path).serve())
        for _ in range(steps):
            await asyncio.sleep(0)
        serving.cancel()
        done, _ = await asyncio.wait([serving], timeout=LIMIT)
        assert done, f"cancelled after {steps} steps"


async def test_stubborn_program_is_gone_when_its_connection_was_cancelled_at_the_end(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = "trap '' TERM; cat > /dev/null; echo $$ > pid.new; mv pid.new pid; exec sleep 600"
    stubborn = McpServer(name="stubborn", command="sh", args=("-c", script), folder=str(tmp_path))

    async def connect() -> None:
        async with run_server(stubborn, tmp_path / "log", lambda _: None):
            pass

    connection = asyncio.ensure_future(connect())
    await until(pid_file.exists)  # its input has ended
    connection.cancel()
    await asyncio.wait([connection])
    assert not is_alive(int(pid_file.read_text()))


async def test_program_that_ends_is_reported_with_its_last_message(tmp_path: Path) -> None:
    script = "echo starting >&2; echo no account for $TOKEN >&2; exit 3"
    failing_server = McpServer(name="login", command="sh", args=("-c", script), env={"TOKEN": "sesame-42"})
    async with connected(tmp_path, failing_server) as servers:
        assert servers.problems == {"login": "its program ended with exit code 3: no account for …"}


async def test_output_that_is_no_message_is_logged(tmp_path: Path) -> None:
    script = 'echo "Listening on stdio"; echo; exec "$0" "$1"'
    plain = str(SERVER.with_name("plain_server.py"))
    chatty = McpServer(name="counter", command="sh", args=("-c", script, sys.executable, plain))
    async with connected(tmp_path, chatty) as servers:
        assert not servers.problems
        assert (await run(servers, "mcp_counter_count")).text.startswith("1 in ")
    assert (tmp_path / "mcp-counter.log").read_text() == "Listening on stdio\n"


async def test_server_that_floods_its_output_is_ended(tmp_path: Path, kitchen: McpServer) -> None:
    note = tmp_path / "pid"
    flood = McpServer(name="flood", command="sh", args=("-c", f"echo $$ > {note}; exec yes"), first_pause_seconds=60)
    async with connected(tmp_path, flood, kitchen) as servers:
        assert servers.problems == {"flood": "it writes something else than MCP messages to its standard output"}
        assert (await run(servers, "mcp_kitchen_add", a=1)).text == "2"
        await until(lambda: not is_alive(int(note.read_text())))


def test_mcp_library_is_loaded_only_if_a_server_is_configured() -> None:
    script = (
        "import sys, pathlib\nfrom talaria.tools.mcp.session_servers import McpServers\n"
        "assert McpServers([], pathlib.Path()).tools == []\nassert not {'mcp', 'anyio', 'pydantic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


async def add_after_reconnect(servers: McpServers) -> str:
    """Call the tool `add` until the server is connected again, and return its result."""
    async with asyncio.timeout(LIMIT):
        while True:
            await until(lambda: not servers.problems)
            try:
                return (await run(servers, "mcp_kitchen_add", a=1)).text
            except ToolFailed:
                await until(lambda: bool(servers.problems))


async def fail_call(servers: McpServers, name: str, shown: list[str] | None = None) -> str:
    with pytest.raises(ToolFailed) as failed:
        await run(servers, name, shown)
    return str(failed.value)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_server_that_hangs_is_restarted(tmp_path: Path) -> None:
    plain = str(SERVER.with_name("plain_server.py"))
    hasty = McpServer(
        name="counter", command=sys.executable, args=(plain,), call_seconds=3, connect_seconds=5,
        first_pause_seconds=0.05,
    )  # fmt: skip
    async with connected(tmp_path, hasty) as servers:
        await until(lambda: not servers.problems)
        first = int((await run(servers, "mcp_counter_pid")).text)
        assert "no answer within 3 s" in await fail_call(servers, "mcp_counter_hang")
        await until(lambda: not is_alive(first))
        await until(lambda: not servers.problems)
        assert servers.tools


async def test_elicitation_removed_from_the_protocol_fails_the_call_only(tmp_path: Path) -> None:
    asking = server_of("tables", "tests.tools.mcp.asking_server")
    async with connected(tmp_path, asking) as servers:
        for _ in range(2):
            with pytest.raises(ToolFailed, match="elicitation/create"):
                await run(servers, "mcp_tables_book_as_before_2026")
