"""The gateway as a service of the person's own: a unit of systemd, or an agent of launchd on macOS."""

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


class Program(Struct, frozen=True, kw_only=True):
    """What is to run: words of a command line, the environment it needs, and how long its end may take."""

    profile: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    drain_seconds: float


class ServiceFile(Struct, frozen=True, kw_only=True):
    """A file that tells the system to keep a program running, and the commands that make it known or forgotten."""

    path: Path
    text: str
    begin: tuple[tuple[str, ...], ...]
    end: tuple[tuple[str, ...], ...]
    forget: tuple[tuple[str, ...], ...] = ()
    remark: str = ""


def service_file(program: Program, environment: Mapping[str, str], *, system: str) -> ServiceFile:
    """Return the file for a ``system`` as `sys.platform` names it."""
    home = Path(environment.get("HOME") or Path.home())
    if system == "darwin":
        return _agent(program, home)
    return _unit(program, Path(environment.get("XDG_CONFIG_HOME") or home / ".config"))


def install(service: ServiceFile, environment: Mapping[str, str]) -> str:
    """Write the file and start the service; return a sentence about what was done and what is left to do."""
    try:
        service.path.parent.mkdir(parents=True, exist_ok=True)
        _write(service.path, service.text)
    except OSError as error:
        raise Refused(f"{service.path} cannot be written: {error.strerror}.") from error
    if not _can_call(service.begin, environment):
        return f"{service.path} is written. To start it, type:\n{_to_type(service.begin)}"
    if trouble := _call(service.begin, environment):
        raise Refused(f"{service.path} is written, but could not be started: {trouble}")
    return f"The gateway runs as a service now: {service.path}. {service.remark}".rstrip()


def uninstall(service: ServiceFile, environment: Mapping[str, str]) -> str:
    """End the service and remove its file; return a sentence about what was done and what is left to do."""
    if not service.path.exists():
        raise Refused(f"No service is installed for this profile: {service.path} does not exist.")
    reached = _can_call(service.end, environment)
    trouble = _call(service.end, environment) if reached else ""
    try:
        service.path.unlink()
    except OSError as error:
        raise Refused(f"{service.path} cannot be removed: {error.strerror}.") from error
    trouble = trouble or (_call(service.forget, environment) if reached else "")
    if trouble:
        raise Refused(f"{service.path} is removed, but the system was not told: {trouble}")
    if not reached:
        return f"{service.path} is removed. If the gateway runs, `talaria gateway stop` ends it."
    return f"The gateway is no service any more; {service.path} is removed."


def _unit(program: Program, config: Path) -> ServiceFile:
    name = f"talaria-{program.profile}.service"
    words = " ".join(_quoted(word).replace("$", "$$") for word in program.command)
    settings = "".join(f"Environment={_quoted(f'{key}={value}')}\n" for key, value in program.environment.items())
    # Its end waits twice: for turns, then for replies. Only the process itself is ended: tools end with it, and what
    # conversations have in the background goes on.
    text = f"""[Unit]
Description=Talaria gateway (profile {program.profile})
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
ExecStart={words}
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
        forget=((*call, "daemon-reload"),),
        remark="It ends when you log out, unless you type `loginctl enable-linger` once.",
    )


def _agent(program: Program, home: Path) -> ServiceFile:
    label = f"talaria.{program.profile}"
    path = home / "Library" / "LaunchAgents" / f"{label}.plist"
    words = "".join(f"    <string>{escape(word)}</string>\n" for word in program.command)
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
{words}  </array>
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
    )


def _quoted(word: str) -> str:
    """Return a word as systemd reads it back, with its own signs taken literally."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return f'"{plain}"'


def _write(path: Path, text: str) -> None:
    """Replace the file at once."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        draft.write_text(text)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _can_call(commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> bool:
    return shutil.which(commands[0][0], path=environment.get("PATH", os.defpath)) is not None


def _call(commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> str:
    """Call one after the other; return what the first that fails says, and what to type, or nothing."""
    for place, command in enumerate(commands):
        program = shutil.which(command[0], path=environment.get("PATH", os.defpath)) or command[0]
        done = subprocess.run([program, *command[1:]], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip() or f"exit code {done.returncode}"
            return f"{said}\nWhen that is mended, type:\n{_to_type(commands[place:])}"
    return ""


def _to_type(commands: Sequence[Sequence[str]]) -> str:
    return "\n".join("  " + shlex.join(command) for command in commands)
