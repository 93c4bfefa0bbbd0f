"""Settings of tools: web searches and pages, the browser, the sandbox of commands."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from talaria.settings.sections.checks import (
    are_absolute_paths,
    are_engine_addresses,
    are_host_patterns,
    is_image_name,
    is_ssh_target,
    is_web_address,
)

SEARCH_ENGINES = ("brave", "tavily", "exa", "serper", "google", "kagi", "searxng", "duckduckgo")
_SOME_ENGINES: dict[str, object] = {
    "check": lambda names: set(names) <= set(SEARCH_ENGINES),
    "expected": f"a list of some of {', '.join(SEARCH_ENGINES)}",
}


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


_LIVE: dict[str, Any] = {"live": True}


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
