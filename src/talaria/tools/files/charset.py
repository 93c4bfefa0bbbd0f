"""The encoding of text that isn't UTF-8: what it declares, or a guess. Imported for the first such text."""

import codecs
import re

_ENOUGH_TO_GUESS = 4  # bytes outside of ASCII
_ASCII = bytes(range(128))
_DECLARED_WITHIN = 1024  # bytes

# What XML, HTML, CSS and the first two lines of programs declare.
_DECLARATION = re.compile(
    rb"""(?ix)
    \A\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{2,40})
    | <meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{2,40})
    | \A@charset\s+"([\w.:-]{2,40})"
    | \A(?:[^\n]*\n)?[^\n\w]*(?:\#|//|/\*|;|--|%)[^\n]{0,200}?coding[:=][ \t]*([\w.:-]{2,40})
    """
)

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
    found = _DECLARATION.search(beginning[:_DECLARED_WITHIN])
    return find_codec(next(filter(None, found.groups())).decode("ascii")) if found else ""


def find_codec(name: str) -> str:
    """Return Python's codec for the name of an encoding, as browsers understand it; empty if it is unknown."""
    try:
        known = codecs.lookup(_CODECS.get(name.lower(), name)).name
        "".encode(known)  # fails for what isn't an encoding of text, for example hex
    except LookupError:
        return ""
    return _CODECS.get(known, known)


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
    places = zip(f" {text}", text, f"{text[1:]} ", strict=False)
    return sum(_is_odd(*place) for place in places if not place[1].isascii())


def _is_odd(before: str, one: str, after: str) -> int:
    if one in "\ufffd¤" or "\x80" <= one <= "\x9f":
        return _DOUBTS
    if not one.isalpha():
        return before.isalpha() and one not in (_WITHIN_WORDS if after.isalpha() else _AFTER_WORDS)
    is_mixed = "\u0400" <= one <= "\u04ff" and any(other.isascii() and other.isalpha() for other in (before, after))
    return is_mixed or before == one == after or (before.islower() and one.isupper())
