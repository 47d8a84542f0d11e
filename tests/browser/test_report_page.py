"""The report in a real browser: sorting, filters, both themes, a phone's width, print, and what its policy stops.

``make test-browser`` runs these: they need Debian's packages chromium and chromium-driver.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judged import TAXONOMY, judge, make_labels
from PIL import Image

from eval.measures import measure
from eval.report.page import write_report
from eval.runs import EvaluatedRun

pytestmark = pytest.mark.browser

HOSTILE = "</script><script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">"
PHONE, TABLET, DESKTOP = 390, 768, 1280


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on forty photos, one with refusals, with hostile answers and thumbnails."""
    folder = tmp_path_factory.mktemp("page")
    labels = make_labels(40)
    (folder / "images").mkdir()
    for number, label in enumerate(labels):
        Image.new("RGB", (120, 90), (number * 6, 90, 150)).save(folder / str(label.image))
    runs = {
        "base": [replace(row, text=HOSTILE) for row in judge(labels, 0.3, lost=0.2)],
        "tuned": judge(labels, 0.1, seed=2, lost=0.02),
    }
    evaluated = [
        EvaluatedRun(name, rows, measure(labels, rows, TAXONOMY, "x", resamples=50)) for name, rows in runs.items()
    ]
    return write_report(folder / "out", labels, evaluated, TAXONOMY, images_root=folder)


@pytest.fixture
def open_page(visit: Callable[..., Any], page: Path) -> Callable[..., Any]:
    return partial(visit, page)


def column(driver: Any, number: int, list_id: str = "errors") -> list[str]:
    """The texts of a column in the order of the rows that are shown."""
    script = """return [...document.getElementById(arguments[0]).tBodies[0].rows].filter(row => !row.hidden)
                .map(row => row.cells[arguments[1]].textContent)"""
    return driver.execute_script(script, list_id, number)


def click(driver: Any, head: str, list_id: str = "errors") -> str | None:
    """Click on a column's head; returns the order that it then announces."""
    script = """const head = [...document.getElementById(arguments[0]).tHead.rows[0].cells]
                .find(cell => cell.textContent === arguments[1]);
                head.querySelector("button").click(); return head.getAttribute("aria-sort")"""
    return driver.execute_script(script, list_id, head)


def numbers(texts: list[str]) -> list[float]:
    return [float(text.replace("−", "-")) for text in texts]


def test_a_click_on_a_head_sorts_by_it(open_page):
    driver = open_page()
    sizes = numbers(column(driver, 7))
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) > 20  # as written: the largest first
    assert click(driver, "Error") == "descending"
    errors = numbers(column(driver, 6))
    assert errors == sorted(errors, reverse=True) and errors[0] > 0 > errors[-1]
    assert click(driver, "Error") == "ascending"
    assert numbers(column(driver, 6)) == sorted(errors)
    assert click(driver, "Photo") == "ascending"
    photos = column(driver, 0)
    assert photos == sorted(photos) and len(photos) == len(errors)
    assert click(driver, "Photo") == "descending"
    assert column(driver, 0) == sorted(photos, reverse=True)
    script = "return document.querySelectorAll('#errors [aria-sort]').length"
    assert driver.execute_script(script) == 1


def test_the_keyboard_sorts_too(open_page):
    from selenium.webdriver.common.keys import Keys

    driver = open_page()
    button = driver.find_element("css selector", "#errors thead th:nth-child(5) button")
    button.send_keys(Keys.ENTER)
    truth = numbers(column(driver, 4))
    assert truth == sorted(truth, reverse=True)


def test_a_run_can_be_chosen(open_page):
    driver = open_page()
    everything = column(driver, 1)
    select = """const line = document.getElementById("errors").parentNode.previousElementSibling;
                const select = line.querySelector("select");
                select.value = arguments[0]; select.dispatchEvent(new Event("change"))"""
    driver.execute_script(select, "=tuned")
    assert column(driver, 1) == ["tuned"] * everything.count("tuned")
    driver.execute_script(select, "")
    assert column(driver, 1) == everything


def test_the_papers_other_prompts_unfold(open_page):
    driver = open_page()
    shown = "return [...document.querySelectorAll('tbody[data-group]')].map(body => body.rows[1].offsetHeight > 0)"
    assert driver.execute_script(shown) == [False, False, True, True]  # asked here with the taxonomy
    driver.execute_script("document.querySelector('tbody[data-group] button').click()")
    assert driver.execute_script(shown) == [True, False, True, True]


def test_the_page_opens_with_links_to_its_sections(open_page):
    driver = open_page()
    pairs = "return [...document.querySelectorAll('{}')].map(one => [one.textContent, {}])"
    heads = driver.execute_script(pairs.format("main > h2", "'#' + one.id"))
    assert driver.execute_script(pairs.format(".contents a", "one.getAttribute('href')")) == heads
    assert len({anchor for _, anchor in heads}) == len(heads) > 5


def test_rows_without_a_score_are_there(open_page):
    driver = open_page()
    assert len(column(driver, 0, "unscored")) >= 5
    assert set(column(driver, 4, "unscored")) == {"refused"}


@pytest.mark.parametrize("width", [DESKTOP, TABLET, PHONE])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_the_screen_in_both_themes(open_page, tmp_path, width, theme):
    driver = open_page(width, theme)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width  # no scrolling sideways
    broken = "return [...document.images].filter(image => !image.complete || !image.naturalWidth).length"
    assert driver.execute_script(broken) == 0
    drawn = "return document.querySelector('figure img').currentSrc === document.querySelector('figure img').src"
    assert driver.execute_script(drawn) is (theme == "light")
    shot = driver.get_screenshot_as_png()
    (tmp_path / f"report_{theme}_{width}.png").write_bytes(shot)
    with Image.open(io.BytesIO(shot)) as image:
        pixels = np.asarray(image.convert("L"))
    assert image.width == width and len(np.unique(pixels)) > 20
    assert (np.median(pixels) > 200) is np.bool_(theme == "light")


def test_on_paper_nothing_is_cut_off(open_page):
    """The width of A4 between Chromium's margins, at its 96 dots an inch; paper is white in a dark theme too."""
    driver = open_page(718, "dark", "print")
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 718
    widths = "return [...document.querySelectorAll('.wide')].map(part => part.scrollWidth - part.clientWidth)"
    assert max(driver.execute_script(widths)) <= 1
    assert driver.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_hostile_text_stays_text_and_the_console_is_silent(open_page):
    driver = open_page()
    assert driver.title == "Privacy judges on 40 photos"
    assert HOSTILE in column(driver, 8)
    assert driver.get_log("browser") == []


def test_the_policy_stops_what_the_page_does_not_hold(open_page):
    """Were markup to slip in after all: no inline handler runs and nothing is fetched."""
    driver = open_page()
    script = """const done = arguments[0], stopped = [];
        document.addEventListener("securitypolicyviolation", event => stopped.push(event.violatedDirective));
        const bad = document.createElement("div");
        bad.innerHTML = `<img src="http://127.0.0.1:9/x.png" onerror="document.title=1">
                         <iframe src="data:text/html,x">`;
        document.body.append(bad);
        fetch("http://127.0.0.1:9/").catch(() => setTimeout(() => done([stopped, document.title]), 300));"""
    stopped, title = driver.execute_async_script(script)
    assert {"img-src", "connect-src", "frame-src", "script-src-attr"} <= set(stopped)
    assert title == "Privacy judges on 40 photos"


def test_without_scripts_everything_is_there(open_page, browser):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        driver = open_page()
        rows = driver.find_elements("css selector", "tbody[data-group] tr")
        assert len(rows) == 29 + 4 and all(row.is_displayed() for row in rows)
        assert not driver.find_elements("css selector", "select, thead button")
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_photo_has_a_page_with_the_answers_of_all_runs(open_page):
    from selenium.webdriver.common.keys import Keys

    driver = open_page()
    first = driver.find_element("css selector", "#photos tbody th a")
    name = first.text
    first.click()
    dialog = driver.find_element("id", "photo")
    assert dialog.is_displayed() and dialog.find_element("tag name", "h2").text == name
    assert [head.text for head in dialog.find_elements("tag name", "h3")] == ["Truth", "base", "tuned"]
    assert dialog.find_elements("tag name", "img")[0].get_property("naturalWidth") > 0
    assert '{"score":' in dialog.find_elements("tag name", "pre")[-1].text
    dialog.find_element("xpath", ".//button[contains(., 'next')]").click()
    second = driver.find_elements("css selector", "#photos tbody th a")[1].text
    assert dialog.find_element("tag name", "h2").text == second and driver.current_url.endswith("#photo-1")
    dialog.send_keys(Keys.ESCAPE)
    assert not dialog.is_displayed() and "#" not in driver.current_url
    driver.get(driver.current_url + "#photo-39")  # a link to a photo opens it
    assert "40 of 40 photos" in driver.find_element("id", "photo").text
    assert driver.get_log("browser") == []


def test_ids_and_names_are_unbroken_on_a_desktop(open_page):
    """Every id, name of a run and number on one line of its cell."""
    driver = open_page()
    script = """return [...document.querySelectorAll("#errors tbody tr")].flatMap(row =>
        [0, 1, 4, 5, 6, 7].map(column => row.cells[column].querySelector("bdi, span").getClientRects().length))"""
    assert set(driver.execute_script(script)) == {1}
