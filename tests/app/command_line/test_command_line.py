import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.app.program import TALARIA, Program

from talaria import __version__
from talaria.app.command_line.errors import report_error
from talaria.app.command_line.subcommands import SUBCOMMANDS
from talaria.app.main import main
from talaria.core.errors import StoreFull, TalariaError


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_version_option_prints_the_version(program: Program) -> None:
    assert program.run("--version").out == f"talaria {__version__}\n"
    assert program.run("-V").out == f"talaria {__version__}\n"
    assert program.run("--debug", "--version").out == f"talaria {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["-h"], ["help"], ["--color", "never", "--help"], ["-p", "work", "help"]]
)
def test_help_lists_every_command_variables_and_further_help(program: Program, arguments: list[str]) -> None:
    shown = program.run(*arguments)
    assert shown.code == 0
    for subcommand in SUBCOMMANDS:
        assert f"  {subcommand.name} " in shown.out
        assert subcommand.summary in shown.out
    for name in (
        "talaria help COMMAND",
        "talaria completion",
        "TALARIA_HOME",
        "TALARIA_PROFILE",
        "NO_COLOR",
        "--debug",
    ):
        assert name in shown.out


def test_help_fits_a_terminal_of_eighty_columns(program: Program) -> None:
    assert max(map(len, program.run("--help").out.splitlines())) < 80


def test_help_command_and_help_option_print_the_same(program: Program) -> None:
    shown = program.run("help", "completion")
    assert shown == program.run("completion", "--help")
    assert "usage: talaria completion" in shown.out
    assert shown.code == 0


@pytest.mark.parametrize("arguments", [["compltion"], ["help", "compltion"], ["--debug", "compltion", "bash"]])
def test_unknown_command_is_answered_with_the_nearest_one(program: Program, arguments: list[str]) -> None:
    refused = program.run(*arguments)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "talaria: There is no command `compltion`. Did you mean `talaria completion`?\n"


def test_unknown_command_without_a_similar_one_points_to_help_and_chat(program: Program) -> None:
    refused = program.run("xyzzy").err
    assert "`talaria help` lists" in refused
    assert "`talaria chat xyzzy`" in refused


@pytest.mark.parametrize("command", ["sessions", "profile", "channels", "api-keys", "hooks", "pairing", "cron"])
def test_command_without_an_action_is_the_same_as_list(program: Program, command: str) -> None:
    assert program.run(command, "--json") == program.run(command, "list", "--json")
    assert program.run(command, "-p", "default") == program.run(command, "list")
    assert program.run(command).code == 0


def test_dissimilar_setting_key_gets_no_suggestion(program: Program) -> None:
    for key in ("nothing.here", "foo"):
        assert program.run("config", "get", key).err == (
            f"talaria: `{key}` is not a known key; `talaria config show` lists them.\n"
        )


def test_help_of_every_command_has_its_summary_and_common_options_once(program: Program) -> None:
    for entry in SUBCOMMANDS:
        shown = program.run(entry.name, "--help").out
        assert f"\n{entry.summary}.\n" in shown
        assert shown.count("--profile") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence", "topic"),
    [
        (["--bogus"], "unrecognized arguments: --bogus.", "talaria help chat"),
        (["-p"], "expected one argument", "talaria help chat"),
        (
            ["completion", "tcsh"],
            "`tcsh` isn't a valid choice for shell. Choose from: bash, ",
            "talaria help completion",
        ),
        (["completion", "--color", "pink"], "Choose from: auto, always, never.", "talaria help completion"),
        (["completion", "bash", "--deb"], "--deb. Did you mean `--debug`?", "talaria help completion"),
        (["--verson"], "--verson. Did you mean `--version`?", "talaria help chat"),
        (["chat", "--modle", "x"], "unrecognized arguments: --modle. Did you mean `--model`?", "talaria help chat"),
        (["sessions", "list", "--limt=3"], "--limt=3. Did you mean `--limit`?", "talaria help sessions"),
        (["sessions", "lst"], "`lst` isn't a valid action. Did you mean `list`?", "talaria help sessions"),
        (["sessions", "zzz"], "`zzz` isn't a valid action. Choose from: list, show, ", "talaria help sessions"),
    ],
)
def test_usage_error_is_explained_in_a_sentence(
    program: Program, arguments: list[str], sentence: str, topic: str
) -> None:
    refused = program.run(*arguments)
    assert (refused.code, refused.out) == (2, "")
    assert sentence in refused.err
    assert f"See `{topic}`." in refused.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["-p", "wrok", "completion", "--values", "sessions"],
        ["completion", "-p", "wrok", "--values", "sessions"],
        ["completion", "--values", "sessions", "--profile=wrok"],
    ],
)
def test_profile_option_is_accepted_before_or_after_the_command(program: Program, arguments: list[str]) -> None:
    (program.home / "profiles" / "work").mkdir(parents=True)
    refused = program.run(*arguments)
    assert refused.code == 1
    assert refused.err.startswith("talaria: ")
    assert "`work`" in refused.err
    assert "talaria profile create wrok" in refused.err


def test_profile_variable_is_used_if_the_command_line_names_none(program: Program) -> None:
    assert "nowhere" in program.run("completion", "--values", "sessions", env={"TALARIA_PROFILE": "nowhere"}).err
    both = program.run("-p", "elsewhere", "completion", "--values", "sessions", env={"TALARIA_PROFILE": "nowhere"})
    assert "elsewhere" in both.err


def test_main_can_be_called_with_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["completion", "tcsh"]) == 2
    assert capsys.readouterr().out == f"talaria {__version__}\n"


def test_closed_pipe_on_stdout_ends_without_an_error_message(program: Program) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run(
        [TALARIA, "--help"], env=program.environment(), stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (process.returncode, process.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", ["--version", "profile list", "profile delete nowhere"])
def test_exit_code_does_not_change_with_closed_standard_streams(program: Program, arguments: str) -> None:
    def code(redirection: str) -> tuple[int, bytes]:
        line = f"exec {TALARIA} {arguments} {redirection}"
        done = subprocess.run(["sh", "-c", line], env=program.environment(), capture_output=True, check=False)
        return done.returncode, done.stderr

    expected = code("</dev/null >/dev/null")
    assert code("<&- >&-") == expected
    assert code("<&- >&- 2>&-") == (expected[0], b"")


def test_full_disk_on_stdout_is_reported_in_a_sentence(program: Program) -> None:
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(
            [TALARIA, "--help"], env=program.environment(), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert process.returncode == 1
    assert process.stderr == b"talaria: The disk is full. Free some space and try again.\n"


def test_interrupt_ends_a_command_without_a_traceback(program: Program) -> None:
    profile = program.home / "profiles" / "default"
    profile.mkdir(parents=True)
    settings = profile / "config.toml"
    os.mkfifo(settings)
    process = subprocess.Popen(
        [TALARIA, "completion", "--values", "profiles"], env=program.environment(), stderr=subprocess.PIPE
    )
    with settings.open("wb"):  # succeeds once the program waits for the file
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert (process.returncode, errors) == (130, b"")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (StoreFull("The disk of the store is full."), "The disk of the store is full."),
        (TalariaError(), "Something went wrong on my side."),
        (
            OSError(28, "No space left on device", "/data/x"),
            "The disk is full at /data/x. Free some space and try again.",
        ),
        (PermissionError(13, "Permission denied", "/data/x"), "Permission denied at /data/x. Check its owner"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused."),
        (ValueError("seven"), "Unexpected error (ValueError: seven). Run it again with --debug"),
    ],
)
def test_every_error_is_reported_in_a_sentence(
    error: Exception, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_error(error, debug=False) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"talaria: {sentence}")
    assert shown.count("\n") == 1


def test_debug_option_shows_the_traceback_of_an_error(program: Program) -> None:
    assert "Traceback" not in program.run("-p", "nowhere", "completion", "--values", "sessions").err
    assert "Traceback" in program.run("-p", "nowhere", "completion", "--values", "sessions", "--debug").err
