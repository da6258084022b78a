"""The pictures of the documentation: what a terminal shows becomes an SVG, and pages show all of them."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from pictures.__main__ import FOLDER
from pictures.scenes import SCENES
from pictures.shot import take_shot
from pictures.svg import CELL_WIDTH, INK, svg
from tests.support.program import ROOT

TEXT = "{http://www.w3.org/2000/svg}text"
WRITTEN = "\r\n".join(
    [
        "\x1b[1;31m<rm & cp>\x1b[0m \x1b[2mtook  12s\x1b[0m",
        "世界 ✓ \x1b[38;5;2mgreen\x1b[0m",
        "over\rlaid \x1b[7mchosen\x1b[0m",
    ]
)


def texts(written: str, *fixed: tuple[str, list[str]]) -> dict[str, ElementTree.Element]:
    drawn = svg(take_shot(written, 20, 4).with_fixed(fixed), "a title")
    return {
        (each.text or "").replace("\N{NO-BREAK SPACE}", " "): each for each in ElementTree.fromstring(drawn).iter(TEXT)
    }


def test_a_picture_shows_words_where_the_screen_shows_them() -> None:
    shown = texts(WRITTEN)
    assert {"a title", "<rm & cp>", "took  12s", "世", "界", "✓", "green", "laid", "chosen"} == set(shown)
    assert float(shown["green"].attrib["x"]) == pytest.approx(7 * CELL_WIDTH)
    assert float(shown["took  12s"].attrib["textLength"]) == pytest.approx(9 * CELL_WIDTH)


def test_a_picture_has_the_colors_of_the_screen() -> None:
    shown = texts(WRITTEN)
    inks = [shown[words].attrib.get("fill", INK) for words in ("<rm & cp>", "took  12s", "green", "laid", "chosen")]
    assert len(set(inks)) == 5
    assert inks[3] == INK
    assert "b" in shown["<rm & cp>"].attrib["class"]
    assert "class" not in shown["green"].attrib


def test_text_that_varies_between_runs_is_replaced_and_keeps_its_color() -> None:
    shown = texts(WRITTEN, (r"(\d+s)", ["8s"]))
    assert shown["took  8s"].attrib["fill"] == texts(WRITTEN)["took  12s"].attrib["fill"]


def test_a_picture_starts_at_its_first_line_and_has_no_gap_above_the_status_bar() -> None:
    shot = take_shot("old\r\nteam >> /team\r\n\r\nNAME\r\n\r\n\r\nbar\r\nmeter\x1b[4;3H", 20, 10).cropped("team >>")
    assert ["".join(cell.data for cell in row).strip() for row in shot.rows] == [
        "team >> /team",
        "",
        "NAME",
        "bar",
        "meter",
    ]
    assert shot.cursor == (2, 2)


def test_every_picture_has_its_scene_and_a_page_that_shows_it() -> None:
    made = {path.name for path in FOLDER.iterdir()}
    assert made == {f"{name}.svg" for name in SCENES}
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *ROOT.glob("docs/*.md")))
    assert [name for name in made if f"pictures/{name})" not in pages] == []


@pytest.mark.parametrize("name", SCENES)
def test_a_picture_loads_nothing_from_elsewhere(name: str) -> None:
    drawn = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert drawn.count("://") == 1
    assert "href" not in drawn
    assert "url(" not in drawn
