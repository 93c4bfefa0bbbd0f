from pathlib import Path

import pytest
from tests.app.program import Program

ESCAPE = "\x1b"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    for name in ("default", "work", "play"):
        (tmp_path / "profiles" / name).mkdir(parents=True)
    return Program(tmp_path)


def configure(program: Program, text: str) -> None:
    (program.home / "profiles" / "default" / "config.toml").write_text(text)


def test_the_profile_is_that_of_the_command_line_then_of_the_environment_then_the_one_in_use(program: Program) -> None:
    chosen = {"TALARIA_PROFILE": "play"}
    program.run("profile", "use", "work")
    assert "profiles/default" in program.run("-p", "default", "config", "path", env=chosen).out
    assert "profiles/play" in program.run("config", "path", env=chosen).out
    assert "profiles/work" in program.run("config", "path").out
    assert "profiles/work" in program.run("config", "path", env={"TALARIA_PROFILE": ""}).out


def test_a_terminal_is_coloured_unless_disabled(program: Program) -> None:
    assert ESCAPE in program.run_on_terminal("profile", "list").out
    assert ESCAPE not in program.run_on_terminal("profile", "list", env={"NO_COLOR": "1"}).out
    assert ESCAPE not in program.run_on_terminal("profile", "list", "--color", "never").out
    assert ESCAPE in program.run_on_terminal("--color=always", "profile", "list", env={"NO_COLOR": "1"}).out


def test_the_settings_decide_about_colour_too(program: Program) -> None:
    configure(program, '[cli]\ncolor = "never"\n')
    assert ESCAPE not in program.run_on_terminal("profile", "list").out
    assert ESCAPE in program.run_on_terminal("profile", "list", "--color", "always").out


def test_settings_that_cannot_be_read_do_not_keep_a_command_from_speaking(program: Program) -> None:
    configure(program, "[cli\n")
    listed = program.run("profile", "list")
    assert (listed.code, listed.err) == (0, "")
    assert "work" in listed.out


def test_faulty_settings_are_a_sentence_where_they_matter(program: Program) -> None:
    configure(program, '[cli]\ncolour = "never"\n')
    refused = program.run("completion", "--values", "sessions")
    assert refused.code == 1
    assert refused.err.startswith("talaria: ")
    assert "color" in refused.err


def test_text_that_the_streams_cannot_encode_is_shown_as_escapes(program: Program) -> None:
    elsewhere = Program(program.home / "東京")
    shown = elsewhere.run("profile", "list", env={"PYTHONIOENCODING": "ascii"})
    assert (shown.code, shown.err) == (0, "")
    assert "\\u6771" in shown.out
