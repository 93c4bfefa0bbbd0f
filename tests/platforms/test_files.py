"""Received files are saved under safe names."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from talaria.platforms.content import safe_file_name, save_file


@given(st.text(), st.sampled_from(["", "text/plain", "image/png", "no/such"]))
def test_file_names_are_made_safe(name: str, media_type: str) -> None:
    safe = safe_file_name(name, media_type)
    assert 0 < len(safe.encode()) <= 120
    assert Path(safe).name == safe
    assert not safe.startswith(".")
    assert safe.isprintable()


def test_duplicate_file_names_get_a_number(tmp_path: Path) -> None:
    names = [save_file(b"x", "a.txt", tmp_path).name for _ in range(3)]
    assert names == ["a.txt", "a-2.txt", "a-3.txt"]
