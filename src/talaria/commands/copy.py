"""`/copy`: put the last reply, or code in it, into the clipboard."""

from collections.abc import Sequence

from talaria.commands.code_blocks import code_blocks
from talaria.commands.command import Command, Errand
from talaria.commands.screens import screen_of
from talaria.core.errors import NotFound, Refused

CODE = "code"
_LOOK_BACK = 200


async def run(errand: Errand) -> None:
    """Copy the reply, a numbered block of code in it, or the one that is chosen."""
    reply, word = await _last_reply(errand), errand.words.lower()
    if not word:
        copied, what = reply, "The last reply"
    else:
        blocks = code_blocks(reply)
        number = await _chosen(errand, blocks) if word == CODE else _number(word.removeprefix(CODE).strip(), blocks)
        if number is None:
            return
        copied, what = blocks[number], f"Block {number + 1} of {len(blocks)}"
    screen_of(errand).copy(copied)
    errand.place.show(f"{what} is in the clipboard: {len(copied):,} characters.")


async def _last_reply(errand: Errand) -> str:
    session_id = errand.seat.session_id
    stored = await errand.seat.store.read(lambda tx: tx.messages.last(session_id, _LOOK_BACK))
    replies = [one.message.text for one in stored if one.message.role == "assistant" and one.message.text.strip()]
    if not replies:
        raise NotFound("There is no reply to copy yet.")
    return replies[-1].strip()


async def _chosen(errand: Errand, blocks: Sequence[str]) -> int | None:
    if len(blocks) < 2:
        return _number("1", blocks)
    return await errand.place.choose("Which block?", [block.strip().partition("\n")[0] for block in blocks])


def _number(word: str, blocks: Sequence[str]) -> int:
    if not blocks:
        raise NotFound("There is no block of code in the last reply.")
    if not word.isdecimal():
        raise Refused("Type `/copy` for the last reply, `/copy code` or `/copy 2` for a block of code in it.")
    if not 1 <= int(word) <= len(blocks):
        raise NotFound(f"The last reply has no block {word} of code; the last one is {len(blocks)}.")
    return int(word) - 1


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return what can be copied beside the whole reply."""
    return [(CODE, "a block of code in the last reply")]


COMMAND = Command(
    name="copy",
    category="Display",
    help="Put the last reply, or a block of code in it, into the clipboard.",
    hint="[code|number]",
    where="terminal",
    run=run,
    offers=offers,
)
