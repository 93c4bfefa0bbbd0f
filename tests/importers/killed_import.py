"""Import killed after a number of commits: ``python -m tests.importers.killed_import AGENT HOME COMMITS``."""

import os
import signal
import sys
from pathlib import Path

from talaria.app.command_line.services import ProcessServices
from talaria.contracts.imports import ImportChoices


def main(agent: str, home: str, commits: str) -> None:
    """Kill this process without cleanup, as in a power cut."""
    remaining = int(commits)

    def count(_messages: int) -> None:
        nonlocal remaining
        remaining -= 1
        if not remaining:
            os.kill(os.getpid(), signal.SIGKILL)

    services = ProcessServices(profile_name=None, color="never")
    with services.setup_probes().open_importer(agent, Path(home)) as importer:
        importer.run(ImportChoices(with_keys=True), count)


if __name__ == "__main__":
    main(*sys.argv[1:])
