"""Gateway as a user service: a systemd unit, or a launchd agent on macOS."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from msgspec import Struct

from talaria.core.errors import Refused

_RESTART_SECONDS = 5
_SPARE_SECONDS = 15
_WATCHDOG_SECONDS = 60


class ServiceProgram(Struct, frozen=True, kw_only=True):
    """Program to run: command line, environment and shutdown timeout."""

    profile: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    drain_seconds: float


class ServiceFile(Struct, frozen=True, kw_only=True):
    """Service definition file, and the commands that register, unregister, start, stop and query it."""

    path: Path
    text: str
    begin: tuple[tuple[str, ...], ...]
    end: tuple[tuple[str, ...], ...]
    start: tuple[str, ...]
    stop: tuple[str, ...]
    query: tuple[str, ...]
    forget: tuple[tuple[str, ...], ...] = ()
    note: str = ""


def build_service_file(program: ServiceProgram, environment: Mapping[str, str], *, system: str) -> ServiceFile:
    """Return the service file for a ``system`` as named by `sys.platform`."""
    home = Path(environment.get("HOME") or Path.home())
    if system == "darwin":
        return _build_launch_agent(program, home)
    return _build_systemd_unit(program, Path(environment.get("XDG_CONFIG_HOME") or home / ".config"))


def find_service(profile: str, environment: Mapping[str, str], *, system: str) -> ServiceFile | None:
    """Return the installed service of a profile, for its path and commands; ``None`` if there is none."""
    program = ServiceProgram(profile=profile, command=(), environment={}, drain_seconds=0.0)
    service = build_service_file(program, environment, system=system)
    return service if service.path.exists() else None


def is_active(service: ServiceFile, environment: Mapping[str, str]) -> bool:
    """Return whether the service manager runs the service."""
    return _can_call((service.query,), environment) and not _run_commands((service.query,), environment)


def change(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run one command of a service; raises `Refused` with the service manager's answer if it fails."""
    if problem := _run_commands((command,), environment):
        raise Refused(f"The service manager refused: {problem}")


def install(service: ServiceFile, environment: Mapping[str, str]) -> str:
    """Write the file and start the service; return a sentence about the result and next steps."""
    try:
        service.path.parent.mkdir(parents=True, exist_ok=True)
        _write(service.path, service.text)
    except OSError as error:
        raise Refused(f"Can't write {service.path}: {error.strerror}.") from error
    if not _can_call(service.begin, environment):
        return f"Wrote {service.path}. To start the service, run:\n{_format_commands(service.begin)}"
    if problem := _run_commands(service.begin, environment):
        raise Refused(f"Wrote {service.path}, but the service couldn't be started: {problem}")
    return f"The gateway now runs as a service: {service.path}. {service.note}".rstrip()


def uninstall(service: ServiceFile, environment: Mapping[str, str]) -> str:
    """Stop the service and remove its file; return a sentence about the result and next steps."""
    if not service.path.exists():
        raise Refused(f"No service is installed for this profile: {service.path} doesn't exist.")
    is_reachable = _can_call(service.end, environment)
    problem = _run_commands(service.end, environment) if is_reachable else ""
    try:
        service.path.unlink()
    except OSError as error:
        raise Refused(f"Can't remove {service.path}: {error.strerror}.") from error
    problem = problem or (_run_commands(service.forget, environment) if is_reachable else "")
    if problem:
        raise Refused(f"Removed {service.path}, but the service manager couldn't be updated: {problem}")
    if not is_reachable:
        return f"Removed {service.path}. If the gateway is running, stop it with `talaria gateway stop`."
    return f"The gateway no longer runs as a service; {service.path} was removed."


def _build_systemd_unit(program: ServiceProgram, config: Path) -> ServiceFile:
    name = f"talaria-{program.profile}.service"
    arguments = " ".join(_quote(word).replace("$", "$$") for word in program.command)
    settings = "".join(f"Environment={_quote(f'{key}={value}')}\n" for key, value in program.environment.items())
    # Shutdown waits twice: for turns, then for replies. Only the main process is stopped: tools end with it, and
    # background processes of sessions keep running.
    text = f"""[Unit]
Description=Talaria gateway (profile {program.profile})
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Type=notify
NotifyAccess=main
WatchdogSec={_WATCHDOG_SECONDS}
ExecStart={arguments}
{settings}Restart=on-failure
RestartSec={_RESTART_SECONDS}
KillMode=process
TimeoutStopSec={round(2 * program.drain_seconds) + _SPARE_SECONDS}

[Install]
WantedBy=default.target
"""
    call = ("systemctl", "--user")
    return ServiceFile(
        path=config / "systemd" / "user" / name,
        text=text,
        begin=((*call, "daemon-reload"), (*call, "enable", "--now", name)),
        end=((*call, "disable", "--now", name),),
        start=(*call, "start", name),
        stop=(*call, "stop", name),
        query=(*call, "is-active", "--quiet", name),
        forget=((*call, "daemon-reload"),),
        note="It stops when you log out, unless you run `loginctl enable-linger` once.",
    )


def _build_launch_agent(program: ServiceProgram, home: Path) -> ServiceFile:
    label = f"talaria.{program.profile}"
    path = home / "Library" / "LaunchAgents" / f"{label}.plist"
    arguments = "".join(f"    <string>{escape(word)}</string>\n" for word in program.command)
    settings = "".join(
        f"    <key>{escape(key)}</key>\n    <string>{escape(value)}</string>\n"
        for key, value in program.environment.items()
    )
    text = f"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>{label}</string>
  <key>ProgramArguments</key>
  <array>
{arguments}  </array>
  <key>EnvironmentVariables</key>
  <dict>
{settings}  </dict>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <key>ThrottleInterval</key>
  <integer>{_RESTART_SECONDS}</integer>
  <key>ExitTimeOut</key>
  <integer>{round(2 * program.drain_seconds) + _SPARE_SECONDS}</integer>
</dict>
</plist>
"""
    domain = f"gui/{os.getuid()}"
    return ServiceFile(
        path=path,
        text=text,
        begin=(("launchctl", "bootstrap", domain, str(path)),),
        end=(("launchctl", "bootout", f"{domain}/{label}"),),
        start=("launchctl", "bootstrap", domain, str(path)),
        stop=("launchctl", "bootout", f"{domain}/{label}"),
        query=("launchctl", "print", f"{domain}/{label}"),
    )


def _quote(word: str) -> str:
    """Return a word quoted for systemd, with special characters escaped."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return f'"{plain}"'


def _write(path: Path, text: str) -> None:
    """Replace the file atomically."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        draft.write_text(text)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _can_call(commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> bool:
    return shutil.which(commands[0][0], path=environment.get("PATH", os.defpath)) is not None


def _run_commands(commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> str:
    """Run the commands in order; return the first error and the commands left to run, or an empty string."""
    for index, command in enumerate(commands):
        program = shutil.which(command[0], path=environment.get("PATH", os.defpath)) or command[0]
        result = subprocess.run([program, *command[1:]], env=environment, capture_output=True, text=True, check=False)
        if result.returncode:
            error_text = result.stderr.strip() or f"exit code {result.returncode}"
            return f"{error_text}\nAfter fixing this, run:\n{_format_commands(commands[index:])}"
    return ""


def _format_commands(commands: Sequence[Sequence[str]]) -> str:
    return "\n".join("  " + shlex.join(command) for command in commands)
