"""`from talaria import Agent, tool` in separate programs, with a scripted model behind a socket."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from tests.app import warm_program
from tests.app.program import Outcome, Program

from talaria.testing.model_server import Ask, ModelServer, Say, bad_key

FIVE_LINES = """
from talaria import Agent
def price(fruit: str, kilos: float = 1.0) -> dict[str, float]:
    return {fruit: 2.5 * kilos}
agent = Agent(tools=[price])
print(agent.run("What do three kilos of apples cost?"))
"""


@pytest.fixture
def program(tmp_path: Path, server: ModelServer) -> Program:
    """A home that uses the scripted model."""
    folder = tmp_path / "profiles" / "default"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{server.url}/v1"\n'
    )
    return Program(tmp_path)


async def test_five_line_program_runs_a_turn_with_a_function_tool(program: Program, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("price", {"fruit": "apples", "kilos": 3})]), Say("7.50."))
    assert await _run(program, FIVE_LINES, is_warm=False) == Outcome(0, "7.50.\n")
    asked, answered = server.received
    assert [offered["function"]["name"] for offered in asked.json["tools"]] == ["price"]
    assert answered.json["messages"][-1]["role"] == "tool"
    assert json.loads(answered.json["messages"][-1]["content"]) == {"apples": 7.5}


async def test_a_function_tool_needs_no_approval(program: Program, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("launch", {})]), Say("It flies."))
    done = await _run(
        program,
        """
        from talaria import Agent
        def launch() -> str:
            print("launched")
            return "up"
        print(Agent(tools=[launch]).run("Go!"))
        """,
    )
    assert done == Outcome(0, "launched\nIt flies.\n")


async def test_questions_in_a_block_share_the_conversation_and_its_prefix(
    program: Program, server: ModelServer
) -> None:
    server.script(Say("Noted."), Say("Blue."), Say("Still blue."))
    done = await _run(
        program,
        """
        import asyncio
        from talaria import Agent
        async def main():
            async with Agent(instructions="You are terse.") as agent:
                for question in ("My colour is blue.", "Which is it?", "And now?"):
                    print(await agent.ask(question))
        asyncio.run(main())
        """,
    )
    assert done == Outcome(0, "Noted.\nBlue.\nStill blue.\n")
    first, second, third = (received.json["messages"] for received in server.received)
    assert "You are terse." in str(first[0]["content"])
    assert (len(first), len(second), len(third)) == (2, 4, 6)
    assert second[: len(first)] == first
    assert third[: len(second)] == second


async def test_listener_gets_events_during_the_turn(program: Program, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("now", {})]), Say("Noon."))
    done = await _run(
        program,
        """
        from talaria import Agent, tool
        from talaria.contracts.tool import Effect
        heard = []
        def now(): return "12:00"
        agent = Agent(tools=[tool(now, effect=Effect.READS)], on_event=lambda event: heard.append(type(event).__name__))
        agent.run("What time is it?")
        print(*dict.fromkeys(heard))
        """,
    )
    assert done.code == 0
    names = done.out.split()
    assert [one for one in names if one in {"ToolCalled", "ToolAnswered", "TextAdded", "TurnAnswered"}] == [
        "ToolCalled",
        "ToolAnswered",
        "TextAdded",
        "TurnAnswered",
    ]


async def test_a_tool_failure_is_reported_to_the_model(program: Program, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("broken", {})]), Say("It is broken."))
    done = await _run(
        program,
        """
        from talaria import Agent, tool
        from talaria.contracts.tool import Effect
        def broken() -> str: raise ValueError("no fuel")
        print(Agent(tools=[tool(broken, effect=Effect.READS)]).run("Try it."))
        """,
    )
    assert (done.code, done.out) == (0, "It is broken.\n")
    assert server.received[1].json["messages"][-1]["role"] == "tool"


async def test_refused_key_is_raised_with_a_sentence(program: Program, server: ModelServer) -> None:
    server.otherwise(bad_key())
    done = await _run(
        program,
        """
        from talaria import Agent
        from talaria.core.errors import TalariaError
        try:
            Agent().run("hi")
        except TalariaError as error:
            print(error)
        """,
    )
    assert done.code == 0
    assert " key" in done.out
    assert done.out.strip().endswith(".")


async def test_unknown_model_is_raised_before_a_request(program: Program, server: ModelServer) -> None:
    done = await _run(
        program,
        """
        from talaria import Agent
        from talaria.core.errors import NotFound
        try:
            Agent("nowhere:any").run("hi")
        except NotFound as error:
            print(error)
        """,
    )
    assert done.code == 0
    assert "nowhere" in done.out
    assert server.received == []


async def test_ask_outside_of_the_block_is_refused(program: Program) -> None:
    done = await _run(
        program,
        """
        import asyncio
        from talaria import Agent
        from talaria.core.errors import Refused
        try:
            asyncio.run(Agent().ask("hi"))
        except Refused as error:
            print(error)
        """,
    )
    assert "async with" in done.out


async def test_agent_has_no_tools_by_default_and_the_usual_tools_on_request(
    program: Program, server: ModelServer
) -> None:
    server.otherwise(Say("Done."))
    script = """
        from talaria import Agent
        Agent().run("hi")
        Agent(tools=None).run("hi")
        """
    assert (await _run(program, script)).code == 0
    without, with_usual = (received.json for received in server.received)
    assert not without.get("tools")
    assert {"read_file", "terminal", "memory"} <= {offered["function"]["name"] for offered in with_usual["tools"]}


async def test_conversation_is_stored_as_a_session(program: Program, server: ModelServer) -> None:
    server.script(Say("Hello."))
    assert (await _run(program, 'from talaria import Agent; Agent().run("hi")')).code == 0
    listed = await asyncio.to_thread(program.run, "sessions", "list", "--source", "python", "--json")
    assert [session["source"] for session in json.loads(listed.out)] == ["python"]


async def test_importing_talaria_loads_no_other_module(program: Program) -> None:
    script = 'import sys, talaria; print(*(n for n in sys.modules if n.startswith("talaria")))'
    assert (await _run(program, script, is_warm=False)).out.split() == ["talaria"]


async def _run(program: Program, script: str, *, is_warm: bool = True) -> Outcome:
    """Run a program in an interpreter of its own; one that ``is_warm`` has imported the modules of Talaria already."""

    def run() -> Outcome:
        if is_warm:
            arguments = [dedent(script)]
            return Outcome(
                *warm_program.run(
                    arguments, env=program.environment(), cwd=program.home, module="tests.app.python_program"
                )
            )
        done = subprocess.run(
            [sys.executable, "-c", dedent(script)],
            env=program.environment(),
            cwd=program.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return await asyncio.to_thread(run)
