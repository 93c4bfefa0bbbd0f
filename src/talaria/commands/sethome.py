"""`/sethome`: make this chat the one in which the agent reaches its owner."""

from msgspec import structs

from talaria.commands.command import Command, Errand
from talaria.commands.markdown import plain
from talaria.core.errors import Refused
from talaria.sessions.homes import Home, write_home


async def run(errand: Errand) -> None:
    """Keep the address of this chat as the home channel of its network."""
    address = errand.place.address
    if address is None:
        raise Refused("This place has no address at which I could reach you.")
    # In a group a conversation may be that of one person: what comes here is to be found by whoever made it their home.
    whose = address if address.chat_type == "private" else structs.replace(address, user_id=errand.author.id)
    home = Home(whose, errand.words)
    await errand.seat.store.write(lambda tx: write_home(tx, home))
    named = f", *{plain(errand.words)}*," if errand.words else ""
    errand.place.show(
        f"This chat{named} is now my home on {address.platform}: what has no other place to go comes here,"
        f" and `/handoff {address.platform}` in the terminal too."
    )


COMMAND = Command(
    name="sethome",
    category="Session",
    help="Make this chat the one in which I reach you.",
    hint="[name]",
    where="chat",
    who="owner",
    run=run,
)
