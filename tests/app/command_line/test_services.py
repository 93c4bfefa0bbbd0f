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


def test_profile_is_chosen_by_command_line_then_environment_then_profile_use(program: Program) -> None:
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


def test_colour_setting_is_used_unless_the_command_line_overrides_it(program: Program) -> None:
    configure(program, '[cli]\ncolor = "never"\n')
    assert ESCAPE not in program.run_on_terminal("profile", "list").out
    assert ESCAPE in program.run_on_terminal("profile", "list", "--color", "always").out


def test_profile_list_works_with_unreadable_settings(program: Program) -> None:
    configure(program, "[cli\n")
    listed = program.run("profile", "list")
    assert (listed.code, listed.err) == (0, "")
    assert "work" in listed.out


def test_invalid_settings_are_reported_in_a_sentence_by_commands_that_use_them(program: Program) -> None:
    configure(program, '[cli]\ncolour = "never"\n')
    refused = program.run("completion", "--values", "sessions")
    assert refused.code == 1
    assert refused.err.startswith("talaria: ")
    assert "color" in refused.err


def test_text_that_the_streams_cannot_encode_is_shown_as_escapes(program: Program) -> None:
    other = Program(program.home / "東京")
    shown = other.run("profile", "list", env={"PYTHONIOENCODING": "ascii"})
    assert (shown.code, shown.err) == (0, "")
    assert "\\u6771" in shown.out
