"""Settings of chats: the gateway, who may speak, who is who, and when a conversation begins anew.

Somebody is written as ``platform:id``, such as ``telegram:12345``, or by the name that ``people`` gives them.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from talaria.settings.checks import are_access_rules, are_ids, are_names, are_tool_names

_NAMES = {"live": True, "check": are_names, "expected": "a list, each item PLATFORM:ID or a name of people"}
_CHATS = {"live": True, "check": are_ids, "expected": "a list, each item PLATFORM:ID"}
_TOOLS = {"live": True, "check": are_tool_names, "expected": "a list of names of tools or of groups of them"}
# None of them writes files or runs anything; what they read is held to the folder of the conversation.
GUEST_TOOLS = ("web", "memory", "planning", "vision", "read_file", "list_files", "search_files")
_LIVE: dict[str, Any] = {"live": True}


class Access(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may speak to the agent in chats: nobody, unless these say so or the owner has let them in."""

    owners: Annotated[
        tuple[str, ...],
        Meta(description="Whose agent this is; what is remembered in the terminal is theirs.", extra=_NAMES),
    ] = ()
    allowed: Annotated[tuple[str, ...], Meta(description="People who may speak to it.", extra=_NAMES)] = ()
    chats: Annotated[
        tuple[str, ...], Meta(description="Groups and channels in which everybody may speak to it.", extra=_CHATS)
    ] = ()
    blocked: Annotated[
        tuple[str, ...], Meta(description="People who get no answer, whatever else is said here.", extra=_NAMES)
    ] = ()
    pairing: Annotated[
        bool,
        Meta(
            description="Whether strangers get a code in a private chat, with which you can let them in.", extra=_LIVE
        ),
    ] = True
    everyone: Annotated[
        bool, Meta(description="Whether everybody may speak to it, strangers too: you pay for them.", extra=_LIVE)
    ] = False
    guest_tools: Annotated[
        tuple[str, ...],
        Meta(
            description="The tools in conversations that are not yours: names of tools, groups of them, or `mcp`.",
            extra=_TOOLS,
        ),
    ] = GUEST_TOOLS
    slash_access: Annotated[
        dict[str, tuple[str, ...]],
        Meta(
            description="Who may use a command, by its name: `owner`, `allowed` (whoever may speak), or somebody.",
            extra={
                "live": True,
                "check": are_access_rules,
                "expected": "a table of lists, each item owner, allowed, PLATFORM:ID or a name of people",
            },
        ),
    ] = {}


class Gateway(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The long-running process that serves chat networks."""

    busy: Annotated[
        Literal["queue", "steer", "interrupt"],
        Meta(
            description="What becomes of a message that comes during a turn: it waits, joins the turn, or stops it.",
            extra=_LIVE,
        ),
    ] = "queue"
    folder: Annotated[
        str, Meta(description="The folder in which the agent works for chats; empty means one of the profile's own.")
    ] = ""
    lease_seconds: Annotated[
        float, Meta(ge=0.5, le=600, description="How long a worker that says nothing still owns what it works on.")
    ] = 15.0
    drain_seconds: Annotated[
        float, Meta(ge=0, le=3600, description="How many seconds running turns get to finish when the gateway stops.")
    ] = 30.0
    rooms: Annotated[int, Meta(ge=1, le=100_000, description="How many conversations are kept open at once.")] = 128
    idle_seconds: Annotated[float, Meta(ge=1, description="How long an idle conversation is kept open.")] = 3600.0
    reply_characters: Annotated[
        int,
        Meta(
            ge=1_000,
            le=1_000_000,
            description="How many characters of a reply a chat shows; a longer one is cut and attached as a file.",
            extra=_LIVE,
        ),
    ] = 200_000
    port: Annotated[
        int,
        Meta(ge=0, le=65_535, description="The port on loopback for health and metrics; 0 means any that is free."),
    ] = 0


class ChatNetwork(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One chat network: who may speak there, and how its conversations are cut."""

    enabled: Annotated[
        bool, Meta(description="Whether a gateway serves it; one of ours also needs its tokens (`talaria setup`).")
    ] = True
    options: Annotated[
        dict[str, str], Meta(description="More options of its adapter; the page about the network lists them.")
    ] = {}
    allowed: Annotated[
        tuple[str, ...], Meta(description="People of this network who may speak, by their ids there.", extra=_LIVE)
    ] = ()
    chats: Annotated[
        tuple[str, ...],
        Meta(description="Groups and channels of it in which everybody may speak, by their ids.", extra=_LIVE),
    ] = ()
    everyone: Annotated[
        bool, Meta(description="Whether everybody on it may speak, strangers too: you pay for them.", extra=_LIVE)
    ] = False
    prompts: Annotated[
        dict[str, str],
        Meta(
            description="More instructions for a chat or thread, by its id; used from its next conversation on.",
            extra=_LIVE,
        ),
    ] = {}
    progress: Annotated[
        Literal["off", "new", "all", "verbose"],
        Meta(
            description="Which tool calls are shown: none, the first of a kind, all, or all with their output.",
            extra=_LIVE,
        ),
    ] = "all"
    reasoning: Annotated[bool, Meta(description="Whether what the model thinks is shown.", extra=_LIVE)] = False
    streaming: Annotated[
        bool, Meta(description="Whether replies are streamed, where messages can be edited.", extra=_LIVE)
    ] = True
    footer: Annotated[
        bool,
        Meta(description="Whether a line below each reply shows model, context, folder and cost.", extra=_LIVE),
    ] = False
    reactions: Annotated[
        bool,
        Meta(description="Whether a message gets a reaction while it is being processed, where possible.", extra=_LIVE),
    ] = False
    group_sessions_per_user: Annotated[
        bool, Meta(description="Whether each person in a group has a conversation of their own.", extra=_LIVE)
    ] = True
    thread_sessions_per_user: Annotated[
        bool, Meta(description="Whether each person in a thread has a conversation of their own.", extra=_LIVE)
    ] = False
    reset: Annotated[
        Literal["never", "idle", "daily", "both"],
        Meta(description="When a new conversation starts: after a pause, at an hour of the day, or both.", extra=_LIVE),
    ] = "never"
    reset_idle_minutes: Annotated[
        int, Meta(ge=1, le=525_600, description="How many minutes of silence are such a pause.", extra=_LIVE)
    ] = 1440
    reset_hour: Annotated[
        int, Meta(ge=0, le=23, description="The hour of the day, in the zone of cli.time_zone.", extra=_LIVE)
    ] = 4


class Person(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody with several ids: memory and conversations are theirs, whichever they write from."""

    ids: Annotated[tuple[str, ...], Meta(description="Every id of theirs.", extra=_CHATS)] = ()
