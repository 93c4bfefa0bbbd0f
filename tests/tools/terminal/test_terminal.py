"""Commands run for real: what lasts between them, what is shown, and that nothing is left behind."""

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
from talaria.tools.workspace import LocalWorkspace, for_commands


class Shell:
    """A conversation that runs commands in a folder."""

    def __init__(self, folder: Path, outputs: Path) -> None:
        self.workspace = LocalWorkspace(folder, {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)})
        self.shown: list[str] = []
        self.place = outputs
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
    made = Shell(folder, tmp_path / "outputs")
    yield made
    assert not made.processes.running


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def pid_in(path: Path) -> int:
    return int(path.read_text())


def written(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


async def test_output_and_exit_code_come_back(shell: Shell) -> None:
    assert await shell.run("echo hello; echo oops >&2; exit 3") == "hello\noops\n[exit code 3]"


async def test_both_streams_keep_their_order(shell: Shell) -> None:
    text = await shell.run("for n in 1 2 3; do echo out $n; echo err $n >&2; done")
    assert text.splitlines()[:-1] == [f"{stream} {n}" for n in (1, 2, 3) for stream in ("out", "err")]


async def test_a_silent_command_says_so(shell: Shell) -> None:
    assert await shell.run("true") == "(no output)\n[exit code 0]"


async def test_folder_and_exports_hold_in_the_next_call(shell: Shell, folder: Path) -> None:
    (folder / "a b").mkdir()
    text = await shell.run("cd 'a b'; export GREETING=$'two\\nlines' PLAIN=1; hidden=2")
    assert f"[now in {folder / 'a b'}]" in text
    assert await shell.run('pwd; echo "$GREETING/$PLAIN/$hidden"') == f"{folder}/a b\ntwo\nlines/1/\n[exit code 0]"


async def test_an_unset_variable_is_gone(shell: Shell) -> None:
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
async def test_what_changed_holds_however_a_command_ends(shell: Shell, folder: Path, command: str) -> None:
    (folder / "inner").mkdir()
    await shell.run(command)
    assert shell.workspace.folder == folder / "inner"
    assert shell.workspace.environment["DONE"] == "yes"
    assert not [name for name in shell.workspace.environment if "talaria" in name]


async def test_a_traced_command_shows_nothing_of_ours(shell: Shell) -> None:
    assert await shell.run("set -x; echo one") == "++ echo one\none\n[exit code 0]"


async def test_positional_parameters_are_empty(shell: Shell) -> None:
    assert (await shell.run('echo "$#$*"')).startswith("0\n")


async def test_remarks_of_the_shell_count_lines_from_the_command(shell: Shell) -> None:
    assert "line 2: nosuchprogram" in await shell.run("true\nnosuchprogram")


async def test_a_folder_for_one_call_does_not_last(shell: Shell, folder: Path) -> None:
    (folder / "sub").mkdir()
    assert (await shell.run("pwd", workdir="sub")).startswith(f"{folder / 'sub'}\n")
    assert shell.workspace.folder == folder
    with pytest.raises(ToolFailed, match="doesn't exist"):
        await shell.run("pwd", workdir="nowhere")


async def test_a_removed_folder_is_replaced_by_its_nearest_parent(shell: Shell, folder: Path) -> None:
    await shell.run("mkdir -p gone/deep; cd gone/deep")
    await shell.run("rm -r ../../gone")
    assert f"ran in {folder}]" in await shell.run("ls")


async def test_commands_side_by_side_keep_each_others_exports(shell: Shell) -> None:
    await asyncio.gather(*(shell.run(f"export V{n}={n}") for n in range(5)))
    assert {f"V{n}": str(n) for n in range(5)}.items() <= dict(shell.workspace.environment).items()


async def test_there_is_no_input_and_no_terminal(shell: Shell) -> None:
    assert await shell.run("cat; read x || echo no input; tty; (: </dev/tty) 2>/dev/null || echo no terminal") == (
        "no input\nnot a tty\nno terminal\n[exit code 0]"
    )


async def test_secrets_of_the_environment_stay_away_until_exported(folder: Path, tmp_path: Path) -> None:
    shell = Shell(folder, tmp_path)
    shell.workspace = LocalWorkspace(
        folder,
        for_commands(
            {"PATH": os.defpath, "OPENAI_API_KEY": "one", "MINE": "two", "LANG": "C", "DB": "pg://u:three@host/x"},
            {"MINE"},
        ),
    )
    shell.call = msgspec.structs.replace(shell.call, workspace=shell.workspace)
    assert await shell.run('echo "[$OPENAI_API_KEY$MINE$DB][$LANG]"') == "[][C]\n[exit code 0]"
    await shell.run("export MY_TOKEN=mine")
    assert (await shell.run("echo $MY_TOKEN")).startswith("mine\n")


async def test_variables_of_the_session_reach_the_command(shell: Shell) -> None:
    left_behind = {"TALARIA_SESSION_ID": "another", "TALARIA_CRON_AUTO_DELIVER_CHAT_ID": "another"}
    shell.workspace.set_environment({**shell.workspace.environment, **left_behind})
    shell.call = msgspec.structs.replace(shell.call, context=SessionContext(session_id="abc", chat_id="7"))
    told = 'set -u; echo "[$TALARIA_SESSION_ID][$TALARIA_SESSION_CHAT_ID][$TALARIA_CRON_AUTO_DELIVER_CHAT_ID]"'
    assert (await shell.run(told)).startswith("[abc][7][]\n")
    await shell.run("export TALARIA_SESSION_ID=forged")
    assert (await shell.run(told)).startswith("[abc][7][]\n")


async def test_binary_output_is_replaced_not_refused(shell: Shell) -> None:
    assert (await shell.run(r"printf 'a\377\000b\n'")).startswith("a\ufffd\ufffdb\n")


async def test_colours_and_progress_bars_are_taken_out(shell: Shell) -> None:
    assert (await shell.run(r"printf '\033[31mred\033[0m\n10%%\r50%%\r100%%\ndone\r\n'")).startswith(
        "red\n100%\ndone\n"
    )


async def test_long_output_keeps_both_ends_and_names_a_file_with_all(shell: Shell) -> None:
    text = await shell.run("seq 100000")
    assert text.startswith("1\n2\n")
    assert text.endswith("\n99999\n100000\n[exit code 0]")
    assert len(text) < 21_000
    (path,) = (shell.place / "session-1").iterdir()
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


async def test_a_fast_printer_is_shown_in_few_pieces(shell: Shell) -> None:
    began = time.monotonic()
    await shell.run("seq 200000")
    assert len(shell.shown) <= (time.monotonic() - began) / 0.1 + 1


async def test_a_time_out_ends_the_tree_and_tells_what_was_printed(shell: Shell, folder: Path) -> None:
    with pytest.raises(ToolFailed) as failed:
        await shell.run("echo begun; (sleep 600 & echo $! >child; wait) & sleep 600", timeout_seconds=1)
    assert str(failed.value).startswith("begun\n")  # a shell that dies last adds a word of its own
    assert "\n[stopped after 1 s" in str(failed.value)
    assert not alive(pid_in(folder / "child"))


async def test_a_time_out_also_ends_what_ignores_the_request(shell: Shell, folder: Path) -> None:
    with pytest.raises(ToolFailed):
        await shell.run("trap '' TERM; echo $$ >stubborn; while :; do sleep 0.1; done", timeout_seconds=1)
    assert not alive(pid_in(folder / "stubborn"))


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
async def test_stopping_kills_the_tree(shell: Shell, folder: Path, command: str) -> None:
    running = asyncio.ensure_future(shell.run(command))
    await until(lambda: written(folder / "pid") and bool(shell.processes.running))
    (child,) = shell.processes.running
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(pid_in(folder / "pid"))
    assert not child.members()


async def test_what_is_left_in_the_background_ends_with_the_command(shell: Shell, folder: Path) -> None:
    text = await shell.run("sleep 600 & echo $! >pid")
    assert "background process(es) of this command with it" in text
    assert not alive(pid_in(folder / "pid"))


async def test_an_escaped_process_does_not_hold_the_answer_up(shell: Shell, folder: Path) -> None:
    text = await shell.run("setsid sleep 600 & echo $! >pid; until [ $(ps -o sid= -p $!) = $! ]; do :; done; echo done")
    assert text.startswith("done\n")
    assert alive(pid_in(folder / "pid"))
    os.kill(pid_in(folder / "pid"), signal.SIGKILL)


async def test_a_killed_shell_says_by_what(shell: Shell) -> None:
    assert await shell.run("echo bye; kill -9 $$") == "bye\n[killed by SIGKILL]"


@pytest.mark.parametrize("command", ["", "  \n", "echo a\0b", "echo " + "x" * 200_000])
async def test_what_no_shell_can_run_fails_with_a_reason(shell: Shell, command: str) -> None:
    with pytest.raises(ToolFailed):
        await shell.run(command)


async def test_closing_the_owner_kills_all_it_started(shell: Shell, folder: Path) -> None:
    running = asyncio.ensure_future(shell.run("echo $$ >pid; sleep 600"))
    await until(lambda: written(folder / "pid"))
    child = next(iter(shell.processes.running))
    child.kill()
    assert (await running).endswith("[killed by SIGKILL]")


OWNER = """
import asyncio, sys
from pathlib import Path
from talaria.tools.terminal.shell import Processes
from talaria.tools.terminal.shell import shell_argv

async def main():
    command = "sleep 600 & echo $! >child; echo $$ >pid; wait"
    child = await Processes().start(
        shell_argv(command), folder=Path(sys.argv[1]), environment={"PATH": "/usr/bin:/bin"}, heard=print
    )
    await child.wait()

asyncio.run(main())
"""


async def test_a_tree_dies_with_the_program_that_started_it(folder: Path) -> None:
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, str(folder))
    await until(lambda: written(folder / "pid"))
    owner.kill()
    await owner.wait()
    await until(lambda: not alive(pid_in(folder / "pid")) and not alive(pid_in(folder / "child")))


def test_the_deed_names_the_command_and_its_folder(shell: Shell) -> None:
    proposed_action = shell.terminal.proposed_action(TerminalArguments("ls", workdir="a b"))
    assert (proposed_action.kind, proposed_action.target) == ("command", "cd 'a b' && ls")
