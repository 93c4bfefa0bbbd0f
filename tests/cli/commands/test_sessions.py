import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.app.program import Outcome, Program
from tests.cli.stored_sessions import converse, days_ago, read, session_ids, text_message, write

from talaria.cli.commands.sessions.command import add_arguments
from talaria.cli.parser import Parser
from talaria.cli.parser_tree import read_parser
from talaria.contracts.stores.sessions import NewSession, Session, SessionChanges, SessionFilter
from talaria.core.ids import SessionId
from talaria.core.messages import File, Image, Reasoning, ToolCall, ToolResult, Usage

ESCAPE = "\x1b"
STYLE = re.compile(r"\x1b\[\d+m")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def on_screen(program: Program, *arguments: str, typed: str = "", columns: int = 80) -> str:
    return program.run_on_terminal("sessions", *arguments, typed=typed, env={"COLUMNS": str(columns)}).out


def create_titled(program: Program, title: str, *, at: datetime | None = None) -> Session:
    return converse(program, NewSession(source="cli", title=title), text_message("Hello"), at=at)


def read_sessions(program: Program) -> dict[SessionId, Session]:
    found = read(program, lambda store: store.sessions.find(SessionFilter(archived=None, limit=None)))
    return {session.id: session for session in found}


def archive(program: Program, session: Session) -> None:
    write(program, lambda store: store.sessions.update(session.id, SessionChanges(archived=True)))


# list


def test_empty_list_shows_a_hint_on_a_terminal_only(program: Program) -> None:
    assert program.run("sessions", "list") == Outcome(0, "")
    assert program.run("sessions", "list", "--json") == Outcome(0, "[]\n")
    shown = on_screen(program, "list")
    assert "There are no sessions yet" in shown
    assert "TITLE" not in shown
    assert "No session matches" in on_screen(program, "list", "--source", "telegram")


def test_list_is_ordered_by_last_use_with_metrics(program: Program) -> None:
    old = create_titled(program, "Old", at=datetime.now(UTC) - timedelta(hours=2, minutes=5))
    new = converse(program, NewSession(source="telegram", title="New"), text_message("One"), text_message("Two"))
    write(program, lambda store: store.usage.add(new.id, Usage(calls=1, cost_microdollars=1_230_000)))
    assert program.run("sessions", "list").out == (
        f"{new.id}\tNew\ttelegram\t2\t$1.23\tjust now\n{old.id}\tOld\tcli\t1\t\t2 h ago\n"
    )


def test_untitled_session_is_listed_by_its_first_message(program: Program) -> None:
    converse(
        program,
        NewSession(source="cli"),
        text_message("Be brief.", role="system"),
        text_message("Which train\ngoes to Rome?"),
    )
    assert "\tWhich train goes to Rome?\t" in program.run("sessions", "list").out
    assert json.loads(program.run("sessions", "list", "--json").out)[0]["title"] == ""


def test_untitled_session_is_found_by_its_first_message(program: Program) -> None:
    rome = converse(program, NewSession(source="cli"), text_message("Which train goes to ROME?"))
    oslo = converse(program, NewSession(source="cli", title="Trip to Oslo"), text_message("Not to Rome"))
    assert session_ids(program, "list", "--matching", "rome") == [rome.id]
    assert session_ids(program, "list", "--matching", "T") == [oslo.id, rome.id]
    assert session_ids(program, "list", "--matching", "trip to oslo") == [oslo.id]
    assert rome.id in program.run("sessions", "show", "train goes").out
    assert program.run("trace", "rome", "--json").code == 0
    ambiguous = program.run("sessions", "show", "t")
    assert (ambiguous.code, f"{rome.id}  Which train goes to ROME?" in ambiguous.err) == (1, True)


def test_the_list_fits_a_terminal_of_eighty_columns(program: Program) -> None:
    create_titled(program, "東京の旅行 " * 20)
    create_titled(program, "A very long title of a conversation " * 5)
    shown = on_screen(program, "list")
    assert ESCAPE in shown
    header, rule, *rows = [STYLE.sub("", line) for line in shown.splitlines()]
    assert header.split() == ["ID", "TITLE", "SOURCE", "MESSAGES", "COST", "LAST", "USED"]
    assert len(rule) <= 80
    assert len(rows) == 2
    assert all("…" in row and row.endswith("just now") for row in rows)


def test_list_is_filtered_by_source_title_archive_state_and_limit(program: Program) -> None:
    rome, oslo = create_titled(program, "Trip to Rome"), create_titled(program, "Trip to Oslo")
    chat = converse(program, NewSession(source="telegram", title="Chat"))
    archive(program, oslo)
    assert session_ids(program, "list") == [chat.id, rome.id]
    assert session_ids(program, "list", "--all") == [chat.id, oslo.id, rome.id]
    assert session_ids(program, "list", "--archived") == [oslo.id]
    assert session_ids(program, "list", "--source", "telegram") == [chat.id]
    assert session_ids(program, "list", "--matching", "TRIP", "--all") == [oslo.id, rome.id]
    assert session_ids(program, "list", "--limit", "1") == [chat.id]
    assert "--limit 2" in on_screen(program, "list", "--limit", "1")
    assert program.run("sessions", "list", "--all", "--archived").code == 2


@pytest.mark.parametrize("number", ["0", "-1", "x", "1000001", "9" * 5000, "٣"])
def test_invalid_limit_is_a_usage_error(program: Program, number: str) -> None:
    refused = program.run("sessions", "list", f"--limit={number}")
    assert refused.code == 2
    assert "isn't a number from 1 to" in refused.err


def test_json_has_every_field_of_a_session_even_if_zero(program: Program) -> None:
    session = create_titled(program, "Trip")
    (listed,) = json.loads(program.run("sessions", "list", "--json").out)
    assert (listed["id"], listed["message_count"], listed["archived_at"]) == (session.id, 1, None)
    assert listed["usage"]["cost_microdollars"] == 0
    assert set(listed) == set(Session.__struct_fields__)


def test_control_characters_in_a_title_are_escaped(program: Program) -> None:
    create_titled(program, "evil\x1b[2J\r\nname")
    for arguments in (["list"], ["show", "evil"], ["search", "hello"]):
        shown = on_screen(program, *arguments)
        assert "\x1b[2J" not in shown
        assert "evil\\x1b[2J" in shown


# names


def test_session_is_found_by_id_id_prefix_or_title(program: Program) -> None:
    session = create_titled(program, "Night train")
    for name in (session.id, session.id[:12], "Night train", "night TRAIN", "train", " train "):
        assert json.loads(program.run("sessions", "show", name, "--json").out)["session"]["id"] == session.id


def test_exact_title_is_preferred_over_longer_ones(program: Program) -> None:
    session = create_titled(program, "Rome")
    create_titled(program, "Rome again")
    assert json.loads(program.run("sessions", "show", "rome", "--json").out)["session"]["id"] == session.id


@pytest.mark.parametrize("arguments", [["show"], ["rename", "", "x"], ["archive"], ["export"], ["delete", "--yes"]])
def test_ambiguous_name_lists_the_matches_and_changes_nothing(program: Program, arguments: list[str]) -> None:
    one, two = create_titled(program, "Trip to Rome"), create_titled(program, "Trip to Oslo")
    before = read_sessions(program)
    action, *rest = arguments
    refused = program.run("sessions", action, "trip", *filter(None, rest))
    assert (refused.code, refused.out) == (1, "")
    assert "`trip` matches 2 sessions" in refused.err
    assert f"{one.id}  Trip to Rome" in refused.err
    assert f"{two.id}  Trip to Oslo" in refused.err
    assert read_sessions(program) == before


def test_at_most_ten_matches_of_an_ambiguous_name_are_listed(program: Program) -> None:
    for number in range(12):
        create_titled(program, f"Trip {number}x")
    refused = program.run("sessions", "show", "trip")
    assert "more than 10 sessions" in refused.err
    assert refused.err.count("\n") == 12


@pytest.mark.parametrize("name", ["nothing", "", " ", "%", "_", "'; --"])
def test_unknown_name_is_refused_with_a_hint_to_the_list(program: Program, name: str) -> None:
    create_titled(program, "Trip")
    refused = program.run("sessions", "show", name)
    assert (refused.code, refused.out) == (1, "")
    assert "`talaria sessions list --all`" in refused.err


def test_session_arguments_are_completed_by_the_shell() -> None:
    parser = Parser(prog="talaria sessions")
    add_arguments(parser)
    command = read_parser(("talaria", "sessions"), "", parser)
    named = [one for action in command.actions for one in (*action.positionals, *action.options)]
    session_arguments = [one for one in named if one.name == "SESSION"]
    assert len(session_arguments) == 8
    assert {one.completes for one in session_arguments} == {"sessions"}


# show


def test_session_is_shown_with_details_and_messages(program: Program) -> None:
    calls = (ToolCall("c1", "read_file", '{"path": "list.txt"}'), Reasoning("I should look first."))
    session = converse(
        program,
        NewSession(source="cli", title="Packing", model="large"),
        text_message("What do I pack?", Image("photo.png"), File("list.pdf", "list.pdf")),
        text_message("Let me see.", *calls, role="assistant"),
        text_message("", ToolResult("c1", "socks\nhat\n" * 100, failed=True), role="tool"),
        text_message("Socks and a hat.", role="assistant"),
    )
    shown = program.run("sessions", "show", session.id).out
    assert shown.startswith(f"Packing\nid         {session.id}\nsource     cli\nmodel      large\n")
    assert "What do I pack?\n[image] photo.png\n[file] list.pdf\n" in shown
    assert 'Let me see.\n→ read_file {"path": "list.txt"}\n(thought) I should look first.\n' in shown
    assert "← failed: socks hat socks hat" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.endswith("Socks and a hat.\n")


def test_roles_are_coloured_on_a_terminal(program: Program) -> None:
    converse(
        program, NewSession(source="cli", title="Trip"), text_message("Hi"), text_message("Hello", role="assistant")
    )
    shown = on_screen(program, "show", "trip")
    assert "\x1b[36m\x1b[1muser\x1b[0m" in shown
    assert "\x1b[32m\x1b[1massistant\x1b[0m" in shown
    assert ESCAPE not in program.run("sessions", "show", "trip").out


def test_long_transcript_is_shown_from_its_end_unless_all_is_requested(program: Program) -> None:
    converse(program, NewSession(source="cli", title="Long"), *(text_message(f"number {n}.") for n in range(1, 31)))
    ending = program.run("sessions", "show", "long").out
    assert "… 10 earlier messages; --all shows everything\n" in ending
    assert ending.count("number") == 20
    assert "number 11." in ending
    assert program.run("sessions", "show", "long", "--last", "2").out.count("number") == 2
    everything = program.run("sessions", "show", "long", "--all").out
    assert everything.count("number") == 30
    assert "earlier" not in everything
    shown = json.loads(program.run("sessions", "show", "long", "--last", "2", "--json").out)
    assert [one["seq"] for one in shown["messages"]] == [29, 30]


def test_times_are_shown_in_the_zone_of_the_settings(program: Program) -> None:
    at = datetime(2026, 7, 1, 23, 30, tzinfo=UTC)
    converse(program, NewSession(source="cli", title="Late"), text_message("Good night", at=at), at=at)
    shown = program.run("sessions", "show", "late", env={"TALARIA__CLI__TIME_ZONE": "Asia/Tokyo"}).out
    assert "user · 2026-07-02 08:30\n" in shown
    assert "started    2026-07-02 08:30\n" in shown


# search


def test_search_shows_messages_with_highlighted_matches(program: Program) -> None:
    at = datetime(2026, 7, 1, tzinfo=UTC)
    session = converse(
        program,
        NewSession(source="cli", title="Trip"),
        text_message("No"),
        text_message("The night train to Rome.", at=at),
    )
    assert program.run("sessions", "search", "night", "rome").out == (
        f"{session.id}\t2\tuser\t2026-07-01T00:00:00+00:00\tTrip\tThe [night] train to [Rome].\n"
    )
    (hit,) = json.loads(program.run("sessions", "search", "night", "--json").out)
    assert (hit["session_id"], hit["seq"], hit["snippet"]) == (session.id, 2, "The [night] train to Rome.")


def test_matches_are_highlighted_on_a_terminal(program: Program) -> None:
    session = converse(program, NewSession(source="cli", title="Trip"), text_message("The night train."))
    shown = on_screen(program, "search", "night")
    assert "The \x1b[1m\x1b[33mnight\x1b[0m train." in shown
    assert session.id in shown
    plain = program.run_on_terminal("sessions", "search", "night", env={"NO_COLOR": "1"}).out
    assert "The [night] train." in plain
    assert "Nothing found." in on_screen(program, "search", "xyzzy")


def test_search_is_filtered_by_source_role_session_and_time(program: Program) -> None:
    old, new = days_ago(30), days_ago(1)
    one = converse(
        program, NewSession(source="cli", title="One"), text_message("train", at=old), text_message("train", at=new)
    )
    two = converse(program, NewSession(source="telegram"), text_message("train", role="assistant", at=old))

    def find_positions(*arguments: str) -> list[tuple[str, int]]:
        found = json.loads(program.run("sessions", "search", "train", "--json", *arguments).out)
        return sorted((hit["session_id"], hit["seq"]) for hit in found)

    assert find_positions() == sorted([(one.id, 1), (one.id, 2), (two.id, 1)])
    assert find_positions("--source", "telegram") == [(two.id, 1)]
    assert find_positions("--role", "assistant") == [(two.id, 1)]
    assert find_positions("--session", "one") == [(one.id, 1), (one.id, 2)]
    assert find_positions("--since", "7d") == [(one.id, 2)]
    assert find_positions("--until", "7d", "--session", one.id) == [(one.id, 1)]
    assert find_positions("--since", f"{old:%Y-%m-%d}", "--until", f"{new:%Y-%m-%dT%H:%M}Z", "--role", "user") == [
        (one.id, 1)
    ]
    assert len(find_positions("--limit", "1")) == 1


def test_search_terms_that_look_like_options_follow_two_dashes(program: Program) -> None:
    converse(program, NewSession(source="cli", title="One"), text_message("train and plane"))
    two = converse(program, NewSession(source="cli", title="Two"), text_message("train only"))
    assert session_ids(program, "search", "--", "train", "-plane") == [two.id]
    assert session_ids(program, "search", "--limit", "5", "train", "--", "-plane") == [two.id]
    assert session_ids(program, "search", "--", "-plane", "train") == [two.id]


@pytest.mark.parametrize(
    "arguments", [['"'], ["*"], ["AND", "OR"], ["a:b", "("], [""], ["--", "-"], ["--", "--"], ["NEAR("]]
)
def test_search_accepts_any_special_characters(program: Program, arguments: list[str]) -> None:
    create_titled(program, "Trip")
    assert program.run("sessions", "search", *arguments).code == 0


def test_invalid_time_is_a_usage_error(program: Program) -> None:
    for when in ("soon", "3m", "1900-01-01", "99999999d", "-1d"):
        refused = program.run("sessions", "search", "x", f"--since={when}")
        assert refused.code == 2
        assert f"`{when}` is" in refused.err


# rename, archive


def test_rename_sets_and_removes_the_title(program: Program) -> None:
    session = create_titled(program, "Old")
    renamed = program.run("sessions", "rename", "old", "Night", "train  to\nRome")
    assert renamed == Outcome(0, f"The title of {session.id} is now “Night train to Rome”.\n")
    assert read_sessions(program)[session.id].title == "Night train to Rome"
    assert program.run("sessions", "rename", session.id, "").out == f"{session.id} no longer has a title.\n"
    assert read_sessions(program)[session.id].title == ""


def test_rename_to_an_existing_title_gives_a_warning(program: Program) -> None:
    create_titled(program, "Rome")
    session = create_titled(program, "Oslo")
    assert "Another session has the same title" in program.run("sessions", "rename", "oslo", "rome").err
    assert read_sessions(program)[session.id].title == "rome"
    assert program.run("sessions", "rename", session.id, "Bergen").err == ""


def test_sessions_are_archived_and_unarchived(program: Program) -> None:
    one, two = create_titled(program, "One"), create_titled(program, "Two")
    done = program.run("sessions", "archive", "one", "two", one.id)
    assert done.out == f"Archived “One” ({one.id}).\nArchived “Two” ({two.id}).\n"
    assert session_ids(program, "list") == []
    assert program.run("sessions", "unarchive", "one").out == f"“One” ({one.id}) is no longer archived.\n"
    assert session_ids(program, "list") == [one.id]


def test_nothing_is_archived_if_one_name_is_wrong(program: Program) -> None:
    create_titled(program, "One")
    assert program.run("sessions", "archive", "one", "nothing").code == 1
    assert session_ids(program, "list", "--archived") == []


# delete


def test_delete_shows_the_sessions_and_asks_for_confirmation(program: Program) -> None:
    one, two = create_titled(program, "One"), create_titled(program, "Two")
    shown = on_screen(program, "delete", "one", "two", typed="n\n")
    assert f"“One” ({one.id}): 1 message, from cli" in shown
    assert "Permanently delete 2 sessions? [y/N]" in shown
    assert "Nothing was deleted." in shown
    assert set(read_sessions(program)) == {one.id, two.id}
    assert f"Deleted “One” ({one.id}) with 1 message." in on_screen(program, "delete", "one", typed="y\n")
    assert set(read_sessions(program)) == {two.id}


def test_delete_without_a_terminal_requires_yes(program: Program) -> None:
    session = create_titled(program, "One")
    refused = program.run("sessions", "delete", "one")
    assert refused.code == 1
    assert "Add --yes" in refused.err
    assert set(read_sessions(program)) == {session.id}
    assert program.run("sessions", "delete", "one", "--yes").out == f"Deleted “One” ({session.id}) with 1 message.\n"
    assert read_sessions(program) == {}


# prune


def test_prune_deletes_old_sessions_except_titled_and_archived_ones(program: Program) -> None:
    old = converse(program, NewSession(source="cli"), text_message("old words"), at=days_ago(100))
    young = converse(program, NewSession(source="cli"), text_message("young"), at=days_ago(80))
    named = create_titled(program, "Named", at=days_ago(100))
    stored = converse(program, NewSession(source="cli"), text_message("stored"), at=days_ago(100))
    archive(program, stored)
    done = program.run("sessions", "prune", "--yes")
    assert done == Outcome(0, "Deleted 1 session with 1 message (9 B of text).\n")
    assert set(read_sessions(program)) == {young.id, named.id, stored.id}
    assert old.id not in session_ids(program, "search", "words")
    everything = ["--include-titled", "--include-archived", "--older-than", "7d"]
    assert "Deleted 3 sessions" in program.run("sessions", "prune", "--yes", *everything).out
    assert read_sessions(program) == {}


def test_prune_dry_run_lists_sessions_and_deletes_nothing(program: Program) -> None:
    session = converse(program, NewSession(source="cli"), text_message("x" * 1500), text_message("y"), at=days_ago(200))
    listed = program.run("sessions", "prune", "--dry-run")
    assert listed.out == f"{session.id}\t\tcli\t2\t1.5 kB\t{days_ago(200):%Y-%m-%d}\n"
    assert listed.err == "Would delete 1 session with 2 messages (1.5 kB of text).\n"
    (data,) = json.loads(program.run("sessions", "prune", "--dry-run", "--json").out)
    assert (data["id"], data["text_bytes"]) == (session.id, 1501)
    assert set(read_sessions(program)) == {session.id}


def test_prune_age_comes_from_the_command_line_or_the_settings(program: Program) -> None:
    converse(program, NewSession(source="cli"), text_message("x"), at=days_ago(10))
    converse(program, NewSession(source="telegram"), text_message("x"), at=days_ago(5))

    def count(*arguments: str, env: dict[str, str] | None = None) -> int:
        return len(json.loads(program.run("sessions", "prune", "--dry-run", "--json", *arguments, env=env).out))

    assert count() == 0
    assert count(env={"TALARIA__SESSIONS__PRUNE_AFTER_DAYS": "7"}) == 1
    assert count("--older-than", "7") == count("--older-than", "1w") == 1
    assert count("--older-than", "96h") == 2
    assert count("--older-than", "0d", "--source", "telegram") == 1


def test_empty_option_prunes_only_empty_sessions_older_than_a_day(program: Program) -> None:
    empty = converse(program, NewSession(source="cli"), at=days_ago(2))
    fresh = converse(program, NewSession(source="cli"))
    full = converse(program, NewSession(source="cli"), text_message("x"), at=days_ago(2))
    assert "Deleted 1 session with 0 messages" in program.run("sessions", "prune", "--empty", "--yes").out
    assert set(read_sessions(program)) == {fresh.id, full.id}
    assert empty.id not in read_sessions(program)


def test_prune_asks_on_a_terminal_and_is_refused_without_one(program: Program) -> None:
    session = converse(program, NewSession(source="cli"), text_message("x"), at=days_ago(100))
    assert "Add --yes" in program.run("sessions", "prune").err
    assert "Nothing was deleted." in on_screen(program, "prune", typed="n\n")
    assert set(read_sessions(program)) == {session.id}
    shown = on_screen(program, "prune", typed="yes\n")
    assert "Permanently delete 1 session with 1 message (1 B of text)?" in shown
    assert read_sessions(program) == {}
    assert program.run("sessions", "prune").err == "Nothing to prune.\n"


def test_branch_and_its_parent_are_pruned_together(program: Program) -> None:
    parent = converse(program, NewSession(source="cli"), text_message("shared"), text_message("more"), at=days_ago(100))
    branch = NewSession(source="cli", parent_id=parent.id, parent_seq=1)
    converse(program, branch, text_message("own"), at=days_ago(99))
    done = program.run("sessions", "prune", "--yes")
    assert done.out == "Deleted 2 sessions with 3 messages (13 B of text).\n"
    assert read_sessions(program) == {}


def test_search_finds_messages_that_are_not_indexed_yet(program: Program) -> None:
    converse(
        program,
        NewSession(source="cli"),
        text_message("an early heron"),
        *(text_message(f"filler {n}") for n in range(2_500)),
    )
    assert "early" in program.run("sessions", "search", "heron").out


def test_files_of_a_deleted_session_are_deleted(program: Program) -> None:
    session = converse(program, NewSession(source="cli"), text_message("hello"))
    outputs, media = (program.home / "profiles" / "default" / name / session.id for name in ("outputs", "media"))
    for folder in (outputs, media):
        folder.mkdir(parents=True)
        (folder / "1.txt").write_text("long")
    program.run("sessions", "delete", session.id, "--yes")
    assert not outputs.exists()
    assert not media.exists()
