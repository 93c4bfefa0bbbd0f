"""A terminal in memory: it shows output as a person would see it, and sends keys as a keyboard would."""

import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from textwrap import dedent

import pytest

from talaria.testing.screen import Screen, open_screen

MARK = "\u276f"
ENV = {"PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}
LINE_EDITOR = """
    from prompt_toolkit import PromptSession
    session = PromptSession()
    while True:
        try:
            print("said", repr(session.prompt("\\u276f ", bottom_toolbar="status")))
        except KeyboardInterrupt:
            print("interrupted")
        except EOFError:
            raise SystemExit(7)
"""
KEYS_READ = """
    import os, sys, tty
    tty.setraw(0)
    print({setup!r} + "ready", end="")
    while (got := os.read(0, 1024)) != b"q":
        print(got, end="\\r\\n")
"""


def shell(script: str, *, rows: int = 30) -> AbstractAsyncContextManager[Screen]:
    return open_screen(["sh", "-c", script], env=ENV, rows=rows)


def python(script: str, *, columns: int = 100, rows: int = 30) -> AbstractAsyncContextManager[Screen]:
    return open_screen([sys.executable, "-c", dedent(script)], env=ENV, columns=columns, rows=rows)


@asynccontextmanager
async def shown(output: str, *, columns: int = 100, rows: int = 30) -> AsyncIterator[Screen]:
    """Yield the screen after a program has written just this output."""
    async with python(f"import sys; sys.stdout.write({output!r})", columns=columns, rows=rows) as screen:
        assert await screen.exit_code() == 0
        yield screen


async def test_typed_text_and_output_are_shown() -> None:
    async with open_screen(["cat"], env=ENV) as screen:
        await screen.type("hello\n")
        await screen.wait_until(lambda: screen.lines[:2] == ["hello", "hello"])
        assert screen.text == "hello\nhello"
        assert (screen.cursor.row, screen.cursor.column, screen.cursor.visible) == (2, 0, True)


async def test_ctrl_c_is_a_signal_from_the_controlling_terminal() -> None:
    async with shell(
        "trap 'echo caught; exit 3' INT; tty </dev/tty; echo ready; while :; do sleep 0.05; done"
    ) as screen:
        await screen.wait_for("ready")
        assert re.search(r"^/dev/", screen.text)
        await screen.press("c-c")
        await screen.wait_for("caught")
        assert await screen.exit_code() == 3


async def test_program_in_raw_mode_reads_ctrl_c_as_a_byte() -> None:
    async with python(KEYS_READ.format(setup="")) as screen:
        await screen.wait_for("ready")
        await screen.press("c-c")
        await screen.wait_for(r"b'\x03'")


@pytest.mark.parametrize(
    ("key", "sent"),
    [
        ("enter", b"\r"), ("tab", b"\t"), ("s-tab", b"\x1b[Z"), ("esc", b"\x1b"), ("up", b"\x1b[A"), ("a", b"a"),
        ("c-left", b"\x1b[1;5D"), ("a-enter", b"\x1b\r"), ("a-b", b"\x1bb"), ("delete", b"\x1b[3~"),
        ("s-f5", b"\x1b[15;2~"), ("c-d", b"\x04"), ("backspace", b"\x7f"), ("é", "é".encode()), ("a-c-x", b"\x1b\x18"),
    ],
)  # fmt: skip
async def test_keys_are_sent_as_terminals_send_them(key: str, sent: bytes) -> None:
    async with python(KEYS_READ.format(setup="")) as screen:
        await screen.wait_for("ready")
        await screen.press(key)
        await screen.wait_for(repr(sent))


async def test_arrow_keys_differ_in_application_mode() -> None:
    async with python(KEYS_READ.format(setup="\x1b[?1h")) as screen:
        await screen.wait_for("ready")
        await screen.press("up", "c-up")
        await screen.wait_for(repr(b"\x1bOA\x1b[1;5A"))


async def test_an_unknown_key_is_refused_by_name() -> None:
    async with open_screen(["cat"], env=ENV) as screen:
        with pytest.raises(ValueError, match="Unknown key 'entr'"):
            await screen.press("entr")


async def test_line_editor_shows_its_prompt_and_status_bar() -> None:
    async with python(LINE_EDITOR, rows=10) as screen:
        await screen.wait_for("status")
        await screen.type("one two")
        await screen.wait_for(f"{MARK} one two")
        assert screen.cursor_line == f"{MARK} one two"
        assert screen.lines[-1].strip() == "status"
        await screen.press("c-left", "backspace", "enter")
        await screen.wait_for("said 'onetwo'")
        await screen.wait_until(lambda: screen.cursor_line == MARK)
        await screen.press("up")
        await screen.wait_until(lambda: screen.cursor_line == f"{MARK} onetwo")
        await screen.press("c-c")
        await screen.wait_for("interrupted")
        await screen.wait_until(lambda: screen.cursor_line == MARK)
        await screen.press("c-d")
        assert await screen.exit_code() == 7
        assert "CPR" not in screen.text
        assert "\x1b" not in screen.text


async def test_paste_of_many_lines_is_one_input() -> None:
    pasted = "first\nsecond\tword\nthird"
    async with python(LINE_EDITOR) as screen:
        await screen.wait_for(MARK)
        await screen.paste(pasted)
        await screen.wait_for("third")
        await screen.press("enter")
        await screen.wait_for(re.compile(r"said '([^']*)'"))
        assert "said 'first\\nsecond\\tword\\nthird'" in screen.text


async def test_paste_without_bracketed_paste_mode_is_typed() -> None:
    async with open_screen(["cat"], env=ENV) as screen:
        await screen.paste("a\nb\n")
        await screen.wait_until(lambda: sorted(screen.lines[:4]) == ["a", "a", "b", "b"])


async def test_paste_larger_than_the_kernel_buffer_is_complete() -> None:
    async with python(LINE_EDITOR.replace('"said", repr(', '"got", len(')) as screen:
        await screen.wait_for(MARK)
        await screen.paste("word " * 20_000)
        await screen.press("enter")
        await screen.wait_for("got 100000")


async def test_a_resize_reaches_the_program_and_the_screen() -> None:
    script = """
        import os, signal
        def say(*_): print(*os.get_terminal_size())
        signal.signal(signal.SIGWINCH, say)
        say()
        while True: signal.pause()
    """
    async with python(script, columns=80, rows=24) as screen:
        await screen.wait_for("80 24")
        screen.resize(columns=50, rows=12)
        await screen.wait_for("50 12")
        assert len(screen.lines) == 12


async def test_smaller_screen_still_shows_the_line_of_the_cursor() -> None:
    async with python(LINE_EDITOR, rows=20) as screen:
        for number in range(6):
            await screen.wait_until(lambda: screen.cursor_line == MARK and "status" in screen.text)
            await screen.type(f"number {number}\n")
            await screen.wait_for(f"said 'number {number}'")
        await screen.wait_until(lambda: screen.cursor_line == MARK)
        screen.resize(columns=60, rows=6)
        await screen.wait_until(lambda: screen.lines[-1].strip() == "status")
        await screen.type("still here")
        await screen.wait_for(f"{MARK} still here")
        assert [line for line in screen.scrollback if line.startswith("said")] == [
            f"said 'number {n}'" for n in range(6)
        ]


async def test_scrollback_contains_lines_in_order() -> None:
    async with shell("seq 500", rows=10) as screen:
        assert await screen.exit_code() == 0
        assert screen.lines[-2:] == ["500", ""]
        assert screen.scrollback == [*map(str, range(1, 501)), ""]


async def test_wide_and_combined_characters_have_their_width() -> None:
    async with shown("日本 ok\r\n⚠\ufe0f sign and e\u0301 mark\r\nx日\x1b[2Gy|", columns=20) as screen:
        assert screen.lines[:3] == ["日本 ok", "⚠\ufe0f sign and e\u0301 mark", "xy|"]
        assert [(cell.text, cell.width) for cell in screen.styled[0][:3]] == [("日", 2), ("本", 2), (" ", 1)]


async def test_wide_character_that_does_not_fit_wraps() -> None:
    async with shown("123456789日", columns=10) as screen:
        assert screen.lines[:2] == ["123456789", "日"]


@pytest.mark.parametrize(
    "sequence",
    [
        "\x1b[>1u", "\x1b[<u", "\x1b[=5;1u", "\x1b[?u", "\x1b[>4;2m", "\x1b[?2026h", "\x1b[?2026$p",
        "\x1b[4:3m\x1b[24m", "\x1b[2 q", "\x1b[!p", "\x1bP+q544e\x1b\\", "\x1b_Ga=q;AAAA\x1b\\",
        "\x1b]8;;file:///x\x1b\\", "\x1b]11;?\x07",
        "\x1b]133;A\x07", "\x1b(B", "\x1b=", "\x1b[58:2::1:2:3m", "\x1b[?1004h\x1b[?1004l",
        "\x1b[22;0;0t", "\x1b[?7727l", "\x1b[?3h", "\x1b[7J\x1b[7K", "\x01", "\x1b[1;2A", "\x1b[?2J", "\x1b[1:2d",
    ],
)  # fmt: skip
async def test_invisible_sequences_leave_no_output(sequence: str) -> None:
    async with shown(f"before {sequence}behind") as screen:
        assert screen.text == "before behind"
        assert not any(cell.underlined or cell.bold for cell in screen.styled[0])


async def test_sequence_split_between_writes_is_recognised() -> None:
    script = """
        import sys
        for piece in ["a\\x1b", "[3", "1mb\\x1b]0;ti", "tle\\x1b", "\\\\c"]:
            print(piece, end="", flush=True)
            input()
    """
    async with python(f"import os; os.system('stty -echo -icrnl')\n{dedent(script)}") as screen:
        for expected in ["a", "a", "ab", "ab", "abc"]:
            await screen.wait_for(expected)
            await screen.press("c-j")
        assert await screen.exit_code() == 0
        assert screen.text == "abc"
        assert screen.title == "title"
        assert screen.styled[0][1].colour == "red"


async def test_terminal_answers_status_queries() -> None:
    async with python(KEYS_READ.format(setup="\r\n\x1b[c\x1b[>c\x1b[5n\x1b[6n\x1b[?6n")) as screen:
        await screen.wait_for("ready")
        await screen.wait_until(lambda: r"\x1b[?2;1R" in screen.text.replace("\n", ""))
        answers = screen.text
        for answer in [r"\x1b[?6c", r"\x1b[>0;0;0c", r"\x1b[0n", r"\x1b[2;1R"]:
            assert answer in answers


async def test_colours_and_styles_are_recorded() -> None:
    output = (
        "\x1b[1mb\x1b[0;2md\x1b[22mp\x1b[3mi\x1b[0;4mu\x1b[0;9ms\x1b[0;7mr\x1b[0;33my\x1b[38;5;2mg\x1b[48;2;1;2;3mt"
    )
    async with shown(output + "\x1b[0;2;38:2::255:0:16mc") as screen:
        bold, dim, plain, italic, underlined, struck, reverse, yellow, green, true, colon = screen.styled[0][:11]
        assert (bold.bold, bold.dim, dim.bold, dim.dim) == (True, False, False, True)
        assert plain == type(plain)("p")
        assert (italic.italic, underlined.underlined, struck.struck, reverse.reversed) == (True,) * 4
        assert (yellow.colour, green.colour, true.background) == ("yellow", "00cd00", "010203")
        assert (colon.colour, colon.dim) == ("ff0010", True)


async def test_underline_colour_changes_nothing_else() -> None:
    async with shown("\x1b[1;31m\x1b[58;5;2mx") as screen:
        assert (screen.styled[0][0].bold, screen.styled[0][0].colour) == (True, "red")


async def test_erasing_leaves_no_underlined_blanks() -> None:
    async with shown("text\x1b[4m\x1b[K\r\x1b[2Kx") as screen:
        assert screen.text == "x"
        assert not any(cell.underlined for cell in screen.styled[0][1:])


async def test_saved_cursor_can_be_restored_repeatedly() -> None:
    async with shown("ab\x1b7 one\x1b8 two\x1b[5;5H\x1b8 six") as screen:
        assert screen.text == "ab six"


async def test_reset_clears_screen_and_styles() -> None:
    async with shown("old\x1b[?1049h\x1b[31mother\x1bcnew") as screen:
        assert screen.text == "new"
        assert screen.styled[0][0].colour == "default"


async def test_alternate_screen_leaves_no_trace() -> None:
    async with shown(
        "before\r\n\x1b[?1049h\x1b[2J\x1b[Hpage" + "\r\nline" * 50 + "\x1b[?1049lbehind", rows=10
    ) as screen:
        assert screen.scrollback[:3] == ["before", "behind", ""]


async def test_a_wait_that_times_out_shows_the_screen() -> None:
    async with shell("echo there; exec cat") as screen:
        await screen.wait_for("there")
        with pytest.raises(AssertionError, match=r"(?s)did not show 'elsewhere' within 0.05 s.*is running.*│there"):
            await screen.wait_for("elsewhere", seconds=0.05)
        with pytest.raises(AssertionError, match="the program's end within"):
            await screen.exit_code(seconds=0.05)


async def test_wait_fails_if_the_program_has_ended() -> None:
    async with shell("echo last words; exit 4") as screen:
        with pytest.raises(AssertionError, match=r"(?s)ended with exit code 4.*last words"):
            await screen.wait_for("more")
        await screen.wait_for("last words")


async def test_an_end_by_a_signal_is_a_negative_exit_code() -> None:
    async with open_screen(["cat"], env=ENV) as screen:
        screen.kill()
        assert await screen.exit_code() == -signal.SIGKILL
        screen.kill()


async def test_missing_program_is_reported() -> None:
    async with open_screen(["no-such-program"], env=ENV) as screen:
        assert await screen.exit_code() == 127
        assert "not found" in screen.text


async def test_end_of_the_block_kills_a_stubborn_program() -> None:
    async with shell("trap '' TERM HUP; echo stubborn; while :; do sleep 0.05; done") as screen:
        await screen.wait_for("stubborn")
        pid = screen.process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_program_runs_in_the_given_folder(tmp_path: Path) -> None:
    async with open_screen(["pwd"], env=ENV, cwd=tmp_path) as screen:
        assert await screen.exit_code() == 0
        assert screen.text.replace("\n", "") == str(tmp_path)
