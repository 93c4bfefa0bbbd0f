"""Edit the files of hooks; a hook is checked before it is saved."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from talaria.core.errors import NotFound, Refused
from talaria.hooks.discovery import BOOT, FOLDER, HANDLER, Hook, UnusableHook, find_hooks
from talaria.hooks.manifest import MANIFEST
from talaria.settings.atomic_files import lock_folder, make_folder, write_file

_FOLDER_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,63}")
_ENABLED = re.compile(r"(?m)^enabled[ \t]*:.*$")


class HookFiles(Struct, frozen=True):
    """The files of a hook: its HOOK.yaml, and its handler.py unless a command handles its events."""

    manifest: str = ""
    handler: str = ""


def read_hook_files(profile_folder: Path, name: str) -> HookFiles:
    """Return the files of the hook in the folder ``name``, or raise `NotFound`."""
    folder = profile_folder / FOLDER / name
    if not _FOLDER_NAME.fullmatch(name) or not (folder / MANIFEST).is_file():
        raise NotFound(f"There is no hook `{name[:64]}`.")
    return HookFiles(_read(folder / MANIFEST), _read(folder / HANDLER))


def write_hook_files(profile_folder: Path, name: str, before: HookFiles, files: HookFiles) -> None:
    """Replace the files of a hook, or create one if ``before`` is empty.

    Raises `Refused` if the new hook is broken, or if the files are no longer those of ``before``.
    """
    if not _FOLDER_NAME.fullmatch(name) or name == BOOT:
        raise Refused("Use at most 64 letters, digits, hyphens and underscores as the name.")
    hooks = profile_folder / FOLDER
    make_folder(hooks)
    with lock_folder(hooks):
        now = HookFiles(_read(hooks / name / MANIFEST), _read(hooks / name / HANDLER))
        if now != before:
            raise Refused(f"The hook {name} was changed in the meantime. Load it again.")
        _check(hooks, name, files)
        make_folder(hooks / name)
        if files.handler:
            write_file(hooks / name / HANDLER, files.handler)
        else:
            (hooks / name / HANDLER).unlink(missing_ok=True)
        write_file(hooks / name / MANIFEST, files.manifest)


def switch_hook(profile_folder: Path, name: str, *, on: bool) -> None:
    """Switch a hook on or off in its HOOK.yaml."""
    files = read_hook_files(profile_folder, name)
    line = f"enabled: {'true' if on else 'false'}"
    if _ENABLED.search(files.manifest):
        manifest = _ENABLED.sub(line, files.manifest, count=1)
    else:
        manifest = f"{files.manifest.rstrip()}\n{line}\n"
    write_hook_files(profile_folder, name, files, HookFiles(manifest, files.handler))


def _check(hooks: Path, name: str, files: HookFiles) -> None:
    """Raise `Refused` unless these files are a hook whose name no other has."""
    with TemporaryDirectory() as trial:
        folder = Path(trial) / name
        folder.mkdir()
        (folder / MANIFEST).write_text(files.manifest, encoding="utf-8")
        if files.handler:
            (folder / HANDLER).write_text(files.handler, encoding="utf-8")
        (found,) = find_hooks(Path(trial))
    if isinstance(found, UnusableHook):
        raise Refused(found.problem.replace(f"{folder}/", ""))
    others = [one for one in find_hooks(hooks) if isinstance(one, Hook) and one.folder.name != name]
    if any(one.manifest.name == found.manifest.name for one in others):
        raise Refused(f"There is another hook with the name {found.manifest.name}.")


def _read(path: Path) -> str:
    """Return the text of a file, empty if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path.name} can't be read as text.") from error
