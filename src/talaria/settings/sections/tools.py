"""Settings of tools: web, browser, sandbox, MCP servers, approval of calls, and checkpoints of files."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from talaria.settings.sections.checks import (
    are_absolute_paths,
    are_engine_addresses,
    are_host_patterns,
    is_image_name,
    is_ssh_target,
    is_web_address,
    mask_header_values,
    mask_password,
)

SEARCH_ENGINES = ("brave", "tavily", "exa", "serper", "google", "kagi", "searxng", "duckduckgo")
_SOME_ENGINES: dict[str, object] = {
    "check": lambda names: set(names) <= set(SEARCH_ENGINES),
    "expected": f"a list of some of {', '.join(SEARCH_ENGINES)}",
}
_LIVE: dict[str, Any] = {"live": True}
_GENERATED = (
    "node_modules/", ".venv/", "venv/", "__pycache__/", ".tox/", ".nox/", ".mypy_cache/", ".pytest_cache/",
    ".ruff_cache/", ".gradle/", ".terraform/", ".DS_Store",
)  # fmt: skip


class WebSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Web searches and pages."""

    engines: Annotated[
        tuple[str, ...],
        Meta(
            description="Search engines in order, the next where one fails; empty means those with a key, then "
            "DuckDuckGo.",
            extra=_SOME_ENGINES,
        ),
    ] = ()
    addresses: Annotated[
        dict[str, str],
        Meta(
            description="Addresses of search engines by name: of your own SearXNG server, or in place of the vendor's.",
            extra={
                "check": lambda addresses: are_engine_addresses(addresses, SEARCH_ENGINES),
                "expected": "engines with addresses that start with https:// or http://",
            },
        ),
    ] = {}
    google_engine_id: Annotated[
        str, Meta(description="Id (cx) of your Programmable Search Engine, for the search engine google.")
    ] = ""
    search_seconds: Annotated[
        float, Meta(ge=1, le=120, description="How long one search engine may take before the next is used.")
    ] = 10.0
    cache_minutes: Annotated[
        int, Meta(ge=0, le=1440, description="Minutes for which a conversation reuses search results; 0 means never.")
    ] = 15
    robots: Annotated[
        bool, Meta(description="Whether pages that a site's robots.txt forbids to programs are left alone.")
    ] = True
    fetch_megabytes: Annotated[float, Meta(gt=0, le=100, description="Maximum size of a fetched page or document.")] = (
        5.0
    )


class BrowserSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The browser of the toolset `browser`: a Chromium or Chrome of its own for each session."""

    executable_path: Annotated[
        str,
        Meta(description="Chromium or Chrome to start; empty means the first one found on this machine.", extra=_LIVE),
    ] = ""
    attach: Annotated[
        str,
        Meta(
            description="Address of your own running browser (`--remote-debugging-port`) to use instead, for example "
            "http://127.0.0.1:9222; it is never closed.",
            extra={
                "live": True,
                "check": is_web_address,
                "expected": "empty or an address that starts with http:// or https://",
            },
        ),
    ] = ""
    visible: Annotated[
        bool, Meta(description="Whether the browser has a window, where there is a display.", extra=_LIVE)
    ] = False
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Hosts on this machine or its network that pages may reach, as `name` or `name:port`; all "
            "others there are blocked.",
            extra=_LIVE,
        ),
    ] = ()
    keep_cookies: Annotated[
        bool,
        Meta(
            description="Whether cookies, and with them logins, are stored in the profile for later sessions of the "
            "owner.",
            extra=_LIVE,
        ),
    ] = False
    idle_minutes: Annotated[
        float,
        Meta(gt=0, le=10_080, description="Minutes without use after which a browser is closed.", extra=_LIVE),
    ] = 30.0
    timeout_seconds: Annotated[
        float,
        Meta(ge=1, le=300, description="How long a page may take to answer, and an element to react.", extra=_LIVE),
    ] = 20.0


_PATHS = {"check": are_absolute_paths, "expected": "a list of absolute paths, or paths that start with ~/"}
_PATH = {"check": lambda path: not path or are_absolute_paths((path,)), "expected": "an absolute path, or one with ~/"}


class SandboxSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sandbox of the agent's commands and code."""

    enabled: Annotated[
        Literal["auto"] | bool,
        Meta(
            description="Whether commands run in a sandbox; auto: for chats, the API and scheduled jobs, but not in "
            "the terminal; if the sandbox isn't available, commands are refused.",
        ),
    ] = "auto"
    kind: Annotated[
        Literal["bubblewrap", "podman", "docker", "ssh"],
        Meta(
            description="bubblewrap: this machine's files, read-only; podman, docker: a container; ssh: another host."
        ),
    ] = "bubblewrap"
    network: Annotated[bool, Meta(description="Whether commands in the sandbox can use the network.")] = True
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Hosts that commands can reach over HTTP, and nothing else, for example `pypi.org` or "
            "`*.debian.org`; not with ssh.",
            extra={"check": are_host_patterns, "expected": "a list of host names or addresses; `*.` may come first"},
        ),
    ] = ()
    writable: Annotated[
        tuple[str, ...], Meta(description="Folders that commands can write besides the working folder.", extra=_PATHS)
    ] = ()
    read_only: Annotated[
        tuple[str, ...],
        Meta(description="Folders that commands see read-only, even inside of a writable one.", extra=_PATHS),
    ] = ()
    memory_mb: Annotated[
        int,
        Meta(
            ge=0, description="Memory in MB: of the container, or of each process with bubblewrap and ssh; 0: no limit."
        ),
    ] = 0
    processes: Annotated[int, Meta(ge=0, description="Number of processes at the same time; 0: no limit.")] = 0
    cpu_seconds: Annotated[int, Meta(ge=0, description="CPU time of each process in seconds; 0: no limit.")] = 0
    image: Annotated[
        str,
        Meta(
            description="Image of the container; it needs a shell, and Python 3 for execute_code.",
            extra={"check": is_image_name, "expected": "the name of an image, for example debian:stable"},
        ),
    ] = "docker.io/library/python:3-slim"
    container_options: Annotated[
        tuple[str, ...], Meta(description="Further options of `podman run` or `docker run`, for example `--gpus=all`.")
    ] = ()
    ssh_host: Annotated[
        str,
        Meta(
            description="Host for commands, as `ssh` takes it: HOST, USER@HOST or a name from your ssh configuration.",
            extra={"check": is_ssh_target, "expected": "HOST or USER@HOST"},
        ),
    ] = ""
    ssh_port: Annotated[
        int, Meta(ge=0, le=65_535, description="Port of the host; 0: as in your ssh configuration.")
    ] = 0
    ssh_key: Annotated[
        str, Meta(description="File with the private key; empty: as in your ssh configuration.", extra=_PATH)
    ] = ""
    ssh_known_hosts: Annotated[
        str, Meta(description="File with accepted host keys; empty: `~/.ssh/known_hosts`.", extra=_PATH)
    ] = ""
    ssh_folder: Annotated[str, Meta(description="Folder on the host in which sessions start; empty: home.")] = ""


class McpServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """MCP server: either a command to run or an address to connect to."""

    enabled: Annotated[bool, Meta(description="Whether conversations use this server.", extra=_LIVE)] = True
    command: Annotated[
        str, Meta(description="Program to start as the server; empty if the server has an address.", extra=_LIVE)
    ] = ""
    args: Annotated[tuple[str, ...], Meta(description="Arguments of that program.", extra=_LIVE)] = ()
    env: Annotated[
        dict[str, str],
        Meta(
            description="Environment variables of that program; `${NAME}` is replaced by the secret of that name.",
            extra={"mask": mask_header_values, **_LIVE},
        ),
    ] = {}
    url: Annotated[
        str,
        Meta(
            description="Address of the server (streamable HTTP); empty if it is a program.",
            extra={
                "check": is_web_address,
                "expected": "empty or an address that starts with https:// or http://",
                "mask": mask_password,
                **_LIVE,
            },
        ),
    ] = ""
    headers: Annotated[
        dict[str, str],
        Meta(
            description="Headers to send; `${NAME}` is replaced by the secret of that name.",
            extra={"mask": mask_header_values, **_LIVE},
        ),
    ] = {}
    include: Annotated[
        tuple[str, ...], Meta(description="Tools to use from this server; empty means all.", extra=_LIVE)
    ] = ()
    exclude: Annotated[tuple[str, ...], Meta(description="Tools to leave out.", extra=_LIVE)] = ()
    connect_timeout_seconds: Annotated[
        float, Meta(gt=0, le=600, description="How long a new conversation waits for the server.", extra=_LIVE)
    ] = 10.0
    timeout_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="Maximum time for one tool call.", extra=_LIVE)
    ] = 120.0
    client_id: Annotated[
        str, Meta(description="OAuth client for `talaria mcp login`; empty means that one is registered.", extra=_LIVE)
    ] = ""
    client_secret: Annotated[
        str,
        Meta(
            description="Secret of that client; `${NAME}` is replaced by the secret of that name.",
            extra={"mask": mask_password, **_LIVE},
        ),
    ] = ""
    scope: Annotated[
        str, Meta(description="What to ask for when signing in; empty means what the server suggests.", extra=_LIVE)
    ] = ""
    redirect_port: Annotated[
        int,
        Meta(
            ge=0, le=65535, description="Port to which the browser returns after a sign-in; 0 means any.", extra=_LIVE
        ),
    ] = 0

    @property
    def target(self) -> str:
        """Return the address or command line for display, without passwords."""
        return mask_password(self.url) if self.url else " ".join((self.command, *self.args))


class ApprovalSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Actions that need approval."""

    mode: Annotated[
        Literal["ask", "allow-list", "off"],
        Meta(
            description="ask: ask before dangerous calls; allow-list: ask before everything that isn't "
            "listed; off: never ask.",
            extra=_LIVE,
        ),
    ] = "ask"
    allowed: Annotated[
        tuple[str, ...],
        Meta(description="Commands that always run without asking, for example `git status`.", extra=_LIVE),
    ] = ()
    timeout_seconds: Annotated[
        int, Meta(ge=1, le=86_400, description="How long to wait for an answer; no answer means no.", extra=_LIVE)
    ] = 300


class ApprovalRuleSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Approval rule; it applies to calls that match everything it names. deny comes before ask, ask before allow."""

    action: Annotated[
        Literal["deny", "ask", "allow"],
        Meta(description="Whether matching calls are refused, need approval, or run.", extra=_LIVE),
    ] = "ask"
    tool: Annotated[str, Meta(description="Name of the tool, with * and ?; empty means all tools.", extra=_LIVE)] = ""
    command: Annotated[
        str,
        Meta(
            description="First words of a command, each with * and ?, for example `git push`; empty means all calls.",
            extra=_LIVE,
        ),
    ] = ""
    folder: Annotated[
        str,
        Meta(
            description="Folder that contains the file, or in which the command runs; empty means everywhere.",
            extra={
                "live": True,
                "check": lambda path: not path or path.startswith(("/", "~/")),
                "expected": "empty, or a path that starts with / or ~/",
            },
        ),
    ] = ""
    surface: Annotated[
        str,
        Meta(description="Where the turn runs, for example cli, telegram, api or cron; empty means all.", extra=_LIVE),
    ] = ""
    person: Annotated[
        str,
        Meta(
            description="Who the turn is for: owner, a name from people, or an id like telegram:1000; empty means all.",
            extra=_LIVE,
        ),
    ] = ""


class CheckpointSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Checkpoints of files before the agent changes them."""

    enabled: Annotated[
        bool, Meta(description="Whether a checkpoint is taken before the first change of a turn to files.", extra=_LIVE)
    ] = True
    max_files: Annotated[
        int, Meta(ge=1, description="Workspaces with more files than this get no checkpoints.", extra=_LIVE)
    ] = 50_000
    max_file_megabytes: Annotated[
        float, Meta(gt=0, description="Larger files are neither saved nor restored.", extra=_LIVE)
    ] = 5.0
    max_megabytes: Annotated[
        int, Meta(ge=1, description="Maximum new content of one checkpoint, in megabytes.", extra=_LIVE)
    ] = 500
    max_seconds: Annotated[
        float, Meta(gt=0, le=600, description="Maximum seconds for taking a checkpoint.", extra=_LIVE)
    ] = 20.0
    exclude: Annotated[
        tuple[str, ...],
        Meta(description="Files to leave out in addition to those in .gitignore, as patterns.", extra=_LIVE),
    ] = _GENERATED
    keep: Annotated[int, Meta(ge=1, le=10_000, description="Maximum checkpoints per workspace.", extra=_LIVE)] = 100
    keep_days: Annotated[int, Meta(ge=1, le=36_500, description="Days until a checkpoint expires.", extra=_LIVE)] = 30
    engine: Annotated[
        Literal["auto", "git", "dulwich"],
        Meta(description="What stores checkpoints; auto: git where it is installed, else dulwich.", extra=_LIVE),
    ] = "auto"
