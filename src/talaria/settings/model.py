"""Every setting of Talaria itself: its type, its default, its limits and what it does.

``extra`` tells what a type cannot: ``live`` (a running process takes the change over at once), ``check`` and
``expected`` (a test of the value and its words), ``mask`` (how a value that holds a secret is shown).
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.settings.api import Api
from talaria.settings.chats import Access, ChatNetwork, Gateway, Person
from talaria.settings.checks import (
    is_identifier,
    is_store_url,
    is_time_zone,
    is_web_address,
    mask_header_values,
    mask_password,
)
from talaria.settings.delegation import Delegation
from talaria.settings.media import Media, Voice
from talaria.settings.providers import Embedded, Model, ModelFacts, ProviderAccount
from talaria.settings.schedule import Heartbeat, Schedule

TOOLSETS = ("terminal", "files", "web", "memory", "skills", "planning", "code", "vision", "send", "cron", "delegation")
_SOME_TOOLSETS = {
    "check": lambda names: set(names) <= set(TOOLSETS),
    "expected": f"a list of some of {', '.join(TOOLSETS)}",
}
_LIVE = {"live": True}


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of config.toml; every key has a default."""


class Store(Section, frozen=True):
    """Where conversations are kept."""

    url: Annotated[
        str,
        Meta(
            description="The PostgreSQL database to use; empty means the SQLite file in the profile's folder.",
            extra={
                "check": is_store_url,
                "expected": "empty or an address that begins with postgresql://",
                "mask": mask_password,
            },
        ),
    ] = ""
    schema: Annotated[
        str,
        Meta(
            description="The PostgreSQL schema that holds the tables.",
            extra={
                "check": is_identifier,
                "expected": "a name of at most 63 lower-case letters, digits and underscores, no digit first",
            },
        ),
    ] = "talaria"
    busy_timeout_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="How long to wait while another process writes to the store.")
    ] = 5.0
    readers: Annotated[int, Meta(ge=1, le=16, description="How many SQLite connections of one process only read.")] = 2
    connections: Annotated[
        int, Meta(ge=1, le=64, description="How many PostgreSQL connections one process may open.")
    ] = 4


class Cli(Section, frozen=True):
    """How the terminal shows things."""

    color: Annotated[
        Literal["auto", "always", "never"],
        Meta(description="Whether output is coloured; auto means on a terminal only.", extra=_LIVE),
    ] = "auto"
    time_zone: Annotated[
        str,
        Meta(
            description="The time zone in which times are shown; empty means that of the system.",
            extra={
                "live": True,
                "check": is_time_zone,
                "expected": "empty or the name of a time zone, such as Europe/Berlin",
            },
        ),
    ] = ""

    theme: Annotated[
        Literal["auto", "dark", "light", "mono"],
        Meta(description="The colours of the chat; auto goes by COLORFGBG, else dark; mono has none.", extra=_LIVE),
    ] = "auto"
    plain: Annotated[
        bool,
        Meta(description="Whether the chat is plain lines of text, as for screen readers and dumb terminals."),
    ] = False
    busy: Annotated[
        Literal["queue", "steer", "interrupt"],
        Meta(
            description="What becomes of a message typed while a turn runs: it waits, joins the turn, or stops it.",
            extra=_LIVE,
        ),
    ] = "queue"
    notify: Annotated[
        Literal["off", "bell", "desktop"],
        Meta(
            description="How the chat reports that a turn ended or a question is open while you are away: by the"
            " terminal's bell, or as a desktop notification (OSC 9, where the terminal supports it)."
        ),
    ] = "bell"
    notify_seconds: Annotated[
        float, Meta(ge=0, le=3600, description="You count as away after so many seconds without a key press.")
    ] = 10.0


class Sessions(Section, frozen=True):
    """How long conversations are kept."""

    prune_after_days: Annotated[
        int,
        Meta(
            ge=1,
            le=36_500,
            description="How many days without a message make a session one that `talaria sessions prune` removes.",
            extra={"live": True},
        ),
    ] = 90


class Doctor(Section, frozen=True):
    """What `talaria doctor` warns about."""

    min_free_megabytes: Annotated[
        int, Meta(ge=0, description="How much free disk space is enough, in megabytes.", extra=_LIVE)
    ] = 500


class Log(Section, frozen=True):
    """What is written to the log."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="The least important messages that are still logged.", extra=_LIVE),
    ] = "info"
    format: Annotated[
        Literal["text", "json"],
        Meta(description="Lines for people, or a JSON object in each line for programs; both name session and turn."),
    ] = "text"


class Agent(Section, frozen=True):
    """How far a turn may go."""

    max_iterations: Annotated[
        int, Meta(ge=1, le=1000, description="The most model calls of one turn.", extra=_LIVE)
    ] = 60
    max_turn_seconds: Annotated[
        int, Meta(ge=0, description="The most seconds of one turn; 0 means no limit.", extra=_LIVE)
    ] = 0
    max_turn_tokens: Annotated[
        int, Meta(ge=0, description="The most tokens of one turn; 0 means no limit.", extra=_LIVE)
    ] = 0


class Goals(Section, frozen=True):
    """How long a standing goal is worked at before a person is asked; 0 means no limit."""

    max_turns: Annotated[int, Meta(ge=1, le=10_000, description="The most turns.", extra=_LIVE)] = 20
    max_tokens: Annotated[int, Meta(ge=0, description="The most tokens.", extra=_LIVE)] = 0
    max_dollars: Annotated[float, Meta(ge=0, description="The most dollars.", extra=_LIVE)] = 0.0
    max_minutes: Annotated[int, Meta(ge=0, description="The most minutes, waiting included.", extra=_LIVE)] = 0
    judge_seconds: Annotated[
        int, Meta(ge=1, le=3600, description="How long to wait for the judge of a turn.", extra=_LIVE)
    ] = 60
    verify_seconds: Annotated[
        int, Meta(ge=1, le=86_400, description="How long a goal's `verify:` command may take.", extra=_LIVE)
    ] = 300


class Budget(Section, frozen=True):
    """What may be spent on models, in dollars; 0 means no limit."""

    total: Annotated[float, Meta(ge=0, description="On everything, in a calendar month.", extra=_LIVE)] = 0.0
    person: Annotated[float, Meta(ge=0, description="On one person, in a calendar month.", extra=_LIVE)] = 0.0
    session: Annotated[float, Meta(ge=0, description="On one conversation.", extra=_LIVE)] = 0.0
    turn: Annotated[float, Meta(ge=0, description="On one turn.", extra=_LIVE)] = 0.0


class Tools(Section, frozen=True):
    """What the agent can do."""

    toolsets: Annotated[
        tuple[str, ...],
        Meta(
            description="Which groups of tools are on; `talaria tools` lists them.",
            extra=_SOME_TOOLSETS,
        ),
    ] = TOOLSETS
    disabled: Annotated[tuple[str, ...], Meta(description="Single tools that are off.")] = ()
    search_engine: Annotated[
        str,
        Meta(
            description="The address of a SearXNG server for web searches; empty means DuckDuckGo.",
            extra={"check": is_web_address, "expected": "empty or an address that begins with https:// or http://"},
        ),
    ] = ""


class Surface(Section, frozen=True):
    """What is different in one place, such as cli or python."""

    toolsets: Annotated[
        tuple[str, ...],
        Meta(
            description="Which groups of tools are on there; empty means those of tools.toolsets.",
            extra=_SOME_TOOLSETS,
        ),
    ] = ()


class McpAccount(Section, frozen=True):
    """One MCP server: either a command to run and speak to, or an address to ask."""

    enabled: Annotated[bool, Meta(description="Whether conversations use it.")] = True
    command: Annotated[str, Meta(description="The program that is the server; empty where it has an address.")] = ""
    args: Annotated[tuple[str, ...], Meta(description="What to give that program.")] = ()
    env: Annotated[
        dict[str, str],
        Meta(
            description="Variables for that program; `${NAME}` stands for the secret of that name.",
            extra={"mask": mask_header_values},
        ),
    ] = {}
    url: Annotated[
        str,
        Meta(
            description="The address of the server (streamable HTTP); empty where it is a program.",
            extra={
                "check": is_web_address,
                "expected": "empty or an address that begins with https:// or http://",
                "mask": mask_password,
            },
        ),
    ] = ""
    headers: Annotated[
        dict[str, str],
        Meta(
            description="Headers to send there; `${NAME}` stands for the secret of that name.",
            extra={"mask": mask_header_values},
        ),
    ] = {}
    include: Annotated[tuple[str, ...], Meta(description="The tools of it to use; none means all.")] = ()
    exclude: Annotated[tuple[str, ...], Meta(description="Tools of it to leave out.")] = ()
    connect_timeout_seconds: Annotated[
        float, Meta(gt=0, le=600, description="How long a new conversation waits for it.")
    ] = 10.0
    timeout_seconds: Annotated[float, Meta(gt=0, le=3600, description="How long one call of a tool may take.")] = 120.0


class Approval(Section, frozen=True):
    """What needs a person's word."""

    mode: Annotated[
        Literal["ask", "allow-list", "off"],
        Meta(
            description="ask: dangerous calls are asked about; allow-list: only named ones run; off: all run.",
            extra=_LIVE,
        ),
    ] = "ask"
    allowed: Annotated[
        tuple[str, ...], Meta(description="Commands that always run, such as `git status`.", extra=_LIVE)
    ] = ()
    timeout_seconds: Annotated[
        int, Meta(ge=1, le=86_400, description="How long to wait for an answer; none means no.", extra=_LIVE)
    ] = 300


class Sandbox(Section, frozen=True):
    """What commands and code of the agent can reach."""

    enabled: Annotated[
        bool, Meta(description="Whether they run in a sandbox of bubblewrap, or not at all where there is none.")
    ] = False
    network: Annotated[bool, Meta(description="Whether they reach the network from there.")] = True


class Telemetry(Section, frozen=True):
    """Where traces of finished turns are sent: names, sizes, times and costs, never what was said."""

    endpoint: Annotated[
        str,
        Meta(
            description="The OpenTelemetry collector that takes traces as OTLP over HTTP; empty means none.",
            extra={
                "check": is_web_address,
                "expected": "empty or an address that begins with https:// or http://",
                "mask": mask_password,
            },
        ),
    ] = ""
    headers: Annotated[
        dict[str, str],
        Meta(description="Headers to send to it, such as a key.", extra={"mask": mask_header_values}),
    ] = {}


class Settings(Section, frozen=True):
    """All sections, with their defaults where nothing else was said."""

    store: Store = Store()
    cli: Cli = Cli()
    sessions: Sessions = Sessions()
    doctor: Doctor = Doctor()
    log: Log = Log()
    model: Model = Model()
    providers: dict[str, ProviderAccount] = {}
    models: dict[str, ModelFacts] = {}
    embedded: Embedded = Embedded()
    agent: Agent = Agent()
    goals: Goals = Goals()
    delegation: Delegation = Delegation()
    schedule: Schedule = Schedule()
    heartbeat: Heartbeat = Heartbeat()
    gateway: Gateway = Gateway()
    api: Api = Api()
    media: Media = Media()
    voice: Voice = Voice()
    budget: Budget = Budget()
    tools: Tools = Tools()
    surfaces: dict[str, Surface] = {}
    mcp: dict[str, McpAccount] = {}
    approval: Approval = Approval()
    sandbox: Sandbox = Sandbox()
    telemetry: Telemetry = Telemetry()
    access: Access = Access()
    platforms: dict[str, ChatNetwork] = {}
    people: dict[str, Person] = {}
