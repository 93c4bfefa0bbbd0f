"""Output of the chat's screen to the terminal."""

from io import StringIO

from talaria.cli.chat.tui.canvas import BufferedOutput


class Tty(StringIO):
    encoding = "utf-8"

    def fileno(self) -> int:
        raise OSError("no terminal")


def test_erasing_from_the_top_does_not_look_like_a_cleared_screen() -> None:
    stream = Tty()
    output = BufferedOutput(stream, "xterm-256color")
    output.erase_down()
    output.flush()
    assert stream.getvalue() == "\x1b[K\x1b[C\x1b[J\x1b[D"
