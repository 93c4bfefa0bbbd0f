"""Documents written by the usual libraries, read by the tool as the model sees them."""

import asyncio
import os
import re
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from datetime import date
from functools import partial
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
from talaria.core.messages import image_type
from talaria.tools.documents.wire import Extracted, ExtractRequest
from talaria.tools.files.read import ReadFile, ReadFileArguments
from talaria.tools.workspace import LocalWorkspace

SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
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


async def test_word_document_is_read_as_markdown(tmp_path: Path) -> None:
    document = WordDocument()
    document.add_heading("Plan", 1)
    document.add_paragraph("First, with ünïcode.")
    document.add_paragraph("one", style="List Bullet")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "a", "b|c"
    document.sections[0].header.paragraphs[0].text = "Ann & Co."
    document.sections[0].footer.paragraphs[0].text = "Confidential"
    document.save(str(tmp_path / "a.docx"))
    output = await read(tmp_path / "a.docx")
    text = "# Plan\nFirst, with ünïcode.\n- one\n| a | b\\|c |"
    assert output.text == f"[Word document]\n[header: Ann & Co.]\n{text}\n[footer: Confidential]"


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
    text = (await read(tmp_path / "a.xlsx")).text
    assert text.startswith("[workbook, 2 sheets]\n[sheet 1: Budget]\n1\t| item | cost | when |\n")
    assert "2\t| tea | 1.5 | 2026-03-04 | =B2*2 |" in text
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


async def test_pdf_pages_can_be_selected_and_paged(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", 5)
    first = await read(path, "2-3")
    assert first.text == (
        '[PDF, "A report", 5 pages]\n[page 2]\nThis is page number 2.\n\n[page 3]\nThis is page number 3.'
    )
    assert "[lines 1-2 of 14; continue with first_line=3]" in (await read(path, limit=2)).text
    assert "[page 5]" in (await read(path, "4-")).text
    with pytest.raises(ToolFailed, match="it has 5 pages; there is no 9"):
        await read(path, "9")


async def test_long_documents_can_be_read_to_the_end(tmp_path: Path) -> None:
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Long")
    for number in range(1, 5_001):
        sheet.append([number, "x" * 100])
    book.create_sheet("Short").append(["the end"])
    book.save(tmp_path / "a.xlsx")
    call = msgspec.structs.replace(call_from(tmp_path), workspace=LocalWorkspace(tmp_path, {}))
    tool, line, rows = ReadFile(tmp_path / "pages"), 1, list[str]()
    while line:
        page = (await tool.run(ReadFileArguments("a.xlsx", line), call)).text
        rows += re.findall(r"^\d+\t\| (\d+)", page, re.MULTILINE)
        more = re.search(r"continue with first_line=(\d+)]$", page)
        line = int(more[1]) if more else 0
    assert rows == [str(number) for number in range(1, 5_001)]
    assert page.endswith("\n\n[sheet 2: Short]\n1\t| the end |")
    with pytest.raises(ToolFailed, match="has 5004 lines; there is no line 9999"):
        await read(tmp_path / "a.xlsx", first_line=9_999)


async def test_scanned_page_is_returned_as_an_image(tmp_path: Path) -> None:
    pdf = fpdf.FPDF()
    pdf.add_page()
    pdf.rect(10, 10, 50, 50, style="F")
    pdf.output(str(tmp_path / "scan.pdf"))
    output = await read(tmp_path / "scan.pdf")
    (picture,) = output.images
    assert picture.source in output.text
    assert image_type((await asyncio.to_thread(Path(picture.source).read_bytes))[:16]) == "image/png"


async def test_opendocument_text_and_spreadsheet_are_read(tmp_path: Path) -> None:
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


async def test_opendocument_presentation_has_slides_with_notes(tmp_path: Path) -> None:
    show = (
        f'<o:document-content xmlns:o="{ODT}:office:1.0" xmlns:t="{ODT}:text:1.0" xmlns:d="{ODT}:drawing:1.0"'
        f' xmlns:p="{ODT}:presentation:1.0" xmlns:s="{ODT}:style:1.0"><o:automatic-styles>'
        '<s:style s:name="dp1" s:family="drawing-page"><s:drawing-page-properties p:visibility="hidden"/></s:style>'
        '</o:automatic-styles><o:body><o:presentation><d:page d:style-name="dp0"><d:frame><d:text-box>'
        "<t:p>Hello</t:p><t:list><t:list-item><t:p>point</t:p></t:list-item></t:list></d:text-box></d:frame>"
        "<p:notes><d:frame><d:text-box><t:p>Smile.</t:p></d:text-box></d:frame></p:notes></d:page>"
        '<d:page d:style-name="dp1"><d:frame><d:text-box><t:p>Spare</t:p></d:text-box></d:frame></d:page>'
        "</o:presentation></o:body></o:document-content>"
    )
    path = write_zip(tmp_path / "a.odp", {"content.xml": show})
    assert (await read(path)).text == (
        "[presentation, 2 slides]\n[slide 1]\nHello\n- point\nNotes:\nSmile.\n\n[slide 2 (hidden)]\nSpare"
    )
    assert (await read(path, "2")).text == "[presentation, 2 slides]\n[slide 2 (hidden)]\nSpare"


async def test_hidden_sheets_are_read_and_marked(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for name, state in (("Rates", "hidden"), ("Keys", "veryHidden")):
        sheet = book.create_sheet(name)
        sheet["A1"], sheet.sheet_state = f"in {name}", state
    book.save(tmp_path / "a.xlsx")
    text = (await read(tmp_path / "a.xlsx")).text
    assert text.endswith("[sheet 2: Rates (hidden)]\n1\t| in Rates |\n\n[sheet 3: Keys (hidden)]\n1\t| in Keys |")
    assert (await read(tmp_path / "a.xlsx", "Keys")).text.endswith("[sheet 3: Keys (hidden)]\n1\t| in Keys |")
    tables = (
        f'<o:document-content xmlns:o="{ODT}:office:1.0" xmlns:t="{ODT}:text:1.0" xmlns:b="{ODT}:table:1.0"'
        f' xmlns:s="{ODT}:style:1.0"><o:automatic-styles>'
        '<s:style s:name="ta1" s:family="table"><s:table-properties b:display="false"/></s:style>'
        '</o:automatic-styles><o:body><o:spreadsheet><b:table b:name="Rates" b:style-name="ta1"><b:table-row>'
        "<b:table-cell><t:p>x</t:p></b:table-cell></b:table-row></b:table></o:spreadsheet></o:body>"
        "</o:document-content>"
    )
    output = await read(write_zip(tmp_path / "a.ods", {"content.xml": tables}))
    assert output.text == "[spreadsheet, 1 sheet]\n[sheet 1: Rates (hidden)]\n1\t| x |"


async def test_epub_book_is_read_by_chapters(tmp_path: Path) -> None:
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
        ("cp1251", "ВНИМАНИЕ! ОТЧЕТ ЗА МЕСЯЦ"),
        ("koi8_r", "имя;город\nИван;Москва\nАнна;Казань"),
        ("cp866", "Это русский текст. Сегодня хорошая погода."),
        ("cp866", "ВНИМАНИЕ! ОТЧЕТ ЗА МЕСЯЦ"),
        ("cp866", "ДАТА И ДОХОД: ДЕШЕВО, ДЕТИ ИДУТ В ШКОЛУ"),
        ("cp862", "שלום לכולם. היום מזג האוויר יפה והשמש זורחת."),
        ("cp862", "שם;עיר;סכום\nדוד;ירושלים;34\nשרה;חיפה;29"),
        ("cp862", "שלום לכולם. היום מזג האוויר יפה והשמש זורחת."[::-1]),
        ("cp1255", "שלום עולם. היום מזג האוויר נעים מאוד."),
        ("cp1255", "שם;עיר;גיל\nדוד;ירושלים;34\nשרה;חיפה;29"),
        ("iso8859_8", "שלום עולם, מה שלומך?"),
        ("cp1256", "الاسم;المدينة;العمر\nأحمد;القاهرة;34"),
        ("iso8859_6", "هذا نص عربي لاختبار الترميز. الطقس اليوم جميل جدا."),
        ("cp1253", "Αυτό είναι ένα ελληνικό κείμενο. Σήμερα ο καιρός είναι καλός."),
        ("cp874", "นี่คือข้อความภาษาไทย วันนี้อากาศดีมาก"),
        ("cp1254", "Bugün hava çok güzel, şimdi dışarı çıkıyoruz. Öğrenciler İstanbul'da."),
        ("cp1250", "Dzisiaj jest ładna pogoda, więc idziemy na spacer. Zażółć gęślą jaźń."),
        ("iso8859_2", "Příliš žluťoučký kůň úpěl ďábelské ódy."),
        ("cp1257", "Šiandien gražus oras, todėl einame į mišką. Ąžuolas čia žydi."),
        ("cp1252", "Voilà un texte français où l'été a été très chaud, là-bas, à la forêt."),
        ("cp1252", "£5 for 5 µm"),
        ("shift_jis", "これは日本語の文章です。今日は良い天気ですね。"),
        ("euc_jp", "カタカナとひらがなと漢字の混在するテキスト。"),
        ("iso2022_jp", "これは日本語の文章です。"),
        ("gb18030", "这是一个中文句子。今天天气很好,我们去公园吧。"),
        ("big5", "這是一個中文句子。今天天氣很好,我們去公園吧。"),
        ("cp949", "이것은 한국어 문장입니다. 오늘은 날씨가 좋네요."),
        ("cp1252", "“Günstig” – l’été… 5½ cups, eBayÄhnlich, ©2020 Müller™—gut"),
        ("cp1251", "Windows-приложение: «цитата» — и USB-порт."),
        ("cp850", "Name;Ort\nJörg;Köln\nÄnne;Füssen"),
        ("cp850", "C:\\>tree\n├───Übung\n│   └───Möbel\n└───Ärzte"),
        ("cp437", "El niño comió piñas. ¿Qué pasó mañana?"),
        ("cp852", "Příliš žluťoučký kůň úpěl ďábelské ódy."),
        ("cp852", "Zażółć gęślą jaźń. Dzień dobry, proszę państwa."),
        ("mac_roman", "Voici un texte français, déjà été à la fête."),
        ("mac_cyrillic", "Это русский текст. Сегодня хорошая погода."),
        ("iso8859_15", "Preis: 10 € für Äpfel, schöne Grüße."),
        ("utf-16-le", "plain words without a mark"),
        ("utf-32", "wide words"),
    ],
)
async def test_text_in_common_encodings_is_detected(tmp_path: Path, encoding: str, text: str) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode(encoding))
    assert (await read(tmp_path / "a.csv")).text == text


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("koi8_r", "# -*- coding: koi8-r -*-\nя = 1\n"),
        ("cp437", "#!/bin/sh\n# vim: set fileencoding=cp437 :\necho ü\n"),
        ("cp737", '<?xml version="1.0" encoding="cp737"?>\n<a>Καλημέρα</a>'),
        ("cp862", '<!doctype html>\n<meta charset="cp862">\nשלום'),
        ("iso8859_15", '@charset "iso-8859-15";\na { content: "œ" }'),
        ("cp1252", '<?xml version="1.0" encoding="ISO-8859-1"?>\n<a>“ja”</a>'),
        ("cp1252", "# coding: utf-8\nname = 'é'"),
        ("cp1252", "# coding: hex\nname = 'é'"),
    ],
)
async def test_declared_encoding_of_a_text_is_used(tmp_path: Path, encoding: str, text: str) -> None:
    """A declaration that contradicts the bytes or names no text encoding is ignored."""
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    assert (await read(tmp_path / "a.txt")).text.strip() == text.strip()


def encrypted_pdf(path: Path) -> None:
    pdf = fpdf.FPDF()
    pdf.add_page()
    pdf.set_encryption(owner_password="o", user_password="u")
    pdf.output(str(path))


def bomb(path: Path) -> None:
    """Write 10 MB that expand to 10 GB: blocks of blanks that are compressed once."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(b" " * 2**20) + packer.flush(zlib.Z_FULL_FLUSH)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", block * 10_240 + packer.flush())
        (entry,) = archive.infolist()
        entry.compress_type, entry.file_size = zipfile.ZIP_DEFLATED, 10_240 * 2**20


def nested_entities(path: Path, encoding: str = "utf-8") -> None:
    """Write entities that expand to 100 GB."""
    levels = "".join(f'<!ENTITY e{level} "{f"&e{level - 1};" * 10}">' for level in range(1, 9))
    document = f'<!DOCTYPE x [<!ENTITY e0 "{"a" * 1000}">{levels}]><x>&e8;</x>'
    declaration = f'<?xml version="1.0" encoding="{encoding}"?>'
    if encoding == "utf-16":
        write_zip(path, {"word/document.xml": (declaration + document).encode("utf-16")})
    else:
        write_zip(path, {"word/document.xml": declaration.encode() + document.encode(encoding)})


def many_sheet_parts(path: Path) -> None:
    """Write 100,000 empty parts that share one offset in the file: adding them one by one would take long."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/worksheets/sheet0.xml", "")
        (first,) = archive.infolist()
        for number in range(1, 100_000):
            entry = zipfile.ZipInfo(f"xl/worksheets/sheet{number}.xml")
            entry.CRC, entry.header_offset = first.CRC, first.header_offset
            archive.filelist.append(entry)


def many_sheets_of_one_part(path: Path) -> None:
    sheets = "".join(f'<sheet name="S{number}" r:id="r"/>' for number in range(100_000))
    relation = '<Relationship Id="r" Type="x/worksheet" Target="worksheets/s.xml"/>'
    write_zip(
        path,
        {
            "xl/workbook.xml": f'<workbook xmlns="{SHEETS}" xmlns:r="{RELATIONS}"><sheets>{sheets}</sheets></workbook>',
            "xl/_rels/workbook.xml.rels": f"<Relationships>{relation}</Relationships>",
            "xl/worksheets/s.xml": f'<worksheet xmlns="{SHEETS}"/>',
        },
    )


# The memory that the system reports after the end would include that of the process which started this one.
MEASURED_READER = """
import runpy, sys
try:
    runpy.run_module("talaria.tools.documents.extract", run_name="__main__", alter_sys=True)
finally:
    sys.stderr.write(open("/proc/self/status").read())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "write", "reason"),
    [
        ("a.docx", bomb, "it expands to more than 256 MB"),
        ("a.docx", nested_entities, "it contains XML entities"),
        ("a.docx", partial(nested_entities, encoding="utf-16"), "it contains XML entities"),
        ("a.docx", partial(nested_entities, encoding="cp037"), "the file is damaged or incomplete"),
        ("a.xlsx", many_sheet_parts, "it has 100,000 parts inside; the limit is 10,000"),
        ("a.xlsx", many_sheets_of_one_part, ""),
    ],
    ids=["archive", "entities", "wide-entities", "disguised-entities", "sheets", "repeated-sheet"],
)
def test_decompression_bombs_take_little_time_and_memory(
    tmp_path: Path, name: str, write: Callable[[Path], None], reason: str
) -> None:
    write(tmp_path / name)
    request = msgspec.json.encode(ExtractRequest(str(tmp_path / name))).decode()
    with (tmp_path / "found").open("wb") as found, (tmp_path / "state").open("w") as state:
        reader = subprocess.Popen([sys.executable, "-I", "-c", MEASURED_READER, request], stdout=found, stderr=state)
        _, status, used = os.wait4(reader.pid, 0)
    reader.returncode = os.waitstatus_to_exitcode(status)
    (memory,) = re.findall(r"VmHWM:\s*(\d+) kB", (tmp_path / "state").read_text())
    extracted = msgspec.json.decode((tmp_path / "found").read_bytes(), type=Extracted)
    assert extracted.error.startswith(reason)
    assert bool(extracted.error) == bool(reason)
    assert len(extracted.text) < 1_000_000
    assert used.ru_utime + used.ru_stime < 20, "seconds of CPU"
    assert int(memory) < 500_000, "kB"


def truncated(path: Path) -> None:
    document = WordDocument()
    document.save(str(path))
    path.write_bytes(path.read_bytes()[:-2000])


@pytest.mark.parametrize(
    ("name", "write", "reason"),
    [
        ("a.pdf", encrypted_pdf, "it is encrypted with a password"),
        ("a.pdf", lambda path: path.write_bytes(b"%PDF-1.7\nnothing"), "the file is damaged or incomplete"),
        ("a.docx", truncated, "the file is damaged or incomplete"),
        ("a.ipynb", lambda path: path.write_text("{"), "the file is damaged or incomplete"),
        ("a.doc", lambda path: path.write_bytes(bytes.fromhex("d0cf11e0a1b11ae1")), "has the old format of Office"),
    ],
)
async def test_unreadable_document_is_reported_with_a_reason(
    tmp_path: Path, name: str, write: object, reason: str
) -> None:
    assert callable(write)
    write(tmp_path / name)
    with pytest.raises(ToolFailed) as failed:
        await read(tmp_path / name)
    assert reason in str(failed.value)
