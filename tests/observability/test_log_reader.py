"""Log reader: bounded pages of text and JSON lines, with any content."""

from pathlib import Path

from talaria.observability.log_reader import MOST_BYTES, LogFilter, read_log

TEXT = (
    "2026-11-17 14:35:45,123 INFO talaria.app.api [abc123/t1]: listening\n"
    "2026-11-17 14:35:46,001 ERROR talaria.gateway: failed\nTraceback (most recent call last):\n  ValueError: x\n"
    '{"at":"2026-11-17T14:35:47Z","level":"warning","logger":"talaria.x","message":"json","session":"abc123",'
    '"error":"Traceback"}\n'
)


def test_text_and_json_lines_are_parsed_as_entries(tmp_path: Path) -> None:
    file = tmp_path / "talaria.log"
    file.write_text(f"{TEXT}2026-11-17 14:35:48,000 INFO talaria.x: unfinished")
    page = read_log(file, LogFilter(), 10)
    assert [(one.level, one.message, one.session, one.turn) for one in page.entries] == [
        ("info", "listening", "abc123", "t1"),
        ("error", "failed\nTraceback (most recent call last):\n  ValueError: x", "", ""),
        ("warning", "json\nTraceback", "abc123", ""),
    ]
    assert page.entries[0].at == "2026-11-17T14:35:45.123"
    assert (page.start, page.end) == (0, len(TEXT))


def test_entries_are_filtered_by_level_text_and_session(tmp_path: Path) -> None:
    file = tmp_path / "talaria.log"
    file.write_text(TEXT)
    found = [
        len(read_log(file, log_filter, 10).entries)
        for log_filter in (
            LogFilter(level="warning"),
            LogFilter(text="LISTENING"),
            LogFilter(text="valueerror"),
            LogFilter(session="abc"),
            LogFilter(level="error", session="abc"),
        )
    ]
    assert found == [2, 1, 1, 2, 0]


def test_page_after_a_position_has_only_new_entries(tmp_path: Path) -> None:
    file = tmp_path / "talaria.log"
    file.write_text(TEXT)
    end = read_log(file, LogFilter(), 10).end
    assert read_log(file, LogFilter(), 10, after=end).entries == []
    with file.open("a") as out:
        out.write("2026-11-17 14:36:00,000 INFO talaria.x: new\n")
    assert [one.message for one in read_log(file, LogFilter(), 10, after=end).entries] == ["new"]


def test_a_large_file_is_read_in_parts(tmp_path: Path) -> None:
    file = tmp_path / "talaria.log"
    line = "2026-11-17 14:35:45,123 INFO talaria.x: {:08} " + "x" * 100 + "\n"
    count = 3 * MOST_BYTES // len(line)
    file.write_text("".join(line.format(number) for number in range(count)))
    last = read_log(file, LogFilter(), count)
    assert last.end - last.start <= MOST_BYTES
    before = read_log(file, LogFilter(), count, before=last.start)
    assert before.end == last.start
    numbers = [int(one.message.split()[0]) for one in (*before.entries, *last.entries)]
    assert numbers == list(range(numbers[0], count))


def test_missing_or_binary_file_has_no_entries(tmp_path: Path) -> None:
    assert read_log(tmp_path / "none", LogFilter(), 10).entries == []
    (tmp_path / "binary").write_bytes(b"\xff\xfe{\n{}\n\x00\n")
    assert read_log(tmp_path / "binary", LogFilter(), 10).entries == []
