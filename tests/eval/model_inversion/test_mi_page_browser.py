"""The page of ``cprt mi-compare`` in a real browser: it lists, filters, runs nothing foreign and asks for nothing."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
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
        write_csv(folder / f"{name}_e.csv", [("filename", "class", "prediction"), *((*key, "yes") for key in keys)])
    listing = [
        {"name": "first", "standard": "a_e.csv", "judges": {"one": "a.csv"}},
        {"name": HOSTILE, "standard": "b_e.csv", "judges": {"one": "b.csv", "two": "b.csv"}},
    ]
    (folder / "list.yaml").write_text(json.dumps(listing))
    main(["--setups", str(folder / "list.yaml"), "--out", str(folder / "out"), "--resamples", "0"])
    return folder / "out" / "compare.html"


def test_the_browser_lists_and_filters(tmp_path: Path):
    page = make_page(tmp_path)
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))

    def cells() -> list[list[str]]:
        return browser.execute_script(
            "return [...document.querySelectorAll('#list tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
        )

    def choose(name: str, text: str) -> None:
        Select(browser.find_element("id", name)).select_by_visible_text(text)

    try:
        browser.get(page.as_uri())
        assert browser.find_element("id", "count").text == "312 false positives" and len(cells()) == 200
        browser.find_element("id", "more").click()
        assert len(cells()) == 312 and not browser.find_element("id", "more").is_displayed()
        choose("setup", "first")
        choose("class", "2")
        assert {row[2] for row in cells()} == {"2"} and len(cells()) == 100
        choose("setup", HOSTILE)  # the class stays chosen
        assert cells() == [[HOSTILE, judge, "2", f"{i}.png", HOSTILE] for judge in ("one", "two") for i in (2, 5)]
        choose("judge", "two")
        choose("class", HOSTILE)
        assert cells() == [[HOSTILE, "two", HOSTILE, "4.png", HOSTILE]]
        choose("setup", "first")  # which "two" did not judge
        assert cells() == [] and browser.find_element("id", "count").text == "0 false positives"
        assert browser.title == "Model inversion: judges beside evaluation models"
        assert not browser.get_log("browser")  # neither a fault nor anything that the policy had to stop
    finally:
        browser.quit()
