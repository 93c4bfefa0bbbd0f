"""`/background`: have something seen to beside this conversation, see what goes on there, and stop it."""

from collections.abc import Sequence
from datetime import UTC, datetime

from talaria.commands.command import Command, Errand
from talaria.commands.markdown import plain, shortened
from talaria.contracts.processes import BackgroundProcess, list_processes
from talaria.contracts.store import Transaction
from talaria.core.errors import Refused
from talaria.core.ids import SessionId
from talaria.core.wording import ago, counted
from talaria.sessions.delegation import DELEGATIONS, Delegation, ask_to_stop, in_background

_LONGEST_QUOTE = 60
_STOP = "stop"


async def run(errand: Errand) -> None:
    """See to the words in the background, or list what goes on there, or stop one of that."""
    first, _, rest = errand.words.partition(" ")
    if not errand.words:
        await _list(errand)
    elif first == _STOP and rest and " " not in rest.strip():
        await _stop(errand, rest.strip("` "))
    else:
        await _see_to(errand)


async def _see_to(errand: Errand) -> None:
    delegator = errand.seat.chat.delegator
    if delegator is None:
        raise Refused("Nothing can be seen to in the background here.")
    handle = await delegator.see_to(errand.words)
    errand.place.show(f"I see to it in the background, as `{handle}`, and tell you here when it is done.")


async def _list(errand: Errand) -> None:
    here, now = errand.seat.session_id, datetime.now(UTC)
    delegated, processes = await errand.seat.store.read(lambda tx: _going_on(tx, here))
    lines = [*(_of_tasks(one, now) for one in delegated), *(_of_process(one, now) for one in processes)]
    if not lines:
        errand.place.show(
            "Nothing goes on in the background of this conversation. `/background <text>` has something seen to there."
        )
        return
    errand.place.show("In the background of this conversation:\n\n" + "\n".join(f"- {line}" for line in lines))


async def _stop(errand: Errand, name: str) -> None:
    here, store = errand.seat.session_id, errand.seat.store
    _, processes = await store.read(lambda tx: _going_on(tx, here))
    found = [one for one in processes if one.id == name]
    if found:
        await errand.house.processes.kill(found[0], "person")
    else:
        await store.write(lambda tx: ask_to_stop(tx, here, name))
        await store.hint(DELEGATIONS)
    errand.place.show(f"`{name}` is stopped.")


def _going_on(tx: Transaction, here: SessionId) -> tuple[list[Delegation], list[BackgroundProcess]]:
    processes = [one for one in list_processes(tx, here) if one.is_alive]
    return [one for one in in_background(tx, here) if not one.stopped], processes


def _of_tasks(one: Delegation, now: datetime) -> str:
    goals = [child.task.goal for child in one.children]
    settled = sum(child.state != "open" for child in one.children)
    progress = f", {settled} of {counted(len(goals), 'task')} done" if len(goals) > 1 else ""
    where = next((f", in `{child.session_id}`" for child in one.children if child.session_id), "")
    return (
        f"`{one.handle}`: {plain(shortened(goals[0], _LONGEST_QUOTE))} (begun {ago(one.began, now)}{progress}{where})"
    )


def _of_process(one: BackgroundProcess, now: datetime) -> str:
    return f"`{one.id}`: {plain(shortened(one.command, _LONGEST_QUOTE))} (a process, begun {ago(one.begun_at, now)})"


async def _offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Offer what can be stopped."""
    if not _STOP.startswith(errand.words.partition(" ")[0]):
        return ()
    here = errand.seat.session_id
    delegated, processes = await errand.seat.store.read(lambda tx: _going_on(tx, here))
    tasks = [(f"{_STOP} {one.handle}", shortened(one.children[0].task.goal, _LONGEST_QUOTE)) for one in delegated]
    return [*tasks, *((f"{_STOP} {one.id}", shortened(one.command, _LONGEST_QUOTE)) for one in processes)]


COMMAND = Command(
    name="background",
    category="Session",
    help="Have something seen to beside this conversation; list what goes on there; stop it.",
    hint="[text | stop ID]",
    run=run,
    offers=_offers,
)
