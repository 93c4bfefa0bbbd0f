"""Texts about handoffs for the agent and for people."""

from talaria.handoff.handoff import RefusalCode

ARRIVAL_PROMPT = (
    "This message is automatic, not from the person. They have moved this conversation here, to {platform}. You have"
    " its full history. Say in one or two sentences where things stand, and continue when they write."
)
ARRIVED = "This conversation continues here now."
ARRIVED_MID_TURN = "This conversation continues here now, in the middle of a turn."
UNTITLED = "A conversation"
NO_HOME_CHAT = "{platform} has no home chat; send `{sethome}` in the chat you want to use"
DELETED = "the conversation was deleted"
TIMED_OUT = "no gateway finished it within {seconds:g} s"
HERE_NOW = (
    "This conversation has moved to {where}.\n\nTo come back, run `talaria chat -r {session_id}` in a shell, or"
    " send `/resume {session_id}` in a chat."
)
REFUSALS = {
    RefusalCode.NO_NETWORK: "No chat network is set up. Run `talaria setup chat`.",
    RefusalCode.NOT_CONFIGURED: "{platform} isn't set up yet. Run `talaria setup chat`.",
    RefusalCode.TURN_RUNNING: "A turn is running. Wait for it, stop it, or use `--now` to move it too.",
    RefusalCode.NO_GATEWAY: "No gateway is running. Start one with `talaria gateway start`.",
    RefusalCode.IN_PROGRESS: "This conversation is already being handed off. Wait for that to finish, or cancel it.",
}
"""Message for each refusal; those about the target use the error of its lookup instead."""
