"""Texts about handoffs for the agent and for people."""

from talaria.handoff.handoff import RefusalCode

ARRIVAL_PROMPT = (
    "This is not from the person: they have moved this conversation here, to {platform}, from where it was before. You"
    " have all of it. Say in one or two sentences where things stand, and go on when they write."
)
ARRIVED = "This conversation goes on here now."
ARRIVED_MID_TURN = "This conversation goes on here now, in the middle of a turn."
UNTITLED = "A conversation"
NO_HOME_CHAT = "{platform} has no home chat (`{sethome}` in a chat there makes it one)"
DELETED = "the conversation was deleted"
TIMED_OUT = "no gateway finished it within {seconds:g} s"
HERE_NOW = (
    "This conversation has moved to {where}.\n\nTo come back, run `talaria chat -r {session_id}` in a shell, or"
    " send `/resume {session_id}` in a chat."
)
REFUSALS = {
    RefusalCode.NO_NETWORK: "No chat network is set up: `talaria setup chat` asks for what one needs.",
    RefusalCode.NOT_CONFIGURED: "{platform} isn't set up yet. Run `talaria setup chat`.",
    RefusalCode.TURN_RUNNING: ("A turn is running. Wait until it ends, stop it, or use `--now` to move it along."),
    RefusalCode.NO_GATEWAY: "No gateway is running. Start one with `talaria gateway start`.",
    RefusalCode.IN_PROGRESS: ("This conversation is being handed over already. Wait for that to end, or cancel it."),
}
"""Message for each refusal; those about the target use the error of its lookup instead."""
