import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from talaria.settings.atomic_files import lock_folder, write_file
from talaria.settings.errors import ProfileUnusable


def test_written_file_is_private_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old")
    file.chmod(0o644)
    write_file(file, "new\n")
    assert file.read_text() == "new\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_writing_to_a_symlink_changes_its_target(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_file(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_failed_write_reports_the_reason_and_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "folder"
    file.mkdir()
    with pytest.raises(ProfileUnusable, match="folder can't be written: Is a directory"):
        write_file(file, "new")
    assert list(tmp_path.iterdir()) == [file]


def test_folder_lock_serialises_changes(tmp_path: Path) -> None:
    file = tmp_path / "count"
    file.write_text("0")

    def count(_: int) -> None:
        with lock_folder(tmp_path):
            write_file(file, str(int(file.read_text()) + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(40)))
    assert file.read_text() == "40"
