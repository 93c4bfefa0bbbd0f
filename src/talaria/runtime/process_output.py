"""Background processes of this machine: their state, output and end, for `talaria ps` and the web app."""

from pathlib import Path

from talaria.contracts.background_processes import BackgroundProcess, describe_exit_code
from talaria.core.os_processes import is_same_process, machine_id

TAIL_BYTES = 1_048_576


def describe_state(process: BackgroundProcess) -> str:
    """Return the state of a process; the exit code may be unknown if it ended unobserved."""
    if process.state == "ended":
        return describe_exit_code(process.code or 0)
    if not process.is_alive:
        return process.state
    if process.machine != machine_id():
        return f"on {process.host}"
    is_gone = process.pid and not is_same_process(process.pid, process.started, process.machine)
    return "unreported" if is_gone else "running"


def last_line(process: BackgroundProcess) -> str:
    """Return the last line of the output."""
    return process.last_line if not process.is_alive else read_tail(process, 4096).rpartition("\n")[2]


def read_tail(process: BackgroundProcess, limit: int = TAIL_BYTES) -> str:
    """Return the end of the output, as far as it is stored on this machine."""
    try:
        with output_file(process).open("rb") as file:
            file.seek(max(0, output_file(process).stat().st_size - limit))
            return file.read(limit).decode(errors="replace").replace("\r\n", "\n").rstrip("\n")
    except OSError:
        return ""


def output_file(process: BackgroundProcess) -> Path:
    """Return the file of the output."""
    return Path(process.place, "out")
