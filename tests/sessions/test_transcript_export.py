import stat
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.app.program import Outcome, Program
from tests.cli.stored_sessions import converse, read, text_message, write

from talaria.contracts.stores.sessions import NewSession, Session, SessionChanges, StoredMessage
from talaria.core.ids import SessionId
from talaria.core.messages import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult, Usage
from talaria.sessions.transcript_export import MessageLine, SessionLine, Transcript, to_json, to_json_lines, to_markdown

AT = datetime(2026, 7, 1, 12, 30, 15, 123456, tzinfo=UTC)
SESSION = Session(
    id=SessionId("s1"), source="cli", created_at=AT, updated_at=AT, title="Trip", archived_at=AT, usage=Usage(1, 2, 3)
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
PARTS = st.one_of(
    st.builds(Text, TEXTS),
    st.builds(Image, TEXTS, TEXTS),
    st.builds(File, TEXTS, TEXTS, TEXTS),
    st.builds(Reasoning, TEXTS, TEXTS),
    st.builds(ToolCall, TEXTS, TEXTS, TEXTS),
    st.builds(ToolResult, TEXTS, TEXTS, st.booleans()),
)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    parts=st.lists(PARTS, max_size=4).map(tuple),
    at=st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 -- its own argument
    author=TEXTS,
    model=TEXTS,
    tokens=st.none() | st.integers(0, 10**9),
    platform_message_id=st.none() | TEXTS,
)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def transcript(*messages: Message) -> Transcript:
    return Transcript(SESSION, tuple(StoredMessage(SESSION.id, seq, one) for seq, one in enumerate(messages, 1)))


def markdown(*parts: Part) -> list[str]:
    """Return the lines of one message in Markdown, and the heading of the next."""
    first, second = Message(role="user", parts=parts, at=AT), Message(role="assistant", parts=(), at=AT)
    text = to_markdown(transcript(first, second), UTC)
    return text.partition("## User · 2026-07-01 12:30\n\n")[2].splitlines()


def saved(program: Program, session: Session) -> Transcript:
    messages = read(program, lambda store: store.messages.load(session.id))
    return Transcript(session, tuple(messages))


@given(st.lists(MESSAGES, max_size=4))
def test_json_export_is_lossless(messages: list[Message]) -> None:
    assert msgspec.json.decode(to_json(transcript(*messages)), type=Transcript) == transcript(*messages)


@given(st.lists(MESSAGES, max_size=4))
def test_json_lines_export_is_lossless(messages: list[Message]) -> None:
    text = to_json_lines(transcript(*messages))
    first, *others = msgspec.json.Decoder(SessionLine | MessageLine).decode_lines(text)
    assert first == SessionLine(SESSION)
    assert others == [MessageLine(seq, message) for seq, message in enumerate(messages, 1)]
    assert text.count("\n") == 1 + len(messages)


def test_markdown_export_starts_with_title_and_metadata() -> None:
    assert to_markdown(transcript(), UTC).splitlines() == [
        "# Trip",
        "",
        "- Session: `s1`",
        "- Source: cli",
        "- Started: 2026-07-01 12:30",
        "- Last used: 2026-07-01 12:30",
        "- Messages: 0",
    ]


def test_markdown_export_shows_every_kind_of_part() -> None:
    parts: list[Part] = [Text("# Hi\n"), Image("a.png"), File("b.pdf", "plan"), ToolCall("c", "read", "{}")]
    assert markdown(*parts, ToolResult("c", "", failed=True)) == [
        *("# Hi", "", "Image: `a.png`", "", "File `plan`: `b.pdf`", ""),
        *("Tool call `read`:", "", "```json", "{}", "```", ""),
        *("Tool failure:", "", "```", "```", "", "## Assistant · 2026-07-01 12:30"),
    ]


@pytest.mark.parametrize("content", ["```\ncode\n```", "````\n```\n````", "a ``````` b", "~~~\n```"])
def test_fence_is_longer_than_any_fence_in_its_content(content: str) -> None:
    _, _, opening, *inside, closing, _, heading = markdown(ToolResult("c", content))
    assert "\n".join(inside) == content
    assert opening == closing
    assert opening not in content
    assert set(opening) == {"`"}
    assert heading.startswith("## Assistant")


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("```python\nprint()", "```"),
        ("~~~~\n```\ncode", "~~~~"),
        ("````\n```\ncode\n```", "````"),
        ("```\ncode\n```\n```", "```"),
        ("  ```\ncode\n``` not the end", "```"),
    ],
)
def test_open_fence_of_a_message_is_closed(text: str, ending: str) -> None:
    assert markdown(Text(text)) == [*text.splitlines(), ending, "", "## Assistant · 2026-07-01 12:30"]


@pytest.mark.parametrize("text", ["```\ncode\n```", "`` ` ``", "    ```\n    indented", "```a`b```", "~~~\ncode\n~~~~"])
def test_message_with_closed_fences_is_unchanged(text: str) -> None:
    assert markdown(Text(text)) == [*text.splitlines(), "", "## Assistant · 2026-07-01 12:30"]


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_exported_session_decodes_to_the_stored_one(program: Program, kind: str) -> None:
    session = converse(
        program,
        NewSession(source="cli", title="Trip"),
        text_message("Hi \u2028\x1b[31m 東京 🚆"),
        text_message("", ToolCall("c1", "read", '{"a": 1}'), Reasoning("hm", "sig"), role="assistant"),
    )
    text = program.run("sessions", "export", "trip", "--format", kind).out
    if kind == "json":
        assert msgspec.json.decode(text, type=Transcript) == saved(program, session)
    else:
        first, *others = msgspec.json.Decoder(SessionLine | MessageLine).decode_lines(text)
        assert [first.session, *(line.message for line in others)] == [
            session,
            *(one.message for one in saved(program, session).messages),
        ]


def test_exported_file_is_private_and_overwritten_only_with_force(program: Program) -> None:
    converse(program, NewSession(source="cli", title="Trip"), text_message("Hi"))
    file = program.home / "trip.md"
    arguments = ["sessions", "export", "trip", "--output", str(file)]
    assert program.run(*arguments) == Outcome(0, "", f"Wrote 1 message to {file}.\n")
    assert file.read_text().startswith("# Trip\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("mine")
    refused = program.run(*arguments)
    assert (refused.code, refused.err) == (1, f"talaria: {file} already exists; --force overwrites it.\n")
    assert file.read_text() == "mine"
    assert program.run(*arguments, "--force").code == 0
    assert file.read_text().startswith("# Trip\n")


def test_a_folder_as_output_gets_a_file_named_after_the_session(program: Program) -> None:
    session = converse(program, NewSession(source="cli", title="Trip: to/Tōkyō!"))
    program.run("sessions", "export", "trip", "-o", str(program.home), "--format", "jsonl")
    assert (program.home / f"{session.id}-trip-to-tōkyō.jsonl").is_file()


def test_export_to_an_unwritable_path_is_reported(program: Program) -> None:
    converse(program, NewSession(source="cli", title="Trip"))
    refused = program.run("sessions", "export", "trip", "-o", str(program.home / "nowhere" / "x.md"))
    assert refused.code == 1
    assert "nowhere/x.md can't be written: No such file or directory." in refused.err
    assert list(program.home.iterdir()) == [program.home / "profiles"]


def test_every_session_is_exported_into_a_folder(program: Program) -> None:
    one = converse(program, NewSession(source="cli", title="One"), text_message("Hi"))
    two = converse(program, NewSession(source="cli"), text_message("Hello"))
    write(program, lambda store: store.sessions.update(two.id, SessionChanges(archived=True)))
    folder = program.home / "all"
    arguments = ["sessions", "export", "--all", "--output", str(folder), "--format", "json"]
    assert program.run(*arguments).err == f"Wrote 2 sessions to {folder}.\n"
    assert {path.name for path in folder.iterdir()} == {f"{one.id}-one.json", f"{two.id}.json"}
    (folder / f"{two.id}.json").unlink()
    refused = program.run(*arguments)
    assert (refused.code, (folder / f"{two.id}.json").exists()) == (1, False)
    assert program.run(*arguments, "--force").code == 0
    assert (folder / f"{two.id}.json").exists()


@pytest.mark.parametrize(
    ("arguments", "hint"), [([], "Which session?"), (["--all"], "To which folder?"), (["x", "--all"], "but not both")]
)
def test_export_without_a_session_or_folder_names_the_missing_argument(
    program: Program, arguments: list[str], hint: str
) -> None:
    refused = program.run("sessions", "export", *arguments)
    assert refused.code == 1
    assert hint in refused.err


def test_export_to_a_terminal_escapes_control_characters(program: Program) -> None:
    converse(program, NewSession(source="cli", title="Trip"), text_message("evil \x1b[2J"))
    for kind in ("markdown", "json", "jsonl"):
        assert "\x1b" not in program.run_on_terminal("sessions", "export", "trip", "--format", kind).out
    assert "evil \x1b[2J" in program.run("sessions", "export", "trip").out
