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


def test_the_version_is_reported(program: Program) -> None:
    assert program.run("--version").out == f"talaria {__version__}\n"
    assert program.run("-V").out == f"talaria {__version__}\n"
    assert program.run("--debug", "--version").out == f"talaria {__version__}\n"


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], ["help"], ["--color", "never", "--help"], ["-p", "work", "help"]]
)
def test_help_lists_every_command_and_where_to_read_on(program: Program, words: list[str]) -> None:
    told = program.run(*words)
    assert told.code == 0
    for subcommand in SUBCOMMANDS:
        assert f"  {subcommand.name} " in told.out
        assert subcommand.summary in told.out
    for name in (
        "talaria help COMMAND",
        "talaria completion",
        "TALARIA_HOME",
        "TALARIA_PROFILE",
        "NO_COLOR",
        "--debug",
    ):
        assert name in told.out


def test_help_fits_a_terminal_of_eighty_columns(program: Program) -> None:
    assert max(map(len, program.run("--help").out.splitlines())) < 80


def test_help_of_a_command_is_the_same_both_ways(program: Program) -> None:
    asked = program.run("help", "completion")
    assert asked == program.run("completion", "--help")
    assert "usage: talaria completion" in asked.out
    assert asked.code == 0


@pytest.mark.parametrize("words", [["compltion"], ["help", "compltion"], ["--debug", "compltion", "bash"]])
def test_an_unknown_command_names_the_nearest_one(program: Program, words: list[str]) -> None:
    refused = program.run(*words)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "talaria: There is no command `compltion`. Did you mean `talaria completion`?\n"


def test_an_unknown_command_like_no_other_points_to_help_and_chat(program: Program) -> None:
    refused = program.run("xyzzy").err
    assert "`talaria help` lists" in refused
    assert "`talaria chat xyzzy`" in refused


@pytest.mark.parametrize("command", ["sessions", "profile", "channels", "api-keys", "hooks", "pairing", "cron"])
def test_command_without_an_action_lists(program: Program, command: str) -> None:
    assert program.run(command, "--json") == program.run(command, "list", "--json")
    assert program.run(command, "-p", "default") == program.run(command, "list")
    assert program.run(command).code == 0


def test_absurd_suggestions_are_not_made(program: Program) -> None:
    for key in ("nothing.here", "foo"):
        assert program.run("config", "get", key).err == (
            f"talaria: `{key}` is not a known key; `talaria config show` lists them.\n"
        )


def test_help_of_every_command_is_a_sentence_of_its_own_with_common_options_in_one_line(program: Program) -> None:
    for entry in SUBCOMMANDS:
        shown = program.run(entry.name, "--help").out
        assert f"\n{entry.summary}.\n" in shown
        assert shown.count("--profile") == 1


@pytest.mark.parametrize(
    ("words", "sentence", "topic"),
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
def test_misuse_is_answered_with_a_sentence(program: Program, words: list[str], sentence: str, topic: str) -> None:
    refused = program.run(*words)
    assert (refused.code, refused.out) == (2, "")
    assert sentence in refused.err
    assert f"See `{topic}`." in refused.err


@pytest.mark.parametrize(
    "words",
    [
        ["-p", "wrok", "completion", "--values", "sessions"],
        ["completion", "-p", "wrok", "--values", "sessions"],
        ["completion", "--values", "sessions", "--profile=wrok"],
    ],
)
def test_a_profile_is_named_before_or_after_the_command(program: Program, words: list[str]) -> None:
    (program.home / "profiles" / "work").mkdir(parents=True)
    refused = program.run(*words)
    assert refused.code == 1
    assert refused.err.startswith("talaria: ")
    assert "`work`" in refused.err
    assert "talaria profile create wrok" in refused.err


def test_the_environment_names_a_profile_where_the_command_line_does_not(program: Program) -> None:
    assert "nowhere" in program.run("completion", "--values", "sessions", env={"TALARIA_PROFILE": "nowhere"}).err
    both = program.run("-p", "elsewhere", "completion", "--values", "sessions", env={"TALARIA_PROFILE": "nowhere"})
    assert "elsewhere" in both.err


def test_main_can_be_called_with_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["completion", "tcsh"]) == 2
    assert capsys.readouterr().out == f"talaria {__version__}\n"


def test_a_reader_that_leaves_early_is_no_error(program: Program) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run(
        [TALARIA, "--help"], env=program.environment(), stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (process.returncode, process.stderr) == (141, b"")


@pytest.mark.parametrize("words", ["--version", "profile list", "profile delete nowhere"])
def test_closed_streams_are_no_reason_to_fail_in_another_way(program: Program, words: str) -> None:
    def code(redirection: str) -> tuple[int, bytes]:
        line = f"exec {TALARIA} {words} {redirection}"
        done = subprocess.run(["sh", "-c", line], env=program.environment(), capture_output=True, check=False)
        return done.returncode, done.stderr

    expected = code("</dev/null >/dev/null")
    assert code("<&- >&-") == expected
    assert code("<&- >&- 2>&-") == (expected[0], b"")


def test_a_full_disk_is_reported_in_a_sentence(program: Program) -> None:
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(
            [TALARIA, "--help"], env=program.environment(), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert process.returncode == 1
    assert process.stderr == b"talaria: The disk is full. Free some space and try again.\n"


def test_an_interrupt_ends_a_command_without_a_traceback(program: Program) -> None:
    profile = program.home / "profiles" / "default"
    profile.mkdir(parents=True)
    settings = profile / "config.toml"
    os.mkfifo(settings)
    process = subprocess.Popen(
        [TALARIA, "completion", "--values", "profiles"], env=program.environment(), stderr=subprocess.PIPE
    )
    with settings.open("wb"):  # succeeds once the program waits at the other end
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
def test_every_failure_becomes_a_sentence(error: Exception, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error(error, debug=False) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"talaria: {sentence}")
    assert told.count("\n") == 1


def test_debug_shows_where_an_error_came_from(program: Program) -> None:
    assert "Traceback" not in program.run("-p", "nowhere", "completion", "--values", "sessions").err
    assert "Traceback" in program.run("-p", "nowhere", "completion", "--values", "sessions", "--debug").err
