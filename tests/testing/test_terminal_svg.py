"""Screens drawn as SVG: text stays text, at its position and in its colours."""

from xml.etree import ElementTree as ET

from talaria.testing.screen import CursorPosition
from talaria.testing.terminal import Cell
from talaria.testing.terminal_svg import draw

SVG = "{http://www.w3.org/2000/svg}"


def draw_svg(*rows: list[Cell], cursor: CursorPosition | None = None) -> ET.Element:
    return ET.fromstring(draw(rows, title="talaria", cursor=cursor))


def texts(picture: ET.Element) -> list[ET.Element]:
    """Return the text elements of the window, without its title."""
    return [text for text in picture.iter(f"{SVG}text") if "textLength" in text.attrib]


def plain(text: str) -> list[Cell]:
    return [Cell(character) for character in text]


def test_text_that_looks_like_markup_is_escaped() -> None:
    assert [text.text for text in texts(draw_svg(plain("if a < b & c:"), plain("    x = 1")))] == [
        "if a < b & c:",
        "x = 1",
    ]


def test_cells_of_one_style_are_one_element_at_their_column() -> None:
    row = [*plain("ab "), Cell("c", bold=True), Cell("日", 2), Cell("本", 2), *plain("d")]
    pieces = texts(draw_svg(row))
    assert [piece.text for piece in pieces] == ["ab", "c", "日", "本", "d"]
    width = float(pieces[1].attrib["textLength"])
    left = [round((float(piece.attrib["x"]) - float(pieces[0].attrib["x"])) / width) for piece in pieces]
    assert left == [0, 3, 4, 6, 8]


def test_every_style_is_drawn() -> None:
    row = [Cell("a", bold=True), Cell("b", italic=True), Cell("c", dim=True), Cell("d", underlined=True, struck=True)]
    bold, italic, dim, lines = texts(draw_svg(row))
    assert bold.attrib["font-weight"] == "bold"
    assert italic.attrib["font-style"] == "italic"
    assert float(dim.attrib["fill-opacity"]) < 1
    assert lines.attrib["text-decoration"] == "underline line-through"


def test_colours_have_names_or_digits_and_can_be_reversed() -> None:
    picture = draw_svg([Cell("a", colour="0a0b0c"), Cell("b", colour="red"), Cell("c", colour="0a0b0c", reversed=True)])
    digits, name, reverse = texts(picture)
    backgrounds = [one.attrib["fill"] for one in picture.iter(f"{SVG}rect")]
    assert digits.attrib["fill"] == "#0a0b0c"
    assert name.attrib["fill"].startswith("#")
    assert backgrounds == [reverse.attrib["fill"], "#0a0b0c"]


def test_only_a_visible_cursor_is_drawn() -> None:
    without, with_it, hidden = (
        len(list(draw_svg(plain("x"), cursor=cursor).iter(f"{SVG}rect")))
        for cursor in (None, CursorPosition(0, 1, visible=True), CursorPosition(0, 1, visible=False))
    )
    assert (with_it - without, hidden - without) == (1, 0)


def test_picture_references_no_external_resource() -> None:
    picture = draw([plain("text")], title="talaria")
    assert picture.count("://") == 1, "the namespace is the only address"
    assert "url(" not in picture
