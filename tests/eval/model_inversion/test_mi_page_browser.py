"""The page of ``cprt mi-compare`` in a real browser: it lists, filters, runs nothing foreign and asks for nothing."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from selenium.webdriver.support.ui import Select

from eval.model_inversion.compare.run import main

pytestmark = pytest.mark.browser

HOSTILE = '</script><img src="https://example.org/x" onerror="document.title=1">'


def write_csv(path: Path, rows: list[tuple[str, ...]]) -> None:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)


def make_page(folder: Path) -> Path:
    """Two set-ups, 300 false positives of one judge in the first, and 6 of each of two in the second."""
    for name, size in (("a", 300), ("b", 6)):
        keys = [(f"{i}.png", HOSTILE if i == 4 else str(i % 3)) for i in range(size)]
        write_csv(
            folder / f"{name}.csv",
            [("filename", "class", "response", "label"), *((file, claims, HOSTILE, "no") for file, claims in keys)],
        )
        write_csv(
            folder / f"{name}_e.csv",
            [("filename", "class", "prediction", "confidence"), *((*key, "yes", "0.5") for key in keys)],
        )
    listing = [
        {"name": "first", "standard": "a_e.csv", "judges": {"one": "a.csv"}},
        {"name": HOSTILE, "standard": "b_e.csv", "judges": {"one": "b.csv", "two": "b.csv"}},
    ]
    (folder / "list.yaml").write_text(json.dumps(listing))
    main(["--setups", str(folder / "list.yaml"), "--out", str(folder / "out"), "--resamples", "0"])
    return folder / "out" / "compare.html"


def test_the_browser_lists_filters_and_turns_pages(tmp_path: Path, visit):
    browser = visit(make_page(tmp_path))

    def cells() -> list[list[str]]:
        return browser.execute_script(
            "return [...document.querySelectorAll('#list tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
        )

    controls = browser.find_element("xpath", "//table[@id='list']/../preceding-sibling::*[1]")

    def choose(name: str, text: str) -> None:
        label = controls.find_element("xpath", f".//label[starts-with(., '{name} ')]")
        select = Select(label.find_element("tag name", "select"))
        select.select_by_value("=" + text)

    def count() -> str:
        return controls.find_element("tag name", "output").text

    assert count() == "312 false positives" and len(cells()) == 50
    forth = browser.find_element("xpath", "//table[@id='list']/..//button[contains(., 'next')]")
    for _ in range(6):
        forth.click()
    assert len(cells()) == 12 and not forth.is_enabled()
    choose("Set-up", "first")
    choose("Class", "2")
    assert {row[2] for row in cells()} == {"2"} and count() == "100 false positives"
    choose("Set-up", HOSTILE)  # the class stays chosen
    assert cells() == [[HOSTILE, judge, "2", f"{i}.png", "0.500", HOSTILE] for judge in ("one", "two") for i in (2, 5)]
    choose("Judge", "two")
    choose("Class", HOSTILE)
    assert cells() == [[HOSTILE, "two", HOSTILE, "4.png", "0.500", HOSTILE]]
    Select(controls.find_element("tag name", "select")).select_by_index(0)
    choose("Judge", "one")
    assert count() == "2 false positives"
    assert browser.title == "Model inversion: judges beside evaluation models"
    assert not browser.get_log("browser")  # neither a fault nor anything that the policy had to stop


@pytest.mark.parametrize("width", [390, 768, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_table_scrolls_off_a_screen(tmp_path: Path, visit, width: int, theme: str):
    browser = visit(make_page(tmp_path), width, theme)
    script = """return Math.max(document.documentElement.scrollWidth,
        ...[...document.querySelectorAll("table, td, th")].map(part => part.getBoundingClientRect().right))"""
    assert browser.execute_script(script) <= width
    drawn = "const image = document.querySelector('.chart img'); return image.currentSrc === image.src"
    assert browser.execute_script(drawn) is (theme == "light")


def test_set_ups_sort_by_their_figures(tmp_path: Path, visit):
    browser = visit(make_page(tmp_path))
    browser.find_element("xpath", "//table[@id='setups']//th[starts-with(., 'n')]/button").click()
    script = "return [...document.querySelectorAll('#setups tbody tr')].map(row => row.cells[2].textContent)"
    assert [text.split("T")[0] for text in browser.execute_script(script)] == ["300", "6", "6"]
