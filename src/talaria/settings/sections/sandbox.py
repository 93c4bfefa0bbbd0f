"""Settings of the sandbox in which the agent's commands run."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.settings.sections.checks import are_absolute_paths, are_host_patterns, is_image_name, is_ssh_target

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
            description="Hosts that commands can reach over HTTP although `network` is off, for example "
            "`pypi.org` or `*.debian.org`; only with bubblewrap.",
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
