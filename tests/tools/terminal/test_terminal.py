"""Terminal tool with real commands: state between calls, output, and killing of the process tree."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.tools.tool_calls import call_from

from talaria.contracts.tool import Call
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.core.session_context import SessionContext
from talaria.testing.wait import until
from talaria.tools.output import FullOutputs
from talaria.tools.terminal.shell import Processes
from talaria.tools.terminal.tool import Terminal, TerminalArguments
from talaria.tools.workspace import LocalWorkspace, filter_environment


class Shell:
    """A session that runs commands in a folder."""

    def __init__(self, folder: Path, outputs: Path) -> None:
        self.workspace = LocalWorkspace(folder, {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)})
        self.shown: list[str] = []
        self.output_folder = outputs
        self.outputs = FullOutputs(outputs)
        self.processes = Processes()
        self.terminal = Terminal(self.processes, self.outputs)
        plain = call_from(folder, progress=self.shown)
        self.call: Call = msgspec.structs.replace(plain, workspace=self.workspace)

    async def run(self, command: str, *, timeout_seconds: int = 60, workdir: str = "") -> str:
        return (await self.terminal.run(TerminalArguments(command, timeout_seconds, workdir), self.call)).text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def shell(folder: Path, tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(folder, tmp_path / "outputs")
    yield shell
    assert not shell.processes.running


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def read_pid(path: Path) -> int:
    return int(path.read_text())


def has_line(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


async def test_output_and_exit_code_are_returned(shell: Shell) -> None:
    assert await shell.run("echo hello; echo oops >&2; exit 3") == "hello\noops\n[exit code 3]"


async def test_stdout_and_stderr_are_interleaved_in_order(shell: Shell) -> None:
    text = await shell.run("for n in 1 2 3; do echo out $n; echo err $n >&2; done")
    assert text.splitlines()[:-1] == [f"{stream} {n}" for n in (1, 2, 3) for stream in ("out", "err")]


async def test_command_without_output_is_reported(shell: Shell) -> None:
    assert await shell.run("true") == "(no output)\n[exit code 0]"


async def test_folder_and_exports_persist_in_the_next_call(shell: Shell, folder: Path) -> None:
    (folder / "a b").mkdir()
    text = await shell.run("cd 'a b'; export GREETING=$'two\\nlines' PLAIN=1; hidden=2")
    assert f"[now in {folder / 'a b'}]" in text
    assert await shell.run('pwd; echo "$GREETING/$PLAIN/$hidden"') == f"{folder}/a b\ntwo\nlines/1/\n[exit code 0]"


async def test_unset_variable_is_removed(shell: Shell) -> None:
    await shell.run("export ONE=1 TWO=2")
    await shell.run("unset ONE")
    assert (await shell.run('echo "[$ONE][$TWO]"')).startswith("[][2]\n")


@pytest.mark.parametrize(
    "command",
    [
        "cd inner; export DONE=yes; exit 4",
        "cd inner; export DONE=yes; false",
        "set -e; cd inner; export DONE=yes; false; echo never",
        "set -eux; cd inner; export DONE=yes",
        "set -a; cd inner; DONE=yes",
        "cd inner && export DONE=yes && (cd / && exit 1)",
        "cd inner; export DONE=yes; export PATH=/nowhere",
        "cd inner; export DONE=yes; echo '\\0' | cat; exec 2>&-",
        "cd inner\nexport DONE=yes\n# a comment at the end",
        "cd inner; export DONE=yes; cat <<END\ntext\nEND",
    ],
)
async def test_folder_and_exports_persist_however_a_command_ends(shell: Shell, folder: Path, command: str) -> None:
    (folder / "inner").mkdir()
    await shell.run(command)
    assert shell.workspace.folder == folder / "inner"
    assert shell.workspace.environment["DONE"] == "yes"
    assert not [name for name in shell.workspace.environment if "talaria" in name]


async def test_trace_shows_only_the_command(shell: Shell) -> None:
    assert await shell.run("set -x; echo one") == "++ echo one\none\n[exit code 0]"


async def test_positional_parameters_are_empty(shell: Shell) -> None:
    assert (await shell.run('echo "$#$*"')).startswith("0\n")


async def test_line_numbers_of_shell_errors_refer_to_the_command(shell: Shell) -> None:
    assert "line 2: nosuchprogram" in await shell.run("true\nnosuchprogram")


async def test_workdir_applies_to_one_call_only(shell: Shell, folder: Path) -> None:
    (folder / "sub").mkdir()
    assert (await shell.run("pwd", workdir="sub")).startswith(f"{folder / 'sub'}\n")
    assert shell.workspace.folder == folder
    with pytest.raises(ToolFailed, match="doesn't exist"):
        await shell.run("pwd", workdir="nowhere")


async def test_removed_folder_is_replaced_by_its_nearest_parent(shell: Shell, folder: Path) -> None:
    await shell.run("mkdir -p gone/deep; cd gone/deep")
    await shell.run("rm -r ../../gone")
    assert f"ran in {folder}]" in await shell.run("ls")


async def test_exports_of_parallel_commands_are_merged(shell: Shell) -> None:
    await asyncio.gather(*(shell.run(f"export V{n}={n}") for n in range(5)))
    assert {f"V{n}": str(n) for n in range(5)}.items() <= dict(shell.workspace.environment).items()


async def test_commands_have_no_input_and_no_terminal(shell: Shell) -> None:
    assert await shell.run("cat; read x || echo no input; tty; (: </dev/tty) 2>/dev/null || echo no terminal") == (
        "no input\nnot a tty\nno terminal\n[exit code 0]"
    )


async def test_secrets_of_the_environment_are_hidden_unless_exported(folder: Path, tmp_path: Path) -> None:
    shell = Shell(folder, tmp_path)
    shell.workspace = LocalWorkspace(
        folder,
        filter_environment(
            {"PATH": os.defpath, "OPENAI_API_KEY": "one", "MINE": "two", "LANG": "C", "DB": "pg://u:three@host/x"},
            {"MINE"},
        ),
    )
    shell.call = msgspec.structs.replace(shell.call, workspace=shell.workspace)
    assert await shell.run('echo "[$OPENAI_API_KEY$MINE$DB][$LANG]"') == "[][C]\n[exit code 0]"
    await shell.run("export MY_TOKEN=mine")
    assert (await shell.run("echo $MY_TOKEN")).startswith("mine\n")


async def test_commands_have_the_variables_of_their_session(shell: Shell) -> None:
    inherited = {"TALARIA_SESSION_ID": "another", "TALARIA_CRON_AUTO_DELIVER_CHAT_ID": "another"}
    shell.workspace.set_environment({**shell.workspace.environment, **inherited})
    shell.call = msgspec.structs.replace(shell.call, context=SessionContext(session_id="abc", chat_id="7"))
    command = 'set -u; echo "[$TALARIA_SESSION_ID][$TALARIA_SESSION_CHAT_ID][$TALARIA_CRON_AUTO_DELIVER_CHAT_ID]"'
    assert (await shell.run(command)).startswith("[abc][7][]\n")
    await shell.run("export TALARIA_SESSION_ID=forged")
    assert (await shell.run(command)).startswith("[abc][7][]\n")


async def test_binary_output_is_shown_with_replacement_characters(shell: Shell) -> None:
    assert (await shell.run(r"printf 'a\377\000b\n'")).startswith("a\ufffd\ufffdb\n")


async def test_colours_and_progress_bars_are_removed(shell: Shell) -> None:
    assert (await shell.run(r"printf '\033[31mred\033[0m\n10%%\r50%%\r100%%\ndone\r\n'")).startswith(
        "red\n100%\ndone\n"
    )


async def test_long_output_is_cut_and_the_full_output_saved_in_a_file(shell: Shell) -> None:
    text = await shell.run("seq 100000")
    assert text.startswith("1\n2\n")
    assert text.endswith("\n99999\n100000\n[exit code 0]")
    assert len(text) < 21_000
    (path,) = (shell.output_folder / "session-1").iterdir()
    assert f"the whole output is in {path}; use read_file …]" in text
    assert path.read_text() == "".join(f"{n}\n" for n in range(1, 100_001))
    assert path.parent.stat().st_mode & 0o077 == 0
    shell.outputs.forget(SessionId("session-1"))
    assert not path.exists()


async def test_output_is_shown_while_the_command_runs(shell: Shell, folder: Path) -> None:
    running = asyncio.ensure_future(shell.run("echo first; until [ -e go ]; do sleep 0.01; done; echo second"))
    await until(lambda: "first\n" in shell.shown)
    (folder / "go").touch()
    assert (await running).startswith("first\nsecond\n")
    assert "".join(shell.shown) == "first\nsecond\n"


async def test_fast_output_is_shown_in_few_updates(shell: Shell) -> None:
    started = time.monotonic()
    await shell.run("seq 200000")
    assert len(shell.shown) <= (time.monotonic() - started) / 0.1 + 1


async def test_timeout_kills_the_process_tree_and_returns_the_output(shell: Shell, folder: Path) -> None:
    with pytest.raises(ToolFailed) as failed:
        await shell.run("echo begun; (sleep 600 & echo $! >child; wait) & sleep 600", timeout_seconds=1)
    assert str(failed.value).startswith("begun\n")  # a shell that dies last adds its own message
    assert "\n[stopped after 1 s" in str(failed.value)
    assert not is_alive(read_pid(folder / "child"))


async def test_timeout_kills_a_process_that_ignores_sigterm(shell: Shell, folder: Path) -> None:
    with pytest.raises(ToolFailed):
        await shell.run("trap '' TERM; echo $$ >stubborn; while :; do sleep 0.1; done", timeout_seconds=1)
    assert not is_alive(read_pid(folder / "stubborn"))


@pytest.mark.parametrize(
    "command",
    [
        "sleep 600 & echo $! >pid; wait",
        "bash -c 'bash -c \"echo \\$\\$ >pid; sleep 600; :\"; :'",
        "trap '' TERM INT HUP; echo $$ >pid; while :; do sleep 600; done",
        "set -m; sleep 600 & echo $! >pid; wait",
        "exec sh -c 'echo $$ >pid; sleep 600; :'",
        "nohup sh -c 'echo $$ >pid; exec sleep 600' >/dev/null 2>&1 & wait",
        "(trap '' TERM; while :; do (sleep 600) & sleep 0.01; done) & echo $! >pid; wait",
    ],
)
async def test_cancelling_kills_the_process_tree(shell: Shell, folder: Path, command: str) -> None:
    running = asyncio.ensure_future(shell.run(command))
    await until(lambda: has_line(folder / "pid") and bool(shell.processes.running))
    (child,) = shell.processes.running
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not is_alive(read_pid(folder / "pid"))
    assert not child.list_members()


async def test_processes_left_in_the_background_are_killed(shell: Shell, folder: Path) -> None:
    text = await shell.run("sleep 600 & echo $! >pid")
    assert "background process(es) of this command with it" in text
    assert not is_alive(read_pid(folder / "pid"))


async def test_detached_process_does_not_delay_the_answer(shell: Shell, folder: Path) -> None:
    text = await shell.run("setsid sleep 600 & echo $! >pid; until [ $(ps -o sid= -p $!) = $! ]; do :; done; echo done")
    assert text.startswith("done\n")
    assert is_alive(read_pid(folder / "pid"))
    os.kill(read_pid(folder / "pid"), signal.SIGKILL)


async def test_killed_shell_is_reported_with_its_signal(shell: Shell) -> None:
    assert await shell.run("echo bye; kill -9 $$") == "bye\n[killed by SIGKILL]"


@pytest.mark.parametrize("command", ["", "  \n", "echo a\0b", "echo " + "x" * 200_000])
async def test_empty_or_invalid_command_fails(shell: Shell, command: str) -> None:
    with pytest.raises(ToolFailed):
        await shell.run(command)


async def test_command_killed_from_outside_is_reported(shell: Shell, folder: Path) -> None:
    running = asyncio.ensure_future(shell.run("echo $$ >pid; sleep 600"))
    await until(lambda: has_line(folder / "pid") and bool(shell.processes.running))
    (child,) = shell.processes.running
    child.kill()
    assert (await running).endswith("[killed by SIGKILL]")


OWNER = """
import asyncio, sys
from pathlib import Path
from talaria.tools.terminal.shell import Processes
from talaria.tools.terminal.shell import build_shell_argv

async def main():
    command = "sleep 600 & echo $! >child; echo $$ >pid; wait"
    child = await Processes().start(
        build_shell_argv(command), folder=Path(sys.argv[1]), environment={"PATH": "/usr/bin:/bin"}, on_output=print
    )
    await child.wait()

asyncio.run(main())
"""


async def test_process_tree_is_killed_when_its_parent_program_dies(folder: Path) -> None:
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, str(folder))
    await until(lambda: has_line(folder / "pid"))
    owner.kill()
    await owner.wait()
    await until(lambda: not is_alive(read_pid(folder / "pid")) and not is_alive(read_pid(folder / "child")))


def test_proposed_action_has_the_command_and_its_folder(shell: Shell) -> None:
    proposed_action = shell.terminal.proposed_action(TerminalArguments("ls", workdir="a b"))
    assert (proposed_action.kind, proposed_action.target) == ("command", "cd 'a b' && ls")
