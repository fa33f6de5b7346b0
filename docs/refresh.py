"""What the pages quote of commands, and their tables, anew: ``python docs/refresh.py [PAGE.md ...]``.

Tables are those of docs/page_tables.py. A quote stands below ``<!-- shows: COMMAND -->``. Of what the command
prints now it gets the lines from the one that is most like its first line to the one that is most like its
last. Without a page it draws the README's picture too. tests/docs compare every quote, table and the picture.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
from difflib import SequenceMatcher
from pathlib import Path

from click.testing import CliRunner
from page_tables import filled

from bench.cli.main import cli
from bench.records.store import ResultStore
from bench.render.figure_files import draw_picture
from bench.reports.campaign import make_campaign
from bench.reports.figures.forest import forest_figures

DOCS = Path(__file__).parent
PICTURE = "forest.svg"
QUOTE = re.compile(r"(<!-- shows: (.+?) -->\n```text\n)(.*?)(```)", re.S)


def refreshed(page: str) -> str:
    """Return a page with tables of the records as they are, and quotes as the commands print them now.

    They run on the results below the present folder.

    Raises:
        SystemExit: a command fails.
    """
    return QUOTE.sub(lambda found: found[1] + quoted(output(found[2]), found[3]) + found[4], filled(page))


def output(command: str) -> str:
    """What a command prints."""
    done = CliRunner().invoke(cli, shlex.split(command)[1:])
    if done.exit_code:
        raise SystemExit(f"docs: {command}: {done.exception or done.output}")
    return done.stdout


def quoted(text: str, before: str) -> str:
    """Return the lines of a text that stand where those of an older quote stood; it stays where it holds."""
    if before in text + "\n":
        return before
    lines, old = text.splitlines(), before.splitlines()
    first = last = _nearest(lines, old[0])[0]
    if len(old) > 1:
        last = first + _nearest(lines[first:], old[-1])[-1]  # rows of numbers alone are all like the last
    return "\n".join(lines[first : last + 1]) + "\n"


def _nearest(lines: list[str], wanted: str) -> list[int]:
    ratios = [SequenceMatcher(None, _shape(line), _shape(wanted)).ratio() for line in lines]
    return [place for place, ratio in enumerate(ratios) if ratio == max(ratios)]


def _shape(line: str) -> str:
    return re.sub(r"[0-9.+]+", "0", line)


def draw_forest(results: Path) -> str:
    """Return the README's picture as SVG: the forest plot of the firmest campaign's STS tasks."""
    store = ResultStore(results, "minilm-lm-h100")
    records, _ = store.scan()
    (figure,) = forest_figures(make_campaign(store, [one for one in records if one.suite == "sts7"]))
    return draw_picture(figure)


def main() -> None:
    """Rewrite the pages; what commands draw is stored in a copy, as readers' records have no draws."""
    named = [Path(name) for name in sys.argv[1:]]
    pages = [path.resolve() for path in named or [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]]
    with tempfile.TemporaryDirectory() as folder:
        drawn = shutil.ignore_patterns("stats", "local", ".*")
        shutil.copytree(DOCS.parent / "results", Path(folder) / "results", ignore=drawn)
        os.chdir(folder)
        for path in pages:
            page = path.read_text(encoding="utf-8")
            if (new := refreshed(page)) != page:
                path.write_text(new, encoding="utf-8")
                print(f"{path.name}: changed")
        if not named:
            (DOCS / PICTURE).write_text(draw_forest(Path("results")), encoding="utf-8")
        os.chdir(DOCS)


if __name__ == "__main__":
    main()
