"""Run one step of the set-up: show step, packages, size and seconds; write the program's output to a log.

    python scripts/step.py LOG TITLE COMMAND [ARGUMENT ...]

If the command fails, the end of the log is shown. This uses only the standard library, because it runs before any
package is installed.
"""

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

SHOWN_LINES = 40
REDRAW_SECONDS = 0.2
_PACKAGE = re.compile(r"^(?:Collecting|Requirement already satisfied:) ([\w.-]+)")
_FILE = re.compile(r"^Processing (/.*\.whl)")
_SIZE = re.compile(r"^ *(?:Downloading|Using cached) .*\(([\d.]+) (kB|MB|GB)\)")
_MEGABYTES = {"kB": 0.001, "MB": 1.0, "GB": 1000.0}


class Step:
    """Progress of one command, derived from the lines that pip prints."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._started = time.monotonic()
        self._ended = threading.Event()
        self._screen = threading.Thread(target=self._draw, daemon=True)
        self._packages: set[str] = set()
        self._megabytes = 0.0

    def read(self, line: str) -> None:
        """Update packages and size from a line of the command's output."""
        if found := _PACKAGE.match(line):
            self._packages.add(found[1].lower().replace("_", "-"))
        elif found := _FILE.match(line):  # from an index on this machine
            path = Path(found[1])
            self._packages.add(path.name.partition("-")[0].lower().replace("_", "-"))
            self._megabytes += path.stat().st_size / 1e6 if path.exists() else 0.0
        elif found := _SIZE.match(line):
            self._megabytes += float(found[1]) * _MEGABYTES[found[2]]

    def start(self) -> None:
        """Show the progress until the step is finished, if this is a terminal."""
        if sys.stdout.isatty():
            self._screen.start()

    def finish(self, outcome: str) -> None:
        """Show the final line."""
        self._ended.set()
        if self._screen.is_alive():
            self._screen.join()
        start, end = ("\r", "\x1b[K") if sys.stdout.isatty() else ("", "")
        print(f"{start}{self._describe()}, {outcome}{end}", flush=True)

    def _draw(self) -> None:
        while not self._ended.wait(REDRAW_SECONDS):
            print(f"\r{self._describe()} …\x1b[K", end="", flush=True)

    def _describe(self) -> str:
        count = len(self._packages)
        parts = [f"{count} package{'s' if count > 1 else ''}"] if count else []
        parts += [f"{self._megabytes:.0f} MB"] if self._megabytes >= 1 else []
        parts.append(f"{time.monotonic() - self._started:.1f} s")
        return f"== {self._title}: {', '.join(parts)}"


def main() -> int:
    """Run the command and return its exit code."""
    log, title, *command = sys.argv[1:]
    path = Path(log)
    path.parent.mkdir(parents=True, exist_ok=True)
    step = Step(title)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n== {title}: {' '.join(command)}\n")
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        assert process.stdout is not None
        lines = []
        step.start()
        for line in process.stdout:
            lines.append(line)
            file.write(line)
            step.read(line)
        code = process.wait()
    step.finish("done" if code == 0 else f"failed with exit code {code}")
    if code:
        print("".join(lines[-SHOWN_LINES:]).rstrip())
        print(f"The whole output is in {log}. Repair the cause and run the same command again.")
    return code


if __name__ == "__main__":
    sys.exit(main())
