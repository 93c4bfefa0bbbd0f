"""The clarify tool: ask the person a question."""

from typing import Annotated

from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput

_NOBODY = "No answer in time. Choose the safer option yourself, and state what you assumed."


class ClarifyArguments(Struct, frozen=True):
    """The question."""

    question: Annotated[str, Meta(min_length=1)]
    choices: Annotated[list[str], Meta(max_length=8)] = []


class Clarify:
    """Asks the person one question and waits for the answer."""

    name = "clarify"
    description = "Ask the person a question that only they can answer."
    effect = Effect.READS
    arguments: type[Struct] = ClarifyArguments

    def proposed_action(self, arguments: ClarifyArguments) -> ProposedAction:
        """Describe the question."""
        return ProposedAction("other", arguments.question)

    async def run(self, arguments: ClarifyArguments, call: Call) -> ToolOutput:
        """Return the answer, or that there is none."""
        choices = tuple(dict.fromkeys(choice.strip() for choice in arguments.choices if choice.strip()))
        answer = await call.person.ask(arguments.question.strip(), choices)
        return ToolOutput(_NOBODY if answer is None else f"The person answered: {answer}")
