"""`/start`: greet a person who opens a chat with the agent."""

from talaria.commands.command import Command, Errand

_GREETING = "Hi{name}! Write what you need, in your own words. `/help` lists the commands, `/new` starts over."


async def run(errand: Errand) -> None:
    """Say hello and what to do; nothing is started, stopped or restarted."""
    name = f", {errand.author.name}" if errand.author.name else ""
    errand.place.show(_GREETING.format(name=name))


COMMAND = Command(
    name="start",
    category="Program",
    help="Say hello and what you can do here.",
    where="chat",
    run=run,
    reads=True,
)
