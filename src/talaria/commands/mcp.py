"""Slash command `/mcp`, and the prompts of MCP servers as commands of their own."""

import re
from collections.abc import Mapping, Sequence
from functools import partial

from talaria.commands.arguments import escape_markdown, split_arguments, truncate
from talaria.commands.command import Command, CommandContext
from talaria.contracts.mcp import ServerPrompt, ServerState, SessionServersView
from talaria.core.errors import Refused
from talaria.runtime.active_session import ActiveSession

RELOAD = "reload"
_HELP_LENGTH = 80
_PROBLEM_LENGTH = 200
_TOOLS_SHOWN = 12
_USAGE = "Use `/mcp` to list the servers, `/mcp NAME` for one of them, or `/mcp reload [NAME …]` to reconnect."
_NONE = "This conversation has no MCP servers. `talaria mcp add` adds one, and `/mcp reload` connects to it from here."


async def run_mcp(context: CommandContext) -> None:
    """Show the MCP servers of this conversation, or reconnect them."""
    action, *names = split_arguments(context.arguments) or [""]
    servers = _get_servers(context.active_session)
    if servers is None:
        raise Refused("This conversation can't use MCP servers.")
    if action == RELOAD:
        if context.active_session.busy:
            raise Refused("A turn is running. Stop it with `/stop` first, then reload the servers.")
        await servers.reload(names)
    states = servers.states()
    if action and action != RELOAD:
        found = [one for one in states if one.name == action]
        if not found or names:
            unknown = f"This conversation has no MCP server `{action}`. " if not names else ""
            raise Refused(f"{unknown}{_USAGE}")
        context.surface.show(_describe_server(found[0]))
        return
    lines = [_describe_line(one) for one in states]
    context.surface.show("\n".join(lines) or _NONE)


async def offer_mcp_choices(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the servers, and the argument that reconnects them."""
    servers = _get_servers(context.active_session)
    states = servers.states() if servers is not None else ()
    return [(RELOAD, "reconnect all servers"), *((one.name, one.condition) for one in states)]


MCP = Command(
    name="mcp",
    category="Abilities",
    help="List the MCP servers and their tools, or reconnect them.",
    hint="[name | reload [name …]]",
    who="owner",
    aliases=("reload-mcp",),
    run=run_mcp,
    offers=offer_mcp_choices,
)


def list_prompt_commands(active_session: ActiveSession) -> tuple[Command, ...]:
    """Return a command for each prompt of the session's MCP servers: `/SERVER:PROMPT`."""
    servers = _get_servers(active_session)
    if servers is None:
        return ()
    return tuple(
        Command(
            name=build_command_name(prompt),
            category="Your own",
            help=truncate(_join_lines(prompt.description) or f"A prompt of {prompt.server}.", _HELP_LENGTH),
            hint=" ".join(f"<{one.name}>" if one.required else f"[{one.name}]" for one in prompt.arguments),
            who="owner",
            run=partial(_send_prompt, prompt),
        )
        for prompt in servers.prompts()
    )


def build_command_name(prompt: ServerPrompt) -> str:
    """Return the name of a prompt's command; characters that a command can't have become dashes."""
    return re.sub(r"[^a-z0-9_:.-]", "-", f"{prompt.server}:{prompt.name}".lower())


async def _send_prompt(prompt: ServerPrompt, context: CommandContext) -> None:
    servers = _get_servers(context.active_session)
    assert servers is not None, "the command was made from its prompts"
    parts = await servers.get_prompt(prompt.server, prompt.name, read_prompt_arguments(prompt, context.arguments))
    if not parts:
        raise Refused(f"The prompt `{prompt.name}` of {prompt.server} is empty.")
    await context.active_session.put(*parts, sender=context.sender)


def read_prompt_arguments(prompt: ServerPrompt, text: str) -> Mapping[str, str]:
    """Return the arguments of a prompt: ``name=value``, or values in order; the last one takes the rest.

    Raises `Refused` with the usage if one is missing or unknown.
    """
    names = [one.name for one in prompt.arguments]
    given: dict[str, str] = {}
    rest: list[str] = []
    for word in split_arguments(text):
        name, equals, value = word.partition("=")
        if equals and name in names:
            given[name] = value
        else:
            rest.append(word)
    free = [name for name in names if name not in given]
    if rest and not free:
        raise Refused(f"`{rest[0]}` is too much. {_describe_usage(prompt)}")
    if len(rest) > len(free):
        rest = [*rest[: len(free) - 1], " ".join(rest[len(free) - 1 :])]
    given |= zip(free, rest, strict=False)
    missing = [one.name for one in prompt.arguments if one.required and one.name not in given]
    if missing:
        raise Refused(f"`{missing[0]}` is missing. {_describe_usage(prompt)}")
    return given


def _describe_usage(prompt: ServerPrompt) -> str:
    arguments = [f"<{one.name}>" if one.required else f"[{one.name}]" for one in prompt.arguments]
    return f"Use `/{' '.join([build_command_name(prompt), *arguments])}`, or `name=value`."


def _get_servers(active_session: ActiveSession) -> SessionServersView | None:
    return active_session.chat.servers if active_session.is_open else None


def _describe_line(state: ServerState) -> str:
    if state.condition == "off":
        return f"- **{state.name}** (off)"
    if state.condition == "disconnected":
        return f"- **{state.name}** isn't connected: {_escape_foreign_text(state.problem)}."
    return f"- **{state.name}**: {_describe_counts(state)}"


def _describe_server(state: ServerState) -> str:
    prompts = [f"- `/{build_command_name(one)}` {_escape_foreign_text(one.description)}" for one in state.prompts]
    tools = [f"- `{one.name}` {_escape_foreign_text(one.description)}" for one in state.tools[:_TOOLS_SHOWN]]
    more = len(state.tools) - _TOOLS_SHOWN
    return "\n".join([_describe_line(state), *tools, *([f"- and {more} more tools"] if more > 0 else []), *prompts])


def _describe_counts(state: ServerState) -> str:
    counts = ((len(state.tools), "tool"), (state.resources, "resource"), (len(state.prompts), "prompt"))
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts if count) or "nothing"


def _escape_foreign_text(text: str) -> str:
    return escape_markdown(truncate(_join_lines(text).rstrip("."), _PROBLEM_LENGTH))


def _join_lines(text: str) -> str:
    return " ".join(text.split())
