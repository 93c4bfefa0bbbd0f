"""Custom commands: Markdown files with a prompt or a shell command."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.app.session.test_user_shell import is_dead
from tests.commands.command_fixture import Desk, open_desk

from talaria.commands.command import Author, Command
from talaria.commands.registry import REGISTRY, load_custom_commands, resolve_command
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import LIMIT, until


@pytest.fixture
async def desk(tmp_path: Path, server: ModelServer) -> AsyncIterator[Desk]:
    async with open_desk(tmp_path, server) as desk:
        yield desk


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


def take_up(desk: Desk, folder: Folder) -> None:
    commands, remarks = folder.load()
    assert remarks == ()
    desk.commands = (*REGISTRY, *commands)


@pytest.mark.parametrize(
    ("body", "typed", "said"),
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
async def test_a_body_is_said_with_the_words_in_their_places(
    desk: Desk, folder: Folder, body: str, typed: str, said: str
) -> None:
    folder.write("own.md", f"---\nhelp: My own.\n---\n{body}\n")
    take_up(desk, folder)
    assert await desk.use(typed) == ""
    await desk.active_session.chat.conversation.settled()
    assert await desk.transcript() == [("user", said), ("assistant", "ok")]


async def test_they_appear_like_all_others(desk: Desk, folder: Folder) -> None:
    folder.write("review.md", "---\nhelp: Look for faults.\nhint: '[file]'\naliases: rv, [/look]\n---\nLook at $1.")
    folder.write("tests.md", "---\nrun: make test\n---\n")
    folder.write("Plain.md", "# Be plain\nfrom now on")
    take_up(desk, folder)
    shown = await desk.use("/help")
    assert shown.endswith(
        "**Your own**\n\n- `/plain` Be plain\n- `/review [file]` Look for faults.\n- `/tests` Run `make test`"
    )
    assert "Also: `/rv`, `/look`" in await desk.use("/help review")
    for name in ("/review", "RV", "look", "/rev"):
        found = resolve_command(name, desk.commands)
        assert found is not None
        assert found.name == "review"


@pytest.mark.slow
async def test_a_line_is_run_in_the_folder_of_the_conversation_and_not_sent_to_the_model(
    desk: Desk, folder: Folder, server: ModelServer
) -> None:
    folder.write("where.md", "---\nrun: pwd; ls\n---\nWhat is here.")
    take_up(desk, folder)
    place = desk.active_session.chat.workspace.folder
    (place / "notes.txt").touch()
    assert await desk.use("/where") == f"```\n{place}\nnotes.txt\n```"
    assert (server.received, await desk.transcript()) == ([], [])


@pytest.mark.slow
async def test_words_reach_the_shell_as_parameters_and_never_as_commands(desk: Desk, folder: Folder) -> None:
    folder.write("show.md", """---\nrun: printf '<%s>' "$#" "$1" "$@"\n---\n""")
    take_up(desk, folder)
    shown = await desk.use("/show 'a  b' $(touch owned) ; touch owned")
    assert shown == "```\n<6><a  b><a  b><$(touch><owned)><;><touch><owned>\n```"
    assert not (desk.active_session.chat.workspace.folder / "owned").exists()


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
async def test_what_a_line_prints_and_how_it_ends_is_shown(desk: Desk, folder: Folder, line: str, shown: str) -> None:
    folder.write("own.md", f"---\nrun: {line}\n---\n")
    take_up(desk, folder)
    assert await desk.use("/own") == shown


@pytest.mark.slow
async def test_several_lines_are_one_script(desk: Desk, folder: Folder) -> None:
    folder.write("own.md", "---\nrun: |\n  for one in a b\n  do echo $one\n  done\n---\n")
    take_up(desk, folder)
    assert await desk.use("/own") == "```\na\nb\n```"


@pytest.mark.slow
async def test_a_line_that_is_given_up_leaves_nothing_behind(desk: Desk, folder: Folder) -> None:
    folder.write("own.md", "---\nrun: echo $$ > pid; sleep 600\n---\n")
    take_up(desk, folder)
    pid = desk.active_session.chat.workspace.folder / "pid"
    async with asyncio.TaskGroup() as group:
        running = group.create_task(desk.use("/own"))
        await until(lambda: pid.exists() and pid.read_text().strip())
        running.cancel()
    assert is_dead(pid)


@pytest.mark.slow
async def test_a_line_that_runs_is_stopped_with_stop(desk: Desk, folder: Folder) -> None:
    folder.write("own.md", "---\nrun: echo begun; touch here; sleep 600\n---\n")
    take_up(desk, folder)
    async with asyncio.TaskGroup() as group, asyncio.timeout(LIMIT):
        running = group.create_task(desk.use("/own"))
        await until((desk.active_session.chat.workspace.folder / "here").exists)
        assert await desk.use("/stop") == ""
        assert (await running).endswith("```\nbegun\n```\n\nEnded by SIGKILL.")
    assert await desk.use("/stop") == "Nothing is running."


@pytest.mark.slow
async def test_a_line_runs_during_a_turn_and_a_prompt_after_it(desk: Desk, folder: Folder, server: ModelServer) -> None:
    folder.write("own.md", "---\nrun: echo hi\n---\n")
    folder.write("ask.md", "And then?")
    take_up(desk, folder)
    server.script(Say(calls=[Ask("clarify", {"question": "Where?"})]))
    await desk.use("/queue go")
    questions = desk.active_session.chat.questions
    await until(lambda: questions.waiting)
    assert await desk.use("/own") == "```\nhi\n```"
    await desk.use("/ask")
    questions.answer(questions.waiting[0], "here")
    await desk.active_session.chat.conversation.settled()
    assert [text for role, text in await desk.transcript() if role == "user"] == ["go", "And then?"]


async def test_strangers_may_say_things_but_run_nothing(desk: Desk, folder: Folder) -> None:
    folder.write("own.md", "---\nrun: touch owned\n---\n")
    folder.write("ask.md", "Hello.")
    take_up(desk, folder)
    stranger = Author("eve", owner=False)
    assert "Only the owner" in await desk.use("/own", author=stranger)
    assert await desk.use("/ask", author=stranger) == ""


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
def test_a_broken_file_is_named_and_spares_the_others(folder: Folder, name: str, text: str, problem: str) -> None:
    file = folder.write(name, text)
    folder.write("zebra.md", "Hello.")
    commands, remarks = folder.load()
    assert [command.name for command in commands] == ["zebra"]
    assert len(remarks) == 1
    assert remarks[0].startswith(f"{file}: {problem}")


def test_what_is_no_text_and_no_file_is_named_too(folder: Folder) -> None:
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


def test_aliases_and_fields_that_do_not_fit_are_left_out_with_a_remark(folder: Folder) -> None:
    file = folder.write("own.md", "---\nhelpp: x\naliases: stop, mine\n---\nHello.")
    commands, remarks = folder.load()
    assert commands[0].aliases == ("mine",)
    assert remarks == (
        f"{file}: unknown field `helpp:`; did you mean `help:`?",
        f"{file}: `/stop` is already a built-in command.",
    )


def test_commands_of_the_profile_go_before_those_of_the_project(tmp_path: Path) -> None:
    mine, theirs = Folder(tmp_path / "profile"), Folder(tmp_path / "project")
    first = mine.write("own.md", "Mine.")
    second = theirs.write("own.md", "Theirs.")
    theirs.write("other.md", "Theirs.")
    commands, remarks = load_custom_commands([mine.path, theirs.path, tmp_path / "nowhere"])
    assert [(command.name, command.help) for command in commands] == [("own", "Mine."), ("other", "Theirs.")]
    assert remarks == (f"{second}: `/own` is already a command of {first}; rename the file.",)
