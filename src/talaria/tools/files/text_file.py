"""Text files: encoding, declared or guessed, byte order mark and line endings survive a change."""

import codecs
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from talaria.core.errors import ToolFailed
from talaria.core.files import share_like
from talaria.core.ids import new_id
from talaria.tools.output import MASK

_ENOUGH_TO_GUESS = 4  # bytes outside of ASCII
_ASCII = bytes(range(128))
_DECLARED_WITHIN = 1024  # bytes
# What XML, HTML, CSS and the first two lines of programs declare; compiled for the first text that isn't UTF-8.
_DECLARATION = rb"""(?ix)
    \A\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{2,40})
    | <meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{2,40})
    | \A@charset\s+"([\w.:-]{2,40})"
    | \A(?:[^\n]*\n)?[^\n\w]*(?:\#|//|/\*|;|--|%)[^\n]{0,200}?coding[:=][ \t]*([\w.:-]{2,40})
    """
# Encodings of the web whose names Python doesn't know, or which are larger than the ones that it knows by that name.
_CODECS = {
    "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs", "gbk": "gb18030", "gb2312": "gb18030",
    "windows-874": "cp874", "iso-8859-8-i": "iso8859_8", "x-mac-cyrillic": "mac_cyrillic", "x-sjis": "cp932",
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "tis-620": "cp874", "iso8859-11": "cp874",
}  # fmt: skip
# Encodings of DOS, of old Macs and of Linux that no browser guesses, with the letters of texts in them.
_WESTERN = "äöüßàâæçéèêëîïôœùûÿñáíóúìòåøãõ"
_CENTRAL = "ąćęłńóśźżáčďéěíňřšťúůýžäöüßőűîâăşţđľĺŕôô"
_CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґў"
_RARE = {"iso8859_15": _WESTERN, "cp850": _WESTERN, "mac_roman": _WESTERN, "cp852": _CENTRAL, "mac_cyrillic": _CYRILLIC}
_WITHIN_WORDS = "’‑–—…·•\u00ad"  # noqa: RUF001 (typography)
_AFTER_WORDS = f"{_WITHIN_WORDS}“”‘»›™®°²³¹\u00a0"  # noqa: RUF001 (typography)
_DOUBTS = 2  # oddities that make another encoding likely
_SAMPLE = 8192  # bytes
_HEBREW_SAMPLE = 20  # letters
_HEBREW_SHARE = 0.2  # of five letters that are 36 % of Hebrew; their bytes are 5 % of Russian in capitals
_LARGEST_EDIT = 20 * 1024 * 1024
_SNIFFED = 8192
_SHORTEST_WIDE = 8  # bytes of UTF-16 without a mark
_JAPANESE_MAIL = b"\x1b$"  # how ISO-2022-JP, which consists of ASCII bytes, begins a word
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_OTHERS = {
    b"%PDF-": "a PDF document",
    b"PK\x03\x04": "a ZIP archive or an office document",
    b"\x1f\x8b": "gzip data",
    b"\x7fELF": "a program (ELF)",
    b"SQLite format 3\0": "an SQLite database",
    b"BZh": "bzip2 data",
    b"\xfd7zXZ\0": "xz data",
    b"\x28\xb5\x2f\xfd": "zstd data",
    b"OggS": "Ogg audio or video",
    b"ID3": "MP3 audio",
    b"RIFF": "RIFF audio or video",
}


class Document(Struct, frozen=True):
    """A text with line feeds only, and its representation in the file.

    Bytes that are invalid in the encoding become lone surrogates and are written back unchanged.
    """

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""
    newline: str = "\n"

    @property
    def raw(self) -> bytes:
        """Return the bytes of the file; raises `ToolFailed` for a character that its encoding doesn't have."""
        text = self.text.replace("\n", self.newline) if self.newline != "\n" else self.text
        try:
            return self.mark + text.encode(self.encoding, "surrogateescape")
        except UnicodeEncodeError as error:
            missing = text[error.start]
            raise ToolFailed(
                f"The file is in {self.encoding}, which has no {missing!r}. Leave it out, or use write_file for the "
                "whole file, which then is in UTF-8."
            ) from error


def load_document(path: Path) -> Document:
    """Read a text file to change it, or raise `ToolFailed`."""
    with failing(path):
        if require_file(path).st_size > _LARGEST_EDIT:
            raise ToolFailed(f"{path} is larger than {_LARGEST_EDIT:,} bytes. Change it with the terminal.")
        raw = path.read_bytes()
    if is_binary(raw[:_SNIFFED]):
        raise ToolFailed(f"{path} is not a text file.")
    mark, encoding = next(((mark, name) for mark, name in _MARKS if raw.startswith(mark)), (b"", ""))
    text, encoding = _decode(raw[len(mark) :], encoding)
    if "\r\n" in text and text.count("\r\n") == text.count("\n"):
        return Document(text.replace("\r\n", "\n"), encoding, mark, "\r\n")
    return Document(text, encoding, mark)


def save_file(path: Path, raw: bytes) -> None:
    """Replace or create a file atomically, or raise `ToolFailed`; mode, owner and a symbolic link are preserved."""
    with failing(path):
        target = Path(os.path.realpath(path))
        _make_folders(target.parent)
        old = target.stat() if target.exists() else None
        if old is not None:
            require_file(target)
        draft = target.with_name(f".{target.name[:200]}.{new_id()}.new")
        try:
            draft.write_bytes(raw)
            if old is None:
                share_like(draft, target.parent, 0o666)
            _copy_owner_and_mode(draft, old)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)


def require_file(path: Path) -> os.stat_result:
    """Return the status of a regular file; raise `ToolFailed` for a folder or a device."""
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise ToolFailed(f"{path} is a folder. Use list_files.")
    if not stat.S_ISREG(found.st_mode):
        raise ToolFailed(f"{path} is a device, a pipe or a socket.")
    return found


def is_binary(beginning: bytes) -> bool:
    """Return whether a file that starts with these bytes is binary."""
    return b"\0" in beginning and not beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def find_encoding(beginning: bytes, *, whole: bool) -> str | None:
    """Return the encoding of a text file that starts with these bytes, or ``None`` if it is binary.

    ``whole`` says that these are all its bytes; otherwise the last character may be incomplete.
    """
    if beginning.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in beginning:
        return _find_wide_encoding(beginning)
    if not (_JAPANESE_MAIL in beginning and beginning.isascii()):
        try:
            codecs.getincrementaldecoder("utf-8")().decode(beginning, final=whole)
        except UnicodeDecodeError:
            pass
        else:
            return "utf-8"
    return guess_encoding(beginning, whole=whole)


def guess_encoding(beginning: bytes, *, whole: bool) -> str:
    """Return the encoding that a text declares, or else the likely one; ``whole`` says that these are all its bytes."""
    declared = find_declared(beginning)
    if declared and _is_text(beginning, declared, whole=whole):
        return declared
    enough = len(beginning.translate(None, _ASCII)) >= _ENOUGH_TO_GUESS or beginning.isascii()
    guess = _guess_as_browsers_do(beginning) if enough else "cp1252"
    if guess == "cp866" and _is_dos_hebrew(beginning[:_SAMPLE]):
        return "cp862"
    return _find_rare_encoding(beginning, guess) or guess


def find_declared(beginning: bytes) -> str:
    """Return the encoding that a text declares; empty if it declares none that is known."""
    found = re.search(_DECLARATION, beginning[:_DECLARED_WITHIN])
    return find_codec(next(filter(None, found.groups())).decode("ascii")) if found else ""


def find_codec(name: str) -> str:
    """Return Python's codec for the name of an encoding, as browsers understand it; empty if it is unknown."""
    try:
        known = codecs.lookup(_CODECS.get(name.lower(), name)).name
        "".encode(known)  # fails for what isn't an encoding of text, for example hex
    except LookupError:
        return ""
    return _CODECS.get(known, known)


def decode_text(raw: bytes) -> str:
    """Return bytes as text, with replacements for what is invalid in their likely encoding."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode(find_encoding(raw, whole=True) or "cp1252", "replace")


def refuse_mask(text: str) -> None:
    """Raise `ToolFailed` for text with masked secrets: writing it back would destroy them."""
    if MASK in text:
        raise ToolFailed(f"The text contains {MASK}, a placeholder for a secret that you can't see. Leave it out.")


@contextmanager
def failing(path: Path) -> Iterator[None]:
    """Convert `OSError` to `ToolFailed`."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolFailed(f"{path} doesn't exist.{_suggest_similar(path)}") from error
    except (OSError, ValueError) as error:
        raise ToolFailed(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def describe_binary(beginning: bytes) -> str:
    """Return a description of a binary file."""
    return next((words for magic, words in _OTHERS.items() if beginning.startswith(magic)), "binary data")


def _is_text(beginning: bytes, encoding: str, *, whole: bool) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(beginning, final=whole)
    except (UnicodeError, LookupError):
        return False
    return True


def _guess_as_browsers_do(beginning: bytes) -> str:
    """Return the likely encoding of a text that isn't UTF-8, as Firefox would for a page that doesn't say."""
    from chardetng_py import EncodingDetector  # noqa: PLC0415 (loaded for a text that declares nothing)

    detector = EncodingDetector()
    detector.feed(beginning, last=True)
    return find_codec(detector.guess(tld=None, allow_utf8=False))


def _find_rare_encoding(beginning: bytes, guess: str) -> str:
    """Return an encoding that browsers never guess, if the text is odd in the guessed one and normal in it."""
    sample = beginning[:_SAMPLE]
    if not guess.startswith("cp125") or _count_oddities(sample.decode(guess, "replace")) < _DOUBTS:
        return ""
    for encoding, letters in _RARE.items():
        text = sample.decode(encoding, "replace")
        usual = {*letters, *letters.upper()}
        if _count_oddities(text) == 0 and all(one in usual for one in text if one.isalpha() and not one.isascii()):
            return encoding
    return ""


def _is_dos_hebrew(sample: bytes) -> bool:
    """Return whether a text that could be Russian in capitals has the letters of Hebrew, and final ones end words.

    Final letters begin words in files that store each line from left to right.
    """
    text = sample.decode("cp862")
    letters = [one for one in text if not one.isascii()]
    if len(letters) < _HEBREW_SAMPLE or not all("א" <= one <= "ת" for one in letters):
        return False
    share = sum(one in "הירשת" for one in letters) / len(letters)
    return share >= _HEBREW_SHARE and bool(re.search("[ךםןףץ]", text)) and not re.search("[א-ת][ךםןףץ][א-ת]", text)


def _count_oddities(text: str) -> int:
    """Count what words don't have: symbols inside, capitals after small letters, a letter three times, two scripts.

    Control characters and the general currency sign, a euro sign in the wrong encoding, are doubtful by themselves.
    """
    contexts = zip(f" {text}", text, f"{text[1:]} ", strict=False)
    return sum(_is_odd(*context) for context in contexts if not context[1].isascii())


def _is_odd(before: str, one: str, after: str) -> int:
    if one in "\ufffd¤" or "\x80" <= one <= "\x9f":
        return _DOUBTS
    if not one.isalpha():
        return before.isalpha() and one not in (_WITHIN_WORDS if after.isalpha() else _AFTER_WORDS)
    is_mixed = "\u0400" <= one <= "\u04ff" and any(other.isascii() and other.isalpha() for other in (before, after))
    return is_mixed or before == one == after or (before.islower() and one.isupper())


def _decode(raw: bytes, encoding: str) -> tuple[str, str]:
    """Return text that encodes to the same bytes, and its encoding, which is guessed if none is given."""
    if not encoding:
        encoding = find_encoding(raw[:_SNIFFED], whole=len(raw) <= _SNIFFED) or "utf-8"
    text = raw.decode(encoding, "surrogateescape")
    if encoding != "utf-8" and text.encode(encoding, "surrogateescape") != raw:
        return raw.decode("utf-8", "surrogateescape"), "utf-8"
    return text, encoding


def _make_folders(folder: Path) -> None:
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        share_like(folder, folder.parent, 0o777)


def _find_wide_encoding(beginning: bytes) -> str | None:
    """Return UTF-16 without a mark: mostly ASCII, so that nearly every second byte is zero, and no others."""
    if len(beginning) < _SHORTEST_WIDE:
        return None
    even, odd = beginning[0::2].count(0), beginning[1::2].count(0)
    most = 0.7 * len(beginning) / 2
    return "utf-16-le" if odd > most and not even else "utf-16-be" if even > most and not odd else None


def _suggest_similar(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    from difflib import get_close_matches  # noqa: PLC0415 (loaded when a file is missing)

    near = get_close_matches(path.name, names, n=3)
    return f" Similar names: {', '.join(near)}." if near else ""


def _copy_owner_and_mode(draft: Path, old: os.stat_result | None) -> None:
    if old is None:
        return
    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()) and os.geteuid() == 0:
        os.chown(draft, old.st_uid, old.st_gid)
    draft.chmod(stat.S_IMODE(old.st_mode))
