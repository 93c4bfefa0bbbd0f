"""Choice of the sandbox for programs of the agent, and of what they can reach."""

import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import Struct, structs

from talaria.contracts.sandbox import Sandbox, SandboxCommand, SandboxKind, SandboxPolicy, refuse_sandbox
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.sessions.preferences import choose_sandbox
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.tools.sandbox.client_program import run_client
from talaria.tools.terminal.shell import build_plain_argv

_CHECK_SECONDS = 30.0
_PACKAGE = Path(__file__).parents[2]


class SandboxContext(Struct, frozen=True, kw_only=True):
    """Dependencies of a sandbox.

    ``environment`` is that of this machine's programs.
    ``has_background`` says whether a session has background processes, which need its container.
    """

    settings: Settings
    profile: Profile
    surface: str
    session_id: SessionId
    environment: Mapping[str, str] = {}
    has_background: Callable[[SessionId], Awaitable[bool]] | None = None


def open_sandbox(
    context: SandboxContext, writable: Iterable[Path], readable: Iterable[Path], closing: AsyncExitStack
) -> Sandbox | None:
    """Return the sandbox that a session uses, closed by ``closing``; ``None`` for none.

    Nothing is started: the first command does that, and is refused if it fails.
    """
    kind = choose_sandbox(context.settings, context.surface)
    if kind is None:
        return None
    sandbox = make_sandbox(context, kind, _make_policy(context, writable, readable))
    closing.push_async_callback(sandbox.close)
    return sandbox


def make_sandbox(context: SandboxContext, kind: SandboxKind, policy: SandboxPolicy) -> Sandbox:
    """Return a sandbox of this kind."""
    settings = context.settings.sandbox
    if kind == "bubblewrap":
        from talaria.tools.sandbox.bubblewrap import BubblewrapSandbox  # noqa: PLC0415 (loaded with its first use)

        return BubblewrapSandbox(policy)
    if kind == "ssh":
        from talaria.tools.sandbox.ssh import SshHost, SshSandbox  # noqa: PLC0415 (loaded with its first use)

        host = SshHost(
            target=settings.ssh_host,
            port=settings.ssh_port,
            key=settings.ssh_key,
            known_hosts=settings.ssh_known_hosts,
            folder=settings.ssh_folder,
        )
        return SshSandbox(policy, host, context.environment)
    from talaria.tools.sandbox.container import ContainerOptions, ContainerSandbox  # noqa: PLC0415 (loaded with its first use)

    options = ContainerOptions(
        image=settings.image, locks=context.profile.folder / "containers", extra=settings.container_options
    )
    has_background = context.has_background or _has_no_background
    return ContainerSandbox(kind, policy, options, context.session_id, context.environment, has_background)


async def _has_no_background(session_id: SessionId) -> bool:
    del session_id
    return False


def _make_policy(context: SandboxContext, writable: Iterable[Path], readable: Iterable[Path]) -> SandboxPolicy:
    settings, profile = context.settings.sandbox, context.profile
    return SandboxPolicy(
        writable=(*dict.fromkeys((*writable, *map(_expand, settings.writable))),),
        readable=(Path(sys.prefix), _PACKAGE, *readable),
        read_only=tuple(map(_expand, settings.read_only)),
        hidden=(profile.folder, profile.guests_folder),
        network=settings.network and not settings.allowed_hosts,
        hosts=settings.allowed_hosts,
        memory_mb=settings.memory_mb,
        processes=settings.processes,
        cpu_seconds=settings.cpu_seconds,
    )


def _expand(path: str) -> Path:
    return Path(path).expanduser()


async def find_sandbox_problem(context: SandboxContext, folder: Path) -> str:
    """Run a command in the sandbox of the settings, and return why that is impossible; empty if it isn't."""
    settings = context.settings.sandbox
    never_pull = structs.replace(settings, container_options=(*settings.container_options, "--pull=never"))
    context = structs.replace(context, settings=structs.replace(context.settings, sandbox=never_pull))
    sandbox = make_sandbox(context, settings.kind, _make_policy(context, (folder,), ()))
    try:
        await sandbox.start()
        working_folder = str(folder) if settings.kind != "ssh" else "/"
        call = sandbox.call(
            SandboxCommand(build_plain_argv("echo ready", sandbox.programs), working_folder, context.environment)
        )
        ran = await run_client(call.argv, call.environment, _CHECK_SECONDS)
    except ToolFailed as error:
        return str(error).removeprefix(str(refuse_sandbox("")))
    finally:
        await sandbox.close()
    return "" if b"ready" in ran.output else sandbox.explain_failure(ran.error)
