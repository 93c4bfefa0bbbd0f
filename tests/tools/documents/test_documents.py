"""Documents written by the usual libraries, read by the tool as the model sees them."""

import asyncio
import zipfile
from datetime import date
from pathlib import Path

import fpdf
import msgspec
import openpyxl
import pptx
import pytest
from docx import Document as WordDocument
from tests.tools.tool_calls import call_from

from talaria.contracts.tool import ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.image_types import image_type
from talaria.tools.files.read import ReadFile, ReadFileArguments
from talaria.tools.workspace import LocalWorkspace

ODT = "urn:oasis:names:tc:opendocument:xmlns"


async def read(path: Path, parts: str = "", *, first_line: int = 1, limit: int = 1000) -> ToolOutput:
    call = msgspec.structs.replace(call_from(path.parent), workspace=LocalWorkspace(path.parent, {}))
    tool = ReadFile(path.parent / "pages")
    return await tool.run(ReadFileArguments(path.name, first_line, limit, parts=parts), call)


def write_zip(path: Path, entries: dict[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def write_pdf(path: Path, pages: int) -> Path:
    pdf = fpdf.FPDF()
    pdf.set_title("A report")
    pdf.set_font("helvetica", size=12)
    for number in range(1, pages + 1):
        pdf.add_page()
        pdf.cell(text=f"This is page number {number}.")
    pdf.output(str(path))
    return path


async def test_a_word_document_is_markdown(tmp_path: Path) -> None:
    document = WordDocument()
    document.add_heading("Plan", 1)
    document.add_paragraph("First, with ünïcode.")
    document.add_paragraph("one", style="List Bullet")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "a", "b|c"
    document.save(str(tmp_path / "a.docx"))
    output = await read(tmp_path / "a.docx")
    assert output.text == "[Word document]\n# Plan\nFirst, with ünïcode.\n- one\n| a | b\\|c |"


async def test_a_workbook_shows_values_and_dates_by_sheet(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "Budget"
    sheet.append(["item", "cost", "when"])
    sheet.append(["tea", 1.5, date(2026, 3, 4)])
    sheet["D2"] = "=B2*2"
    book.create_sheet("Second")["C3"] = "far"
    book.save(tmp_path / "a.xlsx")
    whole = (await read(tmp_path / "a.xlsx")).text
    assert whole.startswith("[workbook, 2 sheets]\n[sheet 1: Budget]\n1\t| item | cost | when |\n")
    assert "2\t| tea | 1.5 | 2026-03-04 | =B2*2 |" in whole
    by_name, by_number = [(await read(tmp_path / "a.xlsx", parts)).text for parts in ("Second", "2")]
    assert by_name == by_number == "[workbook, 2 sheets]\n[sheet 2: Second]\n3\t|  |  | far |"


async def test_a_presentation_has_slides_in_order_with_notes(tmp_path: Path) -> None:
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    assert slide.shapes.title is not None
    slide.shapes.title.text = "Hello"
    notes = slide.notes_slide.notes_text_frame
    assert notes is not None
    notes.text = "Smile."
    last = show.slides.add_slide(show.slide_layouts[5])
    assert last.shapes.title is not None
    last.shapes.title.text = "Bye"
    show.save(str(tmp_path / "a.pptx"))
    output = await read(tmp_path / "a.pptx")
    assert output.text == "[presentation, 2 slides]\n[slide 1]\nHello\nNotes:\nSmile.\n\n[slide 2]\nBye"


async def test_pages_of_a_pdf_can_be_chosen_and_paged(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", 5)
    first = await read(path, "2-3")
    assert first.text == (
        '[PDF, "A report", 5 pages]\n[page 2]\nThis is page number 2.\n\n[page 3]\nThis is page number 3.'
    )
    assert "[lines 1-2 of 14; continue with first_line=3]" in (await read(path, limit=2)).text
    assert "[page 5]" in (await read(path, "4-")).text
    with pytest.raises(ToolFailed, match="it has 5 pages; there is no 9"):
        await read(path, "9")


async def test_a_scanned_page_is_shown_as_a_picture(tmp_path: Path) -> None:
    pdf = fpdf.FPDF()
    pdf.add_page()
    pdf.rect(10, 10, 50, 50, style="F")
    pdf.output(str(tmp_path / "scan.pdf"))
    output = await read(tmp_path / "scan.pdf")
    (picture,) = output.images
    assert picture.source in output.text
    assert image_type((await asyncio.to_thread(Path(picture.source).read_bytes))[:16]) == "image/png"


async def test_open_documents(tmp_path: Path) -> None:
    text = (
        f'<o:document-content xmlns:o="{ODT}:office:1.0" xmlns:t="{ODT}:text:1.0" xmlns:b="{ODT}:table:1.0">'
        "<o:body><o:text>"
        '<t:h t:outline-level="2">Head</t:h><t:p>one<t:s t:c="2"/>two<t:line-break/>three</t:p>'
        "<t:list><t:list-item><t:p>item</t:p></t:list-item></t:list></o:text></o:body></o:document-content>"
    )
    output = await read(write_zip(tmp_path / "a.odt", {"content.xml": text}))
    assert output.text == "[text document]\n## Head\none  two\nthree\n- item"
    sheet = text.partition("<o:text>")[0] + (
        '<o:spreadsheet><b:table b:name="One"><b:table-row><b:table-cell b:number-columns-repeated="2"/><b:table-cell>'
        '<t:p>x</t:p></b:table-cell><b:table-cell b:number-columns-repeated="16000"/></b:table-row></b:table>'
        "</o:spreadsheet></o:body></o:document-content>"
    )
    output = await read(write_zip(tmp_path / "a.ods", {"content.xml": sheet}))
    assert output.text == "[spreadsheet, 1 sheet]\n[sheet 1: One]\n1\t|  |  | x |"


async def test_a_book_has_chapters(tmp_path: Path) -> None:
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        "<dc:title>My book</dc:title></metadata>"
        '<manifest><item id="b" href="two.xhtml"/><item id="a" href="one%20x.xhtml"/></manifest>'
        '<spine><itemref idref="a"/><itemref idref="b"/></spine></package>'
    )
    container = '<container><rootfiles><rootfile full-path="OPS/p.opf"/></rootfiles></container>'
    path = write_zip(
        tmp_path / "a.epub",
        {
            "META-INF/container.xml": container,
            "OPS/p.opf": package,
            "OPS/one x.xhtml": "<html><body><h1>First</h1><p>words</p></body></html>",
            "OPS/two.xhtml": "<html><body><p>Second</p></body></html>",
        },
    )
    text = (await read(path)).text
    assert text.startswith('[book, "My book", 2 chapters]\n[chapter 1]\n# First')
    assert text.endswith("[chapter 2]\nSecond")


async def test_a_notebook_shows_cells_and_results(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Notes\n", "text"]},
        {"cell_type": "code", "source": "1 + 1", "outputs": [{"data": {"text/plain": ["2"]}}]},
    ]
    (tmp_path / "a.ipynb").write_bytes(msgspec.json.encode({"cells": cells, "metadata": {}}))
    text = (await read(tmp_path / "a.ipynb")).text
    assert text == "[notebook, 2 cells]\n[cell 1]\n# Notes\ntext\n\n[cell 2]\n```python\n1 + 1\n```\nResult:\n2"


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Это русский текст. Сегодня хорошая погода."),
        ("shift_jis", "これは日本語の文章です。今日は良い天気ですね。"),
        ("gb18030", "这是一个中文句子。今天天气很好,我们去公园吧。"),
        ("utf-16-le", "plain words without a mark"),
        ("utf-32", "wide words"),
    ],
)
async def test_text_in_common_encodings(tmp_path: Path, encoding: str, text: str) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    assert (await read(tmp_path / "a.csv")).text == text


def encrypted_pdf(path: Path) -> None:
    pdf = fpdf.FPDF()
    pdf.add_page()
    pdf.set_encryption(owner_password="o", user_password="u")
    pdf.output(str(path))


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("word/document.xml", "w") as entry:
        for _ in range(300):
            entry.write(b" " * 2**20)


def entities(path: Path) -> None:
    write_zip(path, {"word/document.xml": '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><x>&b;</x>'})


def truncated(path: Path) -> None:
    document = WordDocument()
    document.save(str(path))
    path.write_bytes(path.read_bytes()[:-2000])


def many_sheets(path: Path) -> None:
    write_zip(path, {f"xl/worksheets/sheet{number}.xml": "" for number in range(10_001)})


@pytest.mark.parametrize(
    ("name", "write", "reason"),
    [
        ("a.pdf", encrypted_pdf, "it is encrypted with a password"),
        ("a.pdf", lambda path: path.write_bytes(b"%PDF-1.7\nnothing"), "the file is damaged or incomplete"),
        ("a.docx", truncated, "the file is damaged or incomplete"),
        ("a.docx", bomb, "it expands to more than 256 MB"),
        ("a.docx", entities, "it contains XML entities"),
        ("a.xlsx", many_sheets, "it has 10,001 parts inside; the limit is 10,000"),
        ("a.ipynb", lambda path: path.write_text("{"), "the file is damaged or incomplete"),
        ("a.doc", lambda path: path.write_bytes(bytes.fromhex("d0cf11e0a1b11ae1")), "has the old format of Office"),
    ],
)
async def test_what_cannot_be_read_has_a_reason(tmp_path: Path, name: str, write: object, reason: str) -> None:
    assert callable(write)
    write(tmp_path / name)
    with pytest.raises(ToolFailed) as failed:
        await read(tmp_path / name)
    assert reason in str(failed.value)
