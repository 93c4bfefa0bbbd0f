"""Execution of code written by the model: tools, limits, environment and termination."""

import asyncio
import os
import sys
from pathlib import Path

import msgspec
import pytest
from tests.tools.tool_calls import call_from

import talaria
from talaria.contracts.sandbox import SandboxPolicy
from talaria.contracts.tool import Call, ProposedAction, Tool, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.session_context import SessionContext
from talaria.testing.wait import LIMIT, until
from talaria.tools.code.tool import CallTool, ExecuteCode, ExecuteCodeArguments
from talaria.tools.sandbox.bubblewrap import BubblewrapSandbox, find_sandbox_problem


async def echo(name: str, arguments: str) -> ToolOutput:
    if name == "broken":
        raise ToolFailed("it is broken")
    return ToolOutput(f"{name} {arguments}")


def with_tools(call_tool: CallTool = echo, most_calls: int = 50) -> ExecuteCode:
    return ExecuteCode(lambda call: call_tool, most_calls=most_calls)


async def execute(folder: Path, code: str, *, tool: Tool | None = None, call: Call | None = None) -> str:
    chosen = tool or with_tools()
    return (await chosen.run(ExecuteCodeArguments(code), call or call_from(folder))).text


async def fail(folder: Path, code: str, *, tool: Tool | None = None, call: Call | None = None) -> str:
    with pytest.raises(ToolFailed) as failed:
        await execute(folder, code, tool=tool, call=call)
    return str(failed.value)


async def test_printed_output_is_returned(tmp_path: Path) -> None:
    shown: list[str] = []
    code = (
        "import sys\nprint('Grüße', 6 * 7)\nprint('error', file=sys.stderr)\nimport subprocess\nsubprocess.run('pwd')"
    )
    text = await execute(tmp_path, code, call=call_from(tmp_path, progress=shown, environment={"PATH": os.defpath}))
    assert text == f"Grüße 42\nerror\n{tmp_path}"
    assert "".join(shown).strip() == text
    assert await execute(tmp_path, "pass") == "(no output)"
    assert with_tools().proposed_action(ExecuteCodeArguments("pass")) == ProposedAction("code", "pass")


async def test_tools_are_callable_as_functions(tmp_path: Path) -> None:
    code = """
import tools as same
print(tools.read_file(path="a.txt", first_line=2))
try:
    same.broken()
except tools.ToolFailed as error:
    print("failed:", error)
"""
    assert await execute(tmp_path, code) == 'read_file {"path":"a.txt","first_line":2}\nfailed: it is broken'


async def test_threads_can_call_tools_concurrently(tmp_path: Path) -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    answers = list(pool.map(lambda n: tools.t(n=n), range(40)))
print(answers == ['t {"n":%d}' % n for n in range(40)])
"""
    assert await execute(tmp_path, code) == "True"


async def test_number_of_tool_calls_is_limited_and_code_cannot_nest(tmp_path: Path) -> None:
    code = "for n in range(9): tools.t(n=n)"
    assert "code may make at most 3 tool calls" in await fail(tmp_path, code, tool=with_tools(most_calls=3))
    assert "can't call this tool" in await fail(tmp_path, "tools.execute_code(code='1')")


async def test_oversized_or_forged_tool_call_does_not_break_others(tmp_path: Path) -> None:
    code = "try: tools.t(text='x' * 9_000_000)\nexcept tools.ToolFailed as error: print(error)\nprint(tools.t())"
    assert await execute(tmp_path, code) == "The arguments are too long.\nt {}"
    assert sorted((await execute(tmp_path, "tools._calls.write('{}\\n')\nprint(tools.t())")).split("\n")) == [
        "t {}",
        "{}",
    ]


async def test_traceback_shows_only_the_code_of_the_model(tmp_path: Path) -> None:
    text = await fail(tmp_path, "print('first')\ndef f():\n    return 1 / 0\nf()")
    assert text.startswith('first\nTraceback (most recent call last):\n  File "<code>", line 4, in <module>\n    f()')
    assert text.endswith("ZeroDivisionError: division by zero\n[exit code 1]")
    assert "runner.py" not in text
    assert "SyntaxError" in await fail(tmp_path, "x = = 1")
    assert await fail(tmp_path, "import sys; sys.exit(3)") == "[exit code 3]"


async def test_secrets_of_the_environment_do_not_reach_the_code(tmp_path: Path) -> None:
    environment = {"PATH": os.defpath, "SOME_API_KEY": "secret", "HOME": "/nowhere", "PYTHONSTARTUP": "x"}
    code = "import os\nprint(sorted(k for k in os.environ if not k.startswith(('LC_', 'TALARIA_'))))"
    text = await execute(tmp_path, code, call=call_from(tmp_path, environment=environment))
    assert text == "['HOME', 'PATH']"


async def test_code_has_the_variables_of_its_session(tmp_path: Path) -> None:
    inherited = {"PATH": os.defpath, "TALARIA_SESSION_KEY": "another"}
    context = SessionContext(session_id="abc", chat_id="7")
    call = msgspec.structs.replace(call_from(tmp_path, environment=inherited), context=context)
    code = "import os\nprint([os.environ['TALARIA_SESSION_' + name] for name in ('ID', 'CHAT_ID', 'KEY')])"
    assert await execute(tmp_path, code, call=call) == "['abc', '7', '']"


async def test_long_output_is_cut_in_the_middle(tmp_path: Path) -> None:
    text = await execute(tmp_path, "print('begin')\nfor n in range(200_000): print(n)\nprint('end')")
    assert text.startswith("begin\n0\n1\n")
    assert text.endswith("199999\nend")
    assert "bytes omitted" in text
    assert len(text) < 21_000


async def test_code_beyond_its_time_limit_is_killed_with_its_children(tmp_path: Path) -> None:
    code = "import subprocess\nchild = subprocess.Popen(['sleep', '600'])\nprint(child.pid)\nchild.wait()"
    call = call_from(tmp_path, environment={"PATH": os.defpath})
    with pytest.raises(ToolFailed, match=r"(?s)\d+\n\[stopped after 3 s\]") as stopped:
        await with_tools().run(ExecuteCodeArguments(code, 3), call)
    pid = int(str(stopped.value).split()[0])
    await until(lambda: not is_alive(pid))


async def test_time_spent_in_tools_does_not_count_towards_the_limit(tmp_path: Path) -> None:
    async def slow(name: str, arguments: str) -> ToolOutput:
        await asyncio.sleep(3.5)  # real time: longer than the limit
        return ToolOutput("slow")

    tool = with_tools(slow)
    output = await tool.run(ExecuteCodeArguments("print(tools.wait())", 3), call_from(tmp_path))
    assert output.text == "slow"


async def test_cancelling_kills_the_process_group(tmp_path: Path) -> None:
    shown: list[str] = []
    code = "import subprocess\nprint(subprocess.Popen(['sleep', '600']).pid)\nimport time; time.sleep(600)"
    call = call_from(tmp_path, progress=shown, environment={"PATH": os.defpath})
    async with asyncio.TaskGroup() as group:
        task = group.create_task(with_tools().run(ExecuteCodeArguments(code), call))
        await until(lambda: bool(shown))
        task.cancel()
        async with asyncio.timeout(LIMIT):
            await asyncio.wait([task])
    assert task.cancelled()
    await until(lambda: not is_alive(int(shown[0])))


async def test_cancelling_cancels_the_tool_that_the_code_called(tmp_path: Path) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def endless(name: str, arguments: str) -> ToolOutput:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ToolOutput("")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(execute(tmp_path, "tools.wait()", tool=with_tools(endless)))
        await started.wait()
        task.cancel()
    assert cancelled.is_set()


async def test_processes_left_by_the_code_are_killed(tmp_path: Path) -> None:
    code = "import subprocess\nprint(subprocess.Popen(['sleep', '600']).pid)"
    pid = int(await execute(tmp_path, code, call=call_from(tmp_path, environment={"PATH": os.defpath})))
    await until(lambda: not is_alive(pid))


async def test_code_is_killed_when_the_agent_is_killed(tmp_path: Path) -> None:
    code = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)"
    script = f"""
import asyncio
from pathlib import Path
from tests.tools.code.test_code import execute
asyncio.run(execute(Path({str(tmp_path)!r}), {code!r}))
"""
    agent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, cwd=Path(__file__).parents[3])
    pid_file = tmp_path / "pid"
    await until(lambda: read_content(pid_file) != "")
    pid = int(read_content(pid_file))
    agent.kill()
    await agent.wait()
    await until(lambda: not is_alive(pid))


@pytest.mark.skipif(find_sandbox_problem() is not None, reason="no sandbox here")
async def test_tools_can_be_called_from_inside_a_sandbox(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work):
        folder.mkdir()
    own = (Path(sys.prefix), Path(talaria.__file__).parent)
    sandbox = BubblewrapSandbox(SandboxPolicy(writable=(work,), readable=own, network=False))
    tool = ExecuteCode(lambda call: echo, sandbox=sandbox)
    code = f"open('mine', 'w').close()\nprint(tools.t())\nopen({str(home / 'x')!r}, 'w')"
    call = call_from(work, environment={"PATH": os.environ.get("PATH", os.defpath)})  # noqa: TID251 - to find bwrap
    text = await fail(work, code, tool=tool, call=call)
    assert text.startswith("t {}\n")
    assert "Read-only file system" in text or "No such file" in text


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def read_content(path: Path) -> str:
    return path.read_text() if path.exists() else ""
