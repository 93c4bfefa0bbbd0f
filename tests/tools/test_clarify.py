"""Clarify tool: questions to the person."""

from pathlib import Path

from tests.tools.tool_calls import ScriptedPerson, call_from

from talaria.contracts.tool import Tool
from talaria.tools.send.tool import Clarify, ClarifyArguments


async def test_answer_of_the_person_is_returned_to_the_model(tmp_path: Path) -> None:
    tool: Tool = Clarify()
    person = ScriptedPerson("blue")
    arguments = ClarifyArguments("Which colour? ", [" red", "blue", "", "red"])
    assert (await tool.run(arguments, call_from(tmp_path, person=person))).text == "The person answered: blue"
    assert person.questions == [("Which colour?", ("red", "blue"))]
    assert tool.proposed_action(arguments).target == "Which colour? "


async def test_unanswered_question_leaves_the_decision_to_the_model(tmp_path: Path) -> None:
    output = await Clarify().run(ClarifyArguments("Go on?"), call_from(tmp_path, person=ScriptedPerson(None)))
    assert output.text.startswith("No answer in time. Choose the safer option yourself")
