"""English and French prose in the public domain, a page of each, and the same set on paper."""

from __future__ import annotations

import ctypes
import textwrap

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c
from PIL import Image

ENGLISH = """\
Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once or
twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it, "and what
is the use of a book," thought Alice, "without pictures or conversations?"

So she was considering in her own mind (as well as she could, for the hot day made her feel very sleepy and stupid),
whether the pleasure of making a daisy-chain would be worth the trouble of getting up and picking the daisies, when
suddenly a White Rabbit with pink eyes ran close by her.

There was nothing so very remarkable in that; nor did Alice think it so very much out of the way to hear the Rabbit
say to itself, "Oh dear! Oh dear! I shall be late!" But when the Rabbit actually took a watch out of its
waistcoat-pocket, and looked at it, and then hurried on, Alice started to her feet, for it flashed across her mind
that she had never before seen a rabbit with either a waistcoat-pocket, or a watch to take out of it, and burning
with curiosity, she ran across the field after it.
"""
"""Lewis Carroll, Alice's Adventures in Wonderland (1865)."""

FRENCH = """\
Longtemps, je me suis couché de bonne heure. Parfois, à peine ma bougie éteinte, mes yeux se fermaient si vite que
je n'avais pas le temps de me dire : « Je m'endors. » Et, une demi-heure après, la pensée qu'il était temps de
chercher le sommeil m'éveillait ; je voulais poser le volume que je croyais avoir encore dans les mains et souffler
ma lumière.

Je n'avais pas cessé en dormant de faire des réflexions sur ce que je venais de lire, mais ces réflexions avaient
pris un tour un peu particulier ; il me semblait que j'étais moi-même ce dont parlait l'ouvrage : une église, un
quatuor, la rivalité de François Ier et de Charles-Quint.

Cette croyance survivait pendant quelques secondes à mon réveil ; elle ne choquait pas ma raison, mais pesait comme
des écailles sur mes yeux et les empêchait de se rendre compte que le bougeoir n'était plus allumé. Puis elle
commençait à me devenir inintelligible, comme après la métempsycose les pensées d'une existence antérieure ; le
sujet du livre se détachait de moi, j'étais libre de m'y appliquer ou non.
"""
"""Marcel Proust, Du côté de chez Swann (1913)."""

_SIZE = (595.0, 842.0)
_MARGIN = 64.0


def typeset(prose: str, *, font: str = "Times-Roman", points: float = 11.0, columns: int = 84) -> pdfium.PdfDocument:
    """A PDF of one A4 page with the prose, a blank line between its paragraphs.

    Args:
        font: one of the fourteen standard fonts, which pdfium brings along.
        columns: characters a line holds at most.
    """
    document = pdfium.PdfDocument.new()
    page = document.new_page(*_SIZE)
    face = pdfium_c.FPDFText_LoadStandardFont(document.raw, font.encode())
    y = _SIZE[1] - _MARGIN
    for paragraph in prose.split("\n\n"):
        for line in textwrap.wrap(paragraph, columns, break_on_hyphens=False):
            text = pdfium_c.FPDFPageObj_CreateTextObj(document.raw, face, points)
            units = (line + "\0").encode("utf-16-le")
            buffer = ctypes.create_string_buffer(units, len(units))
            pdfium_c.FPDFText_SetText(text, ctypes.cast(buffer, pdfium_c.FPDF_WIDESTRING))
            pdfium_c.FPDFPageObj_Transform(text, 1, 0, 0, 1, _MARGIN, y)
            pdfium_c.FPDFPage_InsertObject(page.raw, text)
            y -= points * 1.35
        y -= points * 0.8
    pdfium_c.FPDFPage_GenerateContent(page.raw)
    page.close()
    return document


def photograph(document: pdfium.PdfDocument, dpi: int) -> Image.Image:
    """Its first page as a grey picture."""
    page = document[0]
    try:
        picture: Image.Image = page.render(scale=dpi / 72, grayscale=True).to_pil()
        return picture
    finally:
        page.close()
