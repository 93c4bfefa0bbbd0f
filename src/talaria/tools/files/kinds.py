"""What a file is that is no text, told by its first bytes."""

_OTHERS = {
    b"%PDF-": "a PDF document",
    b"PK\x03\x04": "a ZIP archive or an office document",
    b"\x1f\x8b": "gzip data",
    b"\x7fELF": "a program (ELF)",
    b"SQLite format 3\0": "an SQLite database",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ\0": "xz data",
    b"\x28\xb5\x2f\xfd": "zstd data",
    b"OggS": "Ogg sound or video",
    b"ID3": "MP3 sound",
    b"RIFF": "RIFF sound or video",
}


def kind_in_words(beginning: bytes) -> str:
    """Return what a binary file is."""
    return next((words for magic, words in _OTHERS.items() if beginning.startswith(magic)), "binary data")
