"""`talaria chat` and bare `talaria` with a single question, with a scripted model."""

import asyncio
import json
import signal
import stat
from pathlib import Path

import pytest
from tests.app import warm_program
from tests.app.program import Outcome, Program
from tests.app.program_with_model import scripted_program
from tests.observability.otlp_collector import Collector, listening

from talaria.testing.model_server import Ask, Fail, ModelServer, Say, bad_key

DANGEROUS = "echo true | sh && touch done"


@pytest.fixture
def program(tmp_path: Path, server: ModelServer) -> Program:
    """Talaria with the scripted model."""
    return scripted_program(tmp_path, server)


async def test_question_is_answered_on_stdout(program: Program, server: ModelServer) -> None:
    server.script(Say("Forty-two."))
    assert await _run(program, "chat", "-q", "What is it?") == Outcome(0, "Forty-two.\n")
    assert server.received[0].question == "What is it?"


async def test_path_of_a_generated_image_is_printed(tmp_path: Path, server: ModelServer) -> None:
    program = scripted_program(tmp_path, server, '[images]\ngenerate = "mine:draws"\n')
    server.script(Say(calls=[Ask("image_generate", {"prompt": "a red fox"})]), Say("Done."))
    done = await _run(program, "chat", "-q", "a fox")
    assert (done.code, done.out) == (0, "Done.\n")
    assert f"·   {program.home / 'work' / 'a-red-fox.png'}" in done.err.splitlines()


async def test_text_from_a_pipe_follows_the_question(program: Program, server: ModelServer) -> None:
    server.script(Say("Looks fine."))
    done = await _run(program, "chat", "-q", "review", typed="+ new line\n")
    assert done.out == "Looks fine.\n"
    assert server.received[0].question == "review\n\n+ new line"


async def test_bare_talaria_answers_its_input(program: Program, server: ModelServer) -> None:
    server.script(Say("Hello."))
    assert (await _run(program, typed="hi\n")).out == "Hello.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["What is it?"],
        ["chat", "What is it?"],
        ["chat", "What", "is", "it?"],
        ["What", "is", "it?"],
        ["-m", "mine:scripted", "What is it?"],
        ["-q", "What is it?"],
        ["What is it?", "--plain"],
    ],
)
async def test_question_may_be_an_argument(program: Program, server: ModelServer, arguments: list[str]) -> None:
    assert (await _run(program, *arguments)).code == 0
    assert server.received[0].question == "What is it?"


@pytest.mark.parametrize(
    ("arguments", "command"), [(["sesions", "list"], "sessions"), (["docter"], "doctor"), (["chta"], "chat")]
)
async def test_misspelt_command_is_not_sent_as_a_question(
    program: Program, server: ModelServer, arguments: list[str], command: str
) -> None:
    refused = await _run(program, *arguments)
    assert (refused.code, f"Did you mean `talaria {command}`?" in refused.err) == (2, True)
    assert not server.received


async def test_files_mentioned_in_a_question_are_attached(program: Program, server: ModelServer) -> None:
    (program.home / "work" / "notes.md").write_text("Buy oak.")
    await _run(program, "What does @notes.md say?", typed="and @other.md")
    question = server.received[0].question
    assert question.startswith("What does @notes.md say?\n\nand @other.md")
    assert "Buy oak." in question


async def test_input_that_is_not_utf8_is_answered(program: Program, server: ModelServer) -> None:
    assert (await _run(program, typed=b"caf\xe9 \x00\xff")).code == 0
    assert server.received[0].question == "caf\ufffd \x00\ufffd"


async def test_input_beyond_the_context_of_the_model_is_refused(program: Program, server: ModelServer) -> None:
    refused = await _run(program, "chat", "-q", "Summarise this", typed="word " * 40_000)
    assert (refused.code, refused.out) == (1, "")
    assert "tokens, but scripted takes only 32,768 in total. Save it to a file and give the path instead" in refused.err
    assert not server.received
    assert (await _run(program, "sessions", "list")).out == ""


async def test_endless_input_is_refused(program: Program) -> None:
    refused = await _run(program, typed=bytes(32_000_001))
    assert refused.err.startswith("talaria: The input is larger than 32 MB. Save it to a file")


async def test_missing_question_is_reported(program: Program) -> None:
    refused = await _run(program, "chat")
    assert refused.code == 1
    assert "No question was given." in refused.err


async def test_json_option_prints_events_as_json_lines(program: Program, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("list_files", {})]), Say("Nothing there."))
    done = await _run(program, "chat", "--json", "-q", "what is here?")
    events = [json.loads(line) for line in done.out.splitlines()]
    kinds = [event["type"] for event in events]
    assert kinds[0] == "opened"
    assert kinds[-1] == "answered"
    assert {"tool_called", "tool_answered", "model_called", "text"} <= set(kinds)


async def test_session_is_resumed_by_id_or_as_the_last_one(program: Program, server: ModelServer) -> None:
    await _run(program, "chat", "-q", "My name is on the door.")
    session = (await _run(program, "sessions", "list")).out.split("\t")[0]
    await _run(program, "chat", "-q", "What did I say?", "--resume", session)
    await _run(program, "chat", "-q", "And before?", "--continue")
    contents = [message["content"] for message in server.received[-1].json["messages"]]
    assert contents[1:] == ["My name is on the door.", "ok", "What did I say?", "ok", "And before?"]


async def test_prompt_prefix_is_the_same_in_another_process(program: Program, server: ModelServer) -> None:
    await _run(program, "chat", "-q", "one")
    await _run(program, "chat", "-q", "two", "--continue")
    first, second = (call.json for call in server.received)
    assert second["messages"][:2] == first["messages"]
    assert second["tools"] == first["tools"]


async def test_failed_turn_is_reported_with_an_exit_code(program: Program, server: ModelServer) -> None:
    server.otherwise(bad_key())
    failed = await _run(program, "chat", "-q", "hi")
    assert (failed.code, failed.out) == (1, "")
    assert failed.err.startswith(f"mine at {server.url}/v1 requires an API key (HTTP 401). ")
    assert "/retry" not in failed.err


async def test_dangerous_commands_do_not_run_without_a_person_to_approve(program: Program, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("terminal", {"command": DANGEROUS})]), Say("I could not."))
    done = await _run(program, "chat", "-q", "clean up")
    assert done.out == "I could not.\n"
    assert not (program.home / "work" / "done").exists()
    assert "nobody was there" in server.received[1].body.decode()


async def test_killed_turn_is_continued_by_the_next_process(program: Program, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("list_files", {})]), Say("slow " * 50, pause=0.1))
    process = await warm_program.start(
        "chat",
        "-q",
        "look around",
        env=program.environment(),
        cwd=program.home / "work",
    )
    await server.arrived(2)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    server.script(Say("All done."), Say("As I said."))
    done = await _run(program, "chat", "-q", "well?", "--continue")
    assert done.out == "All done.\nAs I said.\n"
    roles = [message["role"] for message in server.received[-1].json["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]


async def _run(program: Program, *arguments: str, typed: str | bytes = "") -> Outcome:
    """Run the program in parallel with its server."""
    data = typed if isinstance(typed, bytes) else typed.encode()
    work = program.home / "work"
    return Outcome(
        *await asyncio.to_thread(warm_program.run, arguments, env=program.environment(), cwd=work, typed=data)
    )


async def test_workspace_of_a_session_is_restored_in_another_process(program: Program, server: ModelServer) -> None:
    server.script(
        Say(calls=[Ask("terminal", {"command": "mkdir deep && cd deep && export COLOUR=teal"})]),
        Say("done"),
        Say(calls=[Ask("terminal", {"command": "pwd; echo $COLOUR"})]),
        Say("there"),
    )
    await _run(program, "chat", "-q", "go down")
    await _run(program, "chat", "-q", "where are you?", "--continue")
    answer = server.received[-1].json["messages"][-1]["content"]
    assert "work/deep" in answer
    assert "teal" in answer


async def test_finished_turns_are_exported_to_the_configured_collector(program: Program, server: ModelServer) -> None:
    async with listening(Collector()) as collector:
        await _run(program, "config", "set", "telemetry.endpoint", collector.url)
        await _run(program, "chat", "-q", "hi")
        assert collector.spans


async def test_unknown_session_is_reported(program: Program) -> None:
    refused = await _run(program, "chat", "-q", "hi", "--resume", "nowhere")
    assert refused.code == 1
    assert refused.err == "talaria: There is no such conversation. `talaria sessions list` lists all of them.\n"


async def test_surface_can_have_its_own_toolsets(program: Program, server: ModelServer) -> None:
    await _run(program, "config", "set", "surfaces.cli.toolsets", "planning")
    await _run(program, "chat", "-q", "hi")
    assert {tool["function"]["name"] for tool in server.received[0].json["tools"]} == {"todo", "clarify"}


async def test_log_is_private_and_contains_no_secrets(program: Program, server: ModelServer) -> None:
    server.otherwise(Fail(401, message="no such key: sk-planted-0123456789"))
    await _run(program, "config", "set", "OPENAI_API_KEY", "sk-planted-0123456789")
    failed = await _run(program, "chat", "-q", "hi")
    log = program.home / "profiles" / "default" / "logs" / "talaria.log"
    assert failed.err.count("\n") == 1
    assert "no such key" in log.read_text()
    assert "planted" not in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
