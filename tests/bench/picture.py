"""Draws the tokens/s of a model, each program and type a bar and the floor a line, from results.json.

The SVG follows the reader's light or dark theme.
"""

import argparse
from pathlib import Path
from xml.sax.saxutils import escape

from results import FLOOR, Document

ROOT = Path(__file__).parents[2]
WIDTH, NAMES, PLOT = 720, 130, 490  # of the picture, of the names at its left, and of the longest bar
BAR, STEP, HEADING, MARGIN = 14, 20, 34, 12
STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #24292f }
.heading { font-weight: 600 }
.small { font-size: 11px; fill: #57606a }
.plmkit { fill: #1a7f6b }
.peer { fill: #b1bac4 }
.floor { stroke: #bc4c00; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.small { fill: #9da7b3 }
.plmkit { fill: #3fb89f }
.peer { fill: #57606a }
.floor { stroke: #f0883e }
}"""


def text(x, y, words, kind="", anchor="start"):
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def bar(result, floor, scale, top):
    """A program in a type: its name, its rate as a bar and in figures, and the floor of the same type as a line."""
    kind, base, length = "plmkit" if result.program == "plmkit" else "peer", top + BAR - 3, result.best * scale
    yield text(NAMES - 8, base, f"{result.program} {result.dtype}", anchor="end")
    yield f'<rect x="{NAMES}" y="{top:g}" width="{length:.1f}" height="{BAR}" rx="2" class="{kind}"/>'
    yield text(NAMES + length + 6, base, f"{result.best:,.0f}")
    if floor:
        x = NAMES + floor * scale
        yield f'<line x1="{x:.1f}" y1="{top - 2:g}" x2="{x:.1f}" y2="{top + BAR + 2:g}" class="floor"/>'


def draw(document, model):
    """The picture of a model as text."""
    embeds = [result for result in document.results if result.model == model and result.case == "embed"]
    scale = PLOT / max(result.best for result in embeds)
    floors = {(result.input, result.dtype): result.best for result in embeds if result.program == FLOOR}
    shapes, top = [], MARGIN
    for name in dict.fromkeys(result.input for result in embeds):
        bars = [result for result in embeds if result.input == name and result.program != FLOOR]
        shapes.append(text(MARGIN, top + 14, f"{model}, {name}", "heading"))
        top += HEADING - 8
        for result in sorted(bars, key=lambda result: -result.best):
            shapes += bar(result, floors.get((name, result.dtype)), scale, top)
            top += STEP
        top += MARGIN
    machine = document.machine
    says = f"{machine['cpu']}, {machine['threads']} cores ({' '.join(machine['flags'])})"
    shapes.append(text(MARGIN, top + 8, "Tokens/s. The line is what the matrix products alone would allow.", "small"))
    shapes.append(text(MARGIN, top + 24, says, "small"))
    size = f'width="{WIDTH}" height="{top + 36:g}" viewBox="0 0 {WIDTH} {top + 36:g}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    title = f"<title>Tokens/s of plmkit and its peers, {escape(model)}</title>"
    return "\n".join([opening, title, f"<style>{STYLE}</style>", *shapes, "</svg>\n"])


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="picture", description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="?", default=ROOT / "target/bench/results.json")
    parser.add_argument("picture", type=Path, nargs="?", default=Path(__file__).parent / "results/cpu.svg")
    parser.add_argument("--model", default="150M", help="[default: 150M]")
    options = parser.parse_args(arguments)
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    options.picture.write_text(draw(Document.read(options.results), options.model), encoding="utf-8")


if __name__ == "__main__":
    main()
