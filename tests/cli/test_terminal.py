import io
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import Struct
from tests.app.program import read_all, terminal_pair

from talaria.cli.terminal import Terminal
from talaria.cli.terminal_text import display_width

ESCAPE = "\x1b"
NOTHING: Mapping[str, str] = {}


def in_pipe(
    work: Callable[[Terminal], object], environment: Mapping[str, str] = NOTHING, *, color: str = "auto"
) -> str:
    out = io.StringIO()
    work(Terminal((io.StringIO(), out, io.StringIO()), environment, color=color))
    return out.getvalue()


def on_screen(
    work: Callable[[Terminal], object],
    environment: Mapping[str, str] = NOTHING,
    *,
    width: int = 80,
    typed: str = "",
    color: str = "auto",
) -> str:
    """Return the output of a terminal while ``work`` uses it, including the typed text."""
    with terminal_pair(columns=width) as (person, program):
        os.write(person, typed.encode())
        with (
            open(program, encoding="utf-8", closefd=False) as reading,
            open(program, "w", encoding="utf-8", closefd=False) as writing,
            open(program, "w", encoding="utf-8", closefd=False) as noting,
        ):
            work(Terminal((reading, writing, noting), {"TERM": "xterm", **environment}, color=color))
        os.close(program)
        return read_all(person)


def draw(terminal: Terminal) -> None:
    terminal.table(("id", "title", "messages"), [("a1", "Trip to Rome", 7), ("b22", None, 1234)])


def test_table_in_a_pipe_has_values_separated_by_tabs() -> None:
    assert in_pipe(draw) == "a1\tTrip to Rome\t7\nb22\t\t1234\n"


def test_table_on_a_terminal_has_headers_and_right_aligned_numbers() -> None:
    assert on_screen(draw, color="never").splitlines() == [
        "id   title         messages",
        "───  ────────────  ────────",
        "a1   Trip to Rome         7",
        "b22                    1234",
    ]


def test_table_headers_are_bold_and_rules_dim() -> None:
    header, rule, *_ = on_screen(draw).splitlines()
    assert header.startswith("\x1b[1mid\x1b[0m")
    assert rule.startswith("\x1b[2m───")


def test_wide_characters_take_two_columns() -> None:
    assert display_width("日本") == 4
    assert display_width("e\u0301") == 1
    shown = on_screen(lambda terminal: terminal.table(("title", "n"), [("日本", 1), ("abcd", 2)]), color="never")
    assert shown.splitlines()[2:] == ["日本   1", "abcd   2"]


@pytest.mark.parametrize("width", [20, 33, 60])
def test_a_table_is_cut_to_the_width_of_the_terminal(width: int) -> None:
    rows = [("k3j2h1g4", "A very long title 東京 that goes on and on and on", "cli")]
    lines = on_screen(lambda terminal: terminal.table(("id", "title", "source"), rows), width=width).splitlines()
    assert max(map(display_width, lines)) <= width
    assert "…" in lines[2]


def test_a_table_without_rows_shows_its_headers_only() -> None:
    assert in_pipe(lambda terminal: terminal.table(("id",), [])) == ""
    assert on_screen(lambda terminal: terminal.table(("id",), []), color="never") == "id\n──\n"


@pytest.mark.parametrize("harm", ["\x1b[2J", "\x1b]0;title\x07", "\x9b2J", "\x1b[8m", "\r", "\x00", "\u202e", "\ud800"])
def test_control_characters_in_data_are_escaped(harm: str) -> None:
    def show(terminal: Terminal) -> None:
        terminal.table(("title",), [(f"before{harm}after",)])
        terminal.line(f"before{harm}after")

    shown = on_screen(show, color="never")
    assert harm not in shown
    assert ESCAPE not in shown
    assert shown.count("before\\") == 2
    assert ESCAPE not in in_pipe(show)


def test_line_breaks_and_tabs_in_a_cell_become_spaces() -> None:
    assert in_pipe(lambda terminal: terminal.table(("a", "b"), [("one\ntwo\tthree", "x")])) == "one two three\tx\n"


def test_style_of_a_cell_does_not_change_its_width_or_other_cells() -> None:
    def show(terminal: Terminal) -> None:
        terminal.table(("state", "n"), [(terminal.style("fine, all is well", "green"), 1), ("x" * 17, 2)])

    _, _, first, second = on_screen(show, width=14).splitlines()
    assert first.startswith("\x1b[32mfine")
    assert first.index("\x1b[0m") < first.index("1", first.index("…"))
    assert display_width(first) == display_width(second)


def test_document_is_exact_in_a_pipe_and_escaped_on_a_terminal() -> None:
    text = "# Title\n\x1b[31mred\x1b[0m \x1b[2J\n"
    assert in_pipe(lambda terminal: terminal.document(text)) == text
    assert on_screen(lambda terminal: terminal.document(text)) == "# Title\nred \\x1b[2J\n"


class Point(Struct):
    x: int


@dataclass
class Event:
    at: datetime
    where: Path
    point: Point


def test_json_encodes_structs_dataclasses_times_and_paths() -> None:
    event = Event(datetime(2026, 3, 1, 12, tzinfo=UTC), Path("some/file"), Point(7))
    text = in_pipe(lambda terminal: terminal.json([event]))
    assert json.loads(text) == [{"at": "2026-03-01T12:00:00Z", "where": "some/file", "point": {"x": 7}}]
    assert text.startswith('[\n  {\n    "at"')


def test_json_escapes_control_characters() -> None:
    harmful = "\x1b[2J \x9b2J \u202e 東京"
    text = in_pipe(lambda terminal: terminal.json({"title": harmful}))
    assert json.loads(text) == {"title": harmful}
    assert not {"\x1b", "\x9b", "\u202e"} & set(text)
    assert "東京" in text


def paint(terminal: Terminal) -> None:
    terminal.line(terminal.style("now", "bold", "red"))


COLORED = "\x1b[1m\x1b[31mnow\x1b[0m\n"


@pytest.mark.parametrize(
    ("color", "environment", "colored_screen", "colored_pipe"),
    [
        ("auto", {}, True, False),
        ("auto", {"NO_COLOR": "1"}, False, False),
        ("auto", {"NO_COLOR": ""}, True, False),
        ("auto", {"TERM": "dumb"}, False, False),
        ("auto", {"CLICOLOR_FORCE": "1"}, True, True),
        ("auto", {"CLICOLOR_FORCE": "0"}, True, False),
        ("auto", {"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False, False),
        ("always", {"NO_COLOR": "1"}, True, True),
        ("never", {"CLICOLOR_FORCE": "1"}, False, False),
    ],
)
def test_colour_depends_on_option_environment_and_terminal(
    color: str, environment: dict[str, str], *, colored_screen: bool, colored_pipe: bool
) -> None:
    assert on_screen(paint, environment, color=color) == (COLORED if colored_screen else "now\n")
    assert in_pipe(paint, environment, color=color) == (COLORED if colored_pipe else "now\n")


@pytest.mark.parametrize(("preference", "shown"), [("always", COLORED), ("never", "now\n"), ("auto", "now\n")])
def test_colour_setting_applies_without_option_and_environment(preference: str, shown: str) -> None:
    out = io.StringIO()
    paint(Terminal((io.StringIO(), out, io.StringIO()), {}, preference=preference))
    assert out.getvalue() == shown


def test_notes_are_written_to_stderr() -> None:
    out, notes = io.StringIO(), io.StringIO()
    terminal = Terminal((io.StringIO(), out, notes), {})
    terminal.note("careful")
    assert (out.getvalue(), notes.getvalue()) == ("", "careful\n")


@pytest.mark.parametrize(
    ("typed", "answer"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("\x04", False)]
)
def test_only_yes_confirms(typed: str, *, answer: bool) -> None:
    answers: list[bool] = []
    shown = on_screen(lambda terminal: answers.append(terminal.confirm("Delete it?")), typed=typed)
    assert "Delete it? [y/N] " in shown
    assert answers == [answer]


def test_confirmation_without_a_terminal_is_no() -> None:
    terminal = Terminal((io.StringIO("y\n"), io.StringIO(), io.StringIO()), {})
    assert not terminal.confirm("Delete it?")
    assert not terminal.interactive


def show_progress(terminal: Terminal) -> None:
    with terminal.progress("Copying", 4) as progress:
        for _ in range(4):
            progress.advance()


def test_progress_is_one_line_that_is_erased_at_the_end() -> None:
    shown = on_screen(show_progress)
    assert "\rCopying  50 %  (2 of 4)\x1b[K" in shown
    assert shown.endswith("\r\x1b[K")
    assert "\n" not in shown


def test_progress_is_silent_in_a_pipe_and_on_a_dumb_terminal() -> None:
    assert in_pipe(show_progress) == ""
    assert on_screen(show_progress, {"TERM": "dumb"}) == ""


def test_width_is_read_from_terminal_or_environment() -> None:
    widths: list[int] = []
    on_screen(lambda terminal: widths.append(terminal.width), width=47)
    on_screen(lambda terminal: widths.append(terminal.width), {"COLUMNS": "31"}, width=47)
    in_pipe(lambda terminal: widths.append(terminal.width))
    assert widths == [47, 31, 80]


def test_long_lines_are_wrapped_at_words_on_a_terminal_only() -> None:
    text = "  The built-in model uses no tools: see https://example.org/a/very/long/address for more."

    def work(terminal: Terminal) -> None:
        terminal.line(terminal.style(text, "yellow"))
        terminal.note("one two three four five six seven")

    shown = on_screen(work, width=24, color="never")
    assert shown.splitlines() == [
        "  The built-in model",
        "  uses no tools: see",
        "  https://example.org/a/very/long/address",
        "  for more.",
        "one two three four five",
        "six seven",
    ]
    assert in_pipe(lambda terminal: terminal.line(text)) == f"{text}\n"
