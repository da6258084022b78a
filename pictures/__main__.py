"""Writes docs/pictures/*.svg, or only the named ones.

Usage: python -m pictures [NAME ...]
"""

from __future__ import annotations

import sys

from pictures.scenes import SCENES
from pictures.svg import svg
from tests.support.program import ROOT

FOLDER = ROOT / "docs" / "pictures"


def main(names: list[str]) -> int:
    FOLDER.mkdir(exist_ok=True)
    for name in names or SCENES:
        title, play = SCENES[name]
        path = FOLDER / f"{name}.svg"
        path.write_text(svg(play(), title), encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
