"""Draw the rank strip as inline SVG; classes carry the colours, so that the strict content policy and dark mode hold."""

from __future__ import annotations

from itertools import groupby

from markupsafe import Markup, escape

from firstfault.render.strip import MEANING, Row, Strip
from firstfault.sinks.words import ranges

CELL, HEIGHT, GAP, LABEL = 8, 18, 4, 150
LONGEST_LABEL = 20


def draw(strip: Strip) -> Markup:
    """Return the drawing; nothing where there is no rank to draw."""
    if not strip.rows:
        return Markup("")
    cells = len(strip.rows[0].cells)
    width, height = LABEL + cells * CELL, len(strip.rows) * (HEIGHT + GAP)
    rows = Markup("").join(_row(row, index * (HEIGHT + GAP)) for index, row in enumerate(strip.rows))
    return Markup('<svg class="strip" viewBox="0 0 {} {}" role="img" aria-label="each rank over time">{}</svg>').format(width, height, rows)


def _row(row: Row, top: int) -> Markup:
    names = ("ranks " if len(row.ranks) > 1 else "rank ") + ranges(row.ranks)
    label = names if len(names) <= LONGEST_LABEL else names[: LONGEST_LABEL - 1] + "…"
    text = Markup('<text x="0" y="{}" class="label">{}</text>').format(top + HEIGHT - 5, escape(label))
    left, bars = LABEL, []
    for state, run in groupby(row.cells):
        width = len(list(run)) * CELL
        bars.append(Markup('<rect x="{}" y="{}" width="{}" height="{}" class="{}"/>').format(left, top, width, HEIGHT, state))
        left += width
    title = Markup("<title>{}: {}</title>").format(names, MEANING[row.state])
    return Markup("<g>{}{}{}</g>").format(title, text, Markup("").join(bars))
