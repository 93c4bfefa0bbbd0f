"""Custom commands: Markdown files with a prompt or a shell command."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.session.test_user_shell import is_dead
from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.commands.command import Author, Command
from talaria.commands.registry import REGISTRY, load_custom_commands, resolve_command
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import LIMIT, until


@pytest.fixture
async def client(tmp_path: Path, server: ModelServer) -> AsyncIterator[ChatClient]:
    async with open_chat_client(tmp_path, server) as client:
        yield client


class Folder:
    """A folder with commands."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.write_text(text)
        return file

    def load(self) -> tuple[tuple[Command, ...], tuple[str, ...]]:
        return load_custom_commands([self.path])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "commands")


def load_commands(client: ChatClient, folder: Folder) -> None:
    commands, remarks = folder.load()
    assert remarks == ()
    client.commands = (*REGISTRY, *commands)


@pytest.mark.parametrize(
    ("body", "typed", "sent"),
    [
        ("Review the change.", "/own", "Review the change."),
        ("Review $ARGUMENTS now.", "/own  the  parser ", "Review the  parser now."),
        ("Compare $1 with $2.", "/own 'a b' c", "Compare a b with c."),
        ("Compare $2 with $1$3.", "/own x y", "Compare y with x."),
        ("It costs $100 and \\$1.", "/own", "It costs $100 and $1."),
        ("Look at @notes.txt and $1.", "/own $2", "Look at @notes.txt and $2."),
        ("Review.", "/own don't hurry", "Review.\n\ndon't hurry"),
        ("Say $1 and $2.", "/own don't hurry", "Say don't and hurry."),
    ],
)
async def test_prompt_is_sent_with_its_arguments_filled_in(
    client: ChatClient, folder: Folder, body: str, typed: str, sent: str
) -> None:
    folder.write("own.md", f"---\nhelp: My own.\n---\n{body}\n")
    load_commands(client, folder)
    assert await client.use(typed) == ""
    await client.active_session.chat.conversation.wait_until_idle()
    assert await client.transcript() == [("user", sent), ("assistant", "ok")]


async def test_custom_commands_appear_in_help_and_are_found_by_name_and_alias(
    client: ChatClient, folder: Folder
) -> None:
    folder.write("review.md", "---\nhelp: Look for faults.\nhint: '[file]'\naliases: rv, [/look]\n---\nLook at $1.")
    folder.write("tests.md", "---\nrun: make test\n---\n")
    folder.write("Plain.md", "# Be plain\nfrom now on")
    load_commands(client, folder)
    shown = await client.use("/help")
    assert shown.endswith(
        "**Your own**\n\n- `/plain` Be plain\n- `/review [file]` Look for faults.\n- `/tests` Run `make test`"
    )
    assert "Also: `/rv`, `/look`" in await client.use("/help review")
    for name in ("/review", "RV", "look", "/rev"):
        found = resolve_command(name, client.commands)
        assert found is not None
        assert found.name == "review"


@pytest.mark.slow
async def test_shell_command_runs_in_the_session_folder_without_the_model(
    client: ChatClient, folder: Folder, server: ModelServer
) -> None:
    folder.write("where.md", "---\nrun: pwd; ls\n---\nWhat is here.")
    load_commands(client, folder)
    work = client.active_session.chat.workspace.folder
    (work / "notes.txt").touch()
    assert await client.use("/where") == f"```\n{work}\nnotes.txt\n```"
    assert (server.received, await client.transcript()) == ([], [])


@pytest.mark.slow
async def test_arguments_reach_the_shell_as_parameters_and_never_as_code(client: ChatClient, folder: Folder) -> None:
    folder.write("show.md", """---\nrun: printf '<%s>' "$#" "$1" "$@"\n---\n""")
    load_commands(client, folder)
    shown = await client.use("/show 'a  b' $(touch owned) ; touch owned")
    assert shown == "```\n<6><a  b><a  b><$(touch><owned)><;><touch><owned>\n```"
    assert not (client.active_session.chat.workspace.folder / "owned").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("true", "Done. There was no output."),
        ("exit 3", "Exit code 3."),
        ("echo bad >&2; false", "```\nbad\n```\n\nExit code 1."),
        ("echo '```'", "````\n```\n````"),
        ("printf '\\033[31mred\\033[0m'", "```\nred\n```"),
    ],
)
async def test_output_and_exit_code_of_a_shell_command_are_shown(
    client: ChatClient, folder: Folder, line: str, shown: str
) -> None:
    folder.write("own.md", f"---\nrun: {line}\n---\n")
    load_commands(client, folder)
    assert await client.use("/own") == shown


@pytest.mark.slow
async def test_multi_line_shell_command_runs_as_one_script(client: ChatClient, folder: Folder) -> None:
    folder.write("own.md", "---\nrun: |\n  for one in a b\n  do echo $one\n  done\n---\n")
    load_commands(client, folder)
    assert await client.use("/own") == "```\na\nb\n```"


@pytest.mark.slow
async def test_cancelled_shell_command_leaves_no_process_running(client: ChatClient, folder: Folder) -> None:
    folder.write("own.md", "---\nrun: echo $$ > pid; sleep 600\n---\n")
    load_commands(client, folder)
    pid = client.active_session.chat.workspace.folder / "pid"
    async with asyncio.TaskGroup() as group:
        running = group.create_task(client.use("/own"))
        await until(lambda: pid.exists() and pid.read_text().strip())
        running.cancel()
    assert is_dead(pid)


@pytest.mark.slow
async def test_stop_ends_a_running_shell_command(client: ChatClient, folder: Folder) -> None:
    folder.write("own.md", "---\nrun: echo begun; touch here; sleep 600\n---\n")
    load_commands(client, folder)
    async with asyncio.TaskGroup() as group, asyncio.timeout(LIMIT):
        running = group.create_task(client.use("/own"))
        await until((client.active_session.chat.workspace.folder / "here").exists)
        assert await client.use("/stop") == ""
        assert (await running).endswith("```\nbegun\n```\n\nEnded by SIGKILL.")
    assert await client.use("/stop") == "Nothing is running."


@pytest.mark.slow
async def test_shell_command_runs_during_a_turn_and_prompt_after_it(
    client: ChatClient, folder: Folder, server: ModelServer
) -> None:
    folder.write("own.md", "---\nrun: echo hi\n---\n")
    folder.write("ask.md", "And then?")
    load_commands(client, folder)
    server.script(Say(calls=[Ask("clarify", {"question": "Where?"})]))
    await client.use("/queue go")
    questions = client.active_session.chat.questions
    await until(lambda: questions.waiting)
    assert await client.use("/own") == "```\nhi\n```"
    await client.use("/ask")
    questions.answer(questions.waiting[0], "here")
    await client.active_session.chat.conversation.wait_until_idle()
    assert [text for role, text in await client.transcript() if role == "user"] == ["go", "And then?"]


async def test_guest_can_use_prompt_commands_but_not_shell_commands(client: ChatClient, folder: Folder) -> None:
    folder.write("own.md", "---\nrun: touch owned\n---\n")
    folder.write("ask.md", "Hello.")
    load_commands(client, folder)
    stranger = Author("eve", owner=False)
    assert "Only the owner" in await client.use("/own", author=stranger)
    assert await client.use("/ask", author=stranger) == ""


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("model.md", "Hello.", "`/model` is already a built-in command"),
        ("q.md", "Hello.", "`/q` is already a built-in command"),
        ("two words.md", "Hello.", "the file name can't be a command name"),
        ("empty.md", "", "it has neither a prompt nor a command to run."),
        ("idle.md", "---\nrun:\n---\nHello.", "it has neither a prompt nor a command to run."),
        ("open.md", "---\nhelp: x\nHello.", "the header isn't closed"),
        ("long.md", "x" * 100_001, "it is longer than"),
    ],
)
def test_invalid_command_file_is_reported_and_the_others_are_loaded(
    folder: Folder, name: str, text: str, problem: str
) -> None:
    file = folder.write(name, text)
    folder.write("zebra.md", "Hello.")
    commands, remarks = folder.load()
    assert [command.name for command in commands] == ["zebra"]
    assert len(remarks) == 1
    assert remarks[0].startswith(f"{file}: {problem}")


def test_command_files_that_are_not_text_or_not_files_are_reported(folder: Folder) -> None:
    (folder.path / "bytes.md").write_bytes(b"\xff\xfe\x00")
    (folder.path / "folder.md").mkdir()
    (folder.path / "gone.md").symlink_to(folder.path / "nowhere")
    folder.write("good.md", "Hello.")
    commands, remarks = folder.load()
    assert [command.name for command in commands] == ["good"]
    assert [remark.partition(": ")[2] for remark in remarks] == [
        "it isn't UTF-8 text.",
        "it isn't a file.",
        "it isn't a file.",
    ]


def test_invalid_aliases_and_fields_are_left_out_and_reported(folder: Folder) -> None:
    file = folder.write("own.md", "---\nhelpp: x\naliases: stop, mine\n---\nHello.")
    commands, remarks = folder.load()
    assert commands[0].aliases == ("mine",)
    assert remarks == (
        f"{file}: unknown field `helpp:`; did you mean `help:`?",
        f"{file}: `/stop` is already a built-in command.",
    )


def test_commands_of_the_profile_take_precedence_over_the_project(tmp_path: Path) -> None:
    mine, theirs = Folder(tmp_path / "profile"), Folder(tmp_path / "project")
    first = mine.write("own.md", "Mine.")
    second = theirs.write("own.md", "Theirs.")
    theirs.write("other.md", "Theirs.")
    commands, remarks = load_custom_commands([mine.path, theirs.path, tmp_path / "nowhere"])
    assert [(command.name, command.help) for command in commands] == [("own", "Mine."), ("other", "Theirs.")]
    assert remarks == (f"{second}: `/own` is already a command of {first}; rename the file.",)
