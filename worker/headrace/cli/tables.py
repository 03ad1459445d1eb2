"""Rows into lines of a width: columns that stand under each other, and words that go on in the next line.

Pure: pieces of text in, lines out, no terminal in sight; what a piece means is not known here. Width counts what a
terminal shows, so a wide character is two. No line is wider than the width, and none is cut: what does not fit goes on
below, only names that are shortened on purpose lose their middle.
"""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, chop_cells
from rich.text import Text

from headrace.cli.output import Cell, coloured

GAP = "  "
SHORTEST = 8
"""Columns that a shortened name has at least."""


def aligned(rows: Sequence[Sequence[Cell]]) -> list[Text]:
    """Return one line a row, the columns two blanks apart; blanks at the end of a line are left out."""
    texts = [[_text(cell) for cell in row] for row in rows]
    columns = max((len(row) for row in texts), default=0)
    widths = [max((row[at].cell_len for row in texts if at < len(row)), default=0) for at in range(columns)]
    return [_line(row, widths) for row in texts]


def fitted(rows: Sequence[Sequence[Cell]], width: int | None) -> list[list[Text]]:
    """Return the lines of each row: one in aligned columns where all fit, else cell after cell, going on below."""
    lines = aligned(rows)
    if width is None or widest(lines) <= width:
        return [[line] for line in lines]
    return [_packed([_text(cell) for cell in row], width) for row in rows]


def folded(text: Cell, width: int | None, indent: str) -> list[Text]:
    """Return a text in lines of at most ``width`` columns, broken between words; later ones are indented."""
    whole = _text(text)
    if width is None or (whole.cell_len <= width and "\n" not in whole.plain):
        return [whole]
    lines: list[Text] = []
    start = 0
    for line in _broken(whole.plain, width, indent):
        # Where a piece of the text begins is found again, so that it keeps the style that it had there.
        at = whole.plain.index(line, start)
        start = at + len(line)
        piece = whole[at:start]
        lines.append(piece if not lines else Text(indent).append_text(piece))
    return lines or [whole]


def shortened(text: str, width: int) -> str:
    """Return a name in at most ``width`` columns; what is left out is in the middle, where names differ least."""
    width = max(width, SHORTEST)
    if cell_len(text) <= width:
        return text
    tail = chop_cells(text[::-1], (width - 1) // 2)[0][::-1]
    return f"{chop_cells(text, width - 1 - cell_len(tail))[0]}…{tail}"


def widest(lines: Sequence[Text]) -> int:
    """Return the columns of the widest line."""
    return max((line.cell_len for line in lines), default=0)


def _text(cell: Cell) -> Text:
    return coloured(cell, "") if isinstance(cell, str) else cell


def _line(row: Sequence[Text], widths: Sequence[int]) -> Text:
    line = coloured("", "")
    for at, cell in enumerate(row):
        line.append_text(cell)
        if at < len(row) - 1:
            line.append(" " * (widths[at] - cell.cell_len) + GAP)
    line.rstrip()
    return line


def _packed(cells: Sequence[Text], width: int) -> list[Text]:
    indent = GAP * 2
    lines: list[Text] = []
    line = coloured("", "")
    for cell in cells:
        if not cell.plain.strip():
            continue
        if line.plain and line.cell_len + len(GAP) + cell.cell_len > width:
            lines.append(line)
            line = Text(indent)
        elif line.plain:
            line.append(GAP)
        line.append_text(cell)
    return [piece for line in [*lines, line] for piece in folded(line, width, indent)]


def _broken(text: str, width: int, indent: str) -> Iterator[str]:
    """Yield the pieces of a text: as many words as fit, and a word that never would in parts."""
    room = width
    for paragraph in text.split("\n"):
        at = 0
        while at < len(paragraph):
            piece = chop_cells(paragraph[at:], max(room, SHORTEST))[0]
            end = at + len(piece)
            if end < len(paragraph) and not paragraph[end].isspace():
                blank = max(piece.rfind(" "), piece.rfind("\t"))
                # Not among the blanks that a paragraph begins with: they are no place between words.
                end = at + blank if piece[: max(blank, 0)].strip() else end
            yield paragraph[at:end].rstrip()
            room = width - len(indent)
            at = end + len(paragraph[end:]) - len(paragraph[end:].lstrip())
