"""Ask the person, where only they can know."""

from typing import Annotated

from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Deed, Effect, ToolOutput

_NOBODY = "Nobody answered in time. Decide yourself, take the safer way, and say what you assumed."


class ClarifyArguments(Struct, frozen=True):
    """The question."""

    question: Annotated[str, Meta(min_length=1)]
    choices: Annotated[list[str], Meta(max_length=8)] = []


class Clarify:
    """Puts one question to the person and waits."""

    name = "clarify"
    description = "Ask the person, when only they can decide."
    effect = Effect.READS
    arguments: type[Struct] = ClarifyArguments

    def deed(self, arguments: ClarifyArguments) -> Deed:
        """Say what is asked."""
        return Deed("other", arguments.question)

    async def run(self, arguments: ClarifyArguments, call: Call) -> ToolOutput:
        """Return the answer, or that there is none."""
        choices = tuple(dict.fromkeys(choice.strip() for choice in arguments.choices if choice.strip()))
        answer = await call.person.ask(arguments.question.strip(), choices)
        return ToolOutput(_NOBODY if answer is None else f"The person answered: {answer}")
