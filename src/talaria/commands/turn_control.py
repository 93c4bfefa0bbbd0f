"""Slash commands `/compress`, `/plan`, `/queue`, `/steer` and `/stop`: context and turns of the session."""

from collections.abc import Sequence
from datetime import UTC, datetime

from talaria.agent.context_window import estimate_shown
from talaria.commands.arguments import escape_markdown, truncate
from talaria.commands.command import Command, CommandContext
from talaria.contracts.store import Transaction
from talaria.core.errors import Refused
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text
from talaria.runtime.live.control import StopTurn, send_control_message
from talaria.runtime.live.remote import send_to_session
from talaria.runtime.turns import find_running_sender, list_pending_messages
from talaria.sessions.model_context import read_summary
from talaria.sessions.preferences import PLAN_INSTRUCTIONS, read_plan_mode, start_planning, stop_planning

_PLAN_ACTIONS = {"approve": "carry out the plan", "off": "leave plan mode", "status": "show whether it is on"}
_PLAN_APPROVED = "The plan is approved. Carry it out now."


async def run_compress(context: CommandContext) -> None:
    """Summarise older messages for the model; the transcript keeps them."""
    active_session, session_id = context.active_session, context.active_session.session_id
    before = await active_session.store.read(lambda tx: estimate_context_tokens(tx, session_id))
    if not await active_session.chat.conversation.compact():
        context.surface.show(
            f"Nothing was compressed: the conversation (about {before:,} tokens) is too short to gain anything, or "
            "the model returned no usable summary."
        )
        return
    after = await active_session.store.read(lambda tx: estimate_context_tokens(tx, session_id))
    context.surface.show(
        f"Compressed from about {before:,} to {after:,} tokens. `/history` and `/search` still find everything."
    )


def estimate_context_tokens(tx: Transaction, session_id: SessionId) -> int:
    """Return an estimate of the tokens that the model gets from this session."""
    stored = read_summary(tx, session_id)
    summary = stored.summary if stored else None
    return estimate_shown(tx.messages.load(session_id, after=summary.upto if summary else 0), summary)


COMPRESS = Command(
    name="compress",
    category="Session",
    help="Summarise older messages to free up context.",
    during_turn="refused",
    run=run_compress,
)
_LINE_LIMIT = 100


async def run_queue(context: CommandContext) -> None:
    """Queue a message after those already pending, or list the queue."""
    active_session = context.active_session
    was_busy = active_session.busy
    if context.arguments:
        await active_session.put(Text(context.arguments), sender=context.sender)
        if not was_busy:
            return
    session_id = active_session.session_id
    pending = await active_session.store.read(lambda tx: list_pending_messages(tx, session_id))
    lines = [f"{number}. {_format_message(message)}" for number, message in enumerate(pending, 1)]
    context.surface.show("Queued after the running turn:\n\n" + "\n".join(lines) if lines else "The queue is empty.")


def _format_message(message: Message) -> str:
    return escape_markdown(truncate(" ".join(message.text.split()), _LINE_LIMIT)) or "(an image)"


QUEUE = Command(
    name="queue",
    category="Turn",
    help="Queue a message for after the running turn, or show the queue.",
    hint="[text]",
    run=run_queue,
)


async def run_steer(context: CommandContext) -> None:
    """Add text to the running turn, in any process, or queue it as a message.

    It is queued if no turn is running, or if another person started the running turn.
    """
    if not context.arguments:
        raise Refused("Add the text for the running turn: `/steer use the other branch`.")
    active_session, sender = context.active_session, context.sender
    running = await active_session.store.read(lambda tx: find_running_sender(tx, active_session.session_id))
    if active_session.busy or running is None:
        await active_session.put(Text(context.arguments), sender=sender, steering=True)
    else:
        message = Message(role="user", parts=(Text(context.arguments),), at=datetime.now(UTC))
        await send_to_session(
            active_session.store,
            active_session.session_id,
            message,
            source=active_session.request.surface.source,
            sender=sender,
            steering=True,
        )
    if running is not None and active_session.chat.is_same_person(running, sender):
        context.surface.show("It joins the running turn at its next step.")
    elif running is not None:
        context.surface.show("Someone else's turn is running. Your message gets its own turn right after.")


STEER = Command(
    name="steer",
    category="Turn",
    help="Add a message to the running turn without stopping it.",
    hint="<text>",
    run=run_steer,
)


async def run_stop(context: CommandContext) -> None:
    """Stop the turn, in any process; messages and effects so far are kept."""
    chat = context.active_session.chat
    shell_stopped, is_local = context.application.shell.stop(chat.workspace), chat.conversation.turn is not None
    stopped = chat.conversation.stop()
    if shell_stopped or (is_local and stopped):
        return
    if (
        not await send_control_message(context.active_session.store, context.active_session.session_id, StopTurn())
        and not stopped
    ):
        context.surface.show("Nothing is running.")


STOP = Command(name="stop", category="Turn", help="Stop the running turn; finished steps are kept.", run=run_stop)


async def run_plan(context: CommandContext) -> None:
    """Start planning, with a task or with the next message; or approve the plan, or leave plan mode."""
    store, session_id, task = context.active_session.store, context.active_session.session_id, context.arguments
    if task in _PLAN_ACTIONS:
        plan = await store.read(lambda tx: read_plan_mode(tx, session_id))
        if not plan.is_on:
            context.surface.show("Plan mode is off. `/plan` switches it on, `/plan TASK` starts with a task.")
        elif task == "status":
            context.surface.show("Plan mode is on: I only read until you approve a plan with `/plan approve`.")
        else:
            await store.write(lambda tx: stop_planning(tx, session_id))
            if task == "approve":
                await context.active_session.put(Text(_PLAN_APPROVED), sender=context.sender)
            context.surface.show("Plan approved." if task == "approve" else "Plan mode is off.")
        return
    await store.write(lambda tx: start_planning(tx, session_id, announced=bool(task)))
    if task:
        await context.active_session.put(Text(f"{PLAN_INSTRUCTIONS}\n\n{task}"), sender=context.sender)
        return
    context.surface.show(
        "Plan mode is on: I only read until you approve a plan. I'll ask when I'm ready to start; `/plan approve` "
        "approves at any time, `/plan off` leaves plan mode."
    )


async def offer_plan_actions(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the actions."""
    return list(_PLAN_ACTIONS.items())


PLAN = Command(
    name="plan",
    category="Turn",
    help="Plan first: the agent only reads until you approve its plan.",
    hint="[task|approve|off|status]",
    who="owner",
    run=run_plan,
    offers=offer_plan_actions,
)
