"""The page of ``cprt score`` in a real browser: filters, search, pages, order, CSV, themes and a phone's width."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from selenium.webdriver.support.ui import Select

from cprt.files import write_text
from cprt.scoring import level_of
from cprt.taxonomy import Taxonomy
from eval.score.page import page
from eval.score.rows import flag_score, named

pytestmark = pytest.mark.browser

TAXONOMY = Taxonomy.default()
HOSTILE = "=</script><script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">"
NAME = HOSTILE.replace("/", "\\")  # as a file may be called


def row(number: int, score: float | None, keys: list[str] | None, path: str, status: str = "ok") -> dict[str, Any]:
    composed = attributes = advice = None
    if keys is not None:
        composed, attributes, advice = named(keys, None, None, TAXONOMY)
    level = None if score is None else level_of(score)
    by = flag_score(score, None if composed is None else composed.score, None, "severe")
    return {
        "root": "photos",
        "path": path.format(number),
        "status": status,
        "score": score,
        "level": level,
        "flag_score": by,
        "contradiction": None if composed is None else composed.level != level,
        "attributes": attributes,
        "advice": advice,
        "flagged": None if by is None else by >= 0.75,
        "text": HOSTILE,
        "error": None,
    }


def make_rows() -> list[dict[str, Any]]:
    """120 photos in two folders: 40 of level 1, 60 of level 3, 10 refused, 10 whose score contradicts them."""
    rows = [row(i, 0.76 + i / 1000, ["gov_ids", "non_unique_id"], "a/{}.jpg") for i in range(40)]
    rows += [row(i, 0.3 + i / 1000, ["age"], "b/{}.jpg") for i in range(40, 100)]
    rows += [row(i, None, None, "a/{}.jpg", "refused") for i in range(100, 110)]
    rows += [row(i, 0.2, ["biometrics"], "b/{}.jpg") for i in range(110, 119)]
    return [*rows, row(119, 0.2, ["biometrics"], NAME)]


def make(folder: Path, rows: list[dict[str, Any]], pictures: bool = False) -> Path:
    files = [folder / "photos" / str(one["path"]) for one in rows]
    facts = {"Model": HOSTILE, "Flagged": "0.75 or more"}
    write_text(folder / "r.html", page(folder / "r.html", rows, files, TAXONOMY, facts, pictures, True))
    return folder / "r.html"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("score")
    rows = make_rows()
    for one in rows[:119]:
        file = folder / "photos" / str(one["path"])
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (60, 40), (90, 120, 150)).save(file)
    return make(folder, rows, pictures=True)


def shown(driver: Any, id: str = "photos") -> list[str]:
    """The names of the photos in the rows that are shown."""
    script = "return [...document.querySelectorAll(`#${arguments[0]} tbody th a`)].map(link => link.textContent)"
    return driver.execute_script(script, id)


def controls(driver: Any) -> Any:
    return driver.find_element("xpath", "//table[@id='photos']/../preceding-sibling::*[1]")


def choose(driver: Any, name: str, value: str) -> None:
    label = controls(driver).find_element("xpath", f".//label[starts-with(., '{name} ')]")
    select = Select(label.find_element("tag name", "select"))
    text = next(option.text for option in select.options if option.text.startswith(value))
    select.select_by_visible_text(text)


def count(driver: Any) -> str:
    return controls(driver).find_element("tag name", "output").text


def test_those_to_look_at_come_first_with_their_pictures(visit, report):
    driver = visit(report)
    first = shown(driver, "look")
    assert first == [f"a/{i}.jpg" for i in range(100, 110)]
    pictures = "return [...document.querySelectorAll('#look img')].map(image => image.naturalWidth)"
    assert driver.execute_script(pictures) == [60] * 10
    driver.find_element("xpath", "//table[@id='look']/..//button[contains(., 'next')]").click()
    assert shown(driver, "look") == [*(f"b/{i}.jpg" for i in range(110, 119)), NAME]
    assert "20 photos" in driver.find_element("xpath", "//table[@id='look']/../preceding-sibling::*[1]").text


def test_filters_leave_what_fits_and_say_how_much(visit, report):
    driver = visit(report)
    assert count(driver) == "120 photos"
    choose(driver, "Level", "1 (50)")  # the ten that contradict themselves among them
    assert count(driver) == "50 photos"
    choose(driver, "Contradiction", "yes (10)")
    assert set(shown(driver)) == {*(f"b/{i}.jpg" for i in range(110, 119)), NAME}
    choose(driver, "Contradiction", "all")
    choose(driver, "Attributes", "non-unique identifier (40)")
    choose(driver, "Folder", "a (40)")
    choose(driver, "Flag", "flagged (40)")
    assert count(driver) == "40 photos"
    choose(driver, "Level", "all")
    choose(driver, "Flag", "all")
    choose(driver, "Attributes", "all")
    choose(driver, "Status", "refused (10)")
    assert count(driver) == "10 photos" and set(shown(driver)) == {f"a/{i}.jpg" for i in range(100, 110)}


def test_a_tile_shows_what_it_counts(visit, report):
    driver = visit(report)
    tiles = {tile.text.split("\n")[1]: tile for tile in driver.find_elements("class name", "tile")}
    assert {name: tile.text.split("\n")[0] for name, tile in tiles.items()} == {
        "level 1": "50",
        "level 2": "0",
        "level 3": "60",
        "level 4": "0",
        "ok": "110",
        "refused": "10",
        "flagged": "40",
        "contradictions": "10",
    }
    for name, expected in (("level 3", "60 photos"), ("refused", "10 photos"), ("level 2", "0 photos")):
        tiles[name].find_element("tag name", "button").click()
        assert count(driver) == expected


def test_search_pages_and_order(visit, report):
    driver = visit(report)
    assert len(shown(driver)) == 50
    turn = "//table[@id='photos']/..//button[contains(., '{}')]"
    driver.find_element("xpath", turn.format("next")).click()
    driver.find_element("xpath", turn.format("next")).click()
    place = driver.find_element("css selector", "#photos ~ .turning span")
    assert place.text == "101 to 120 of 120 photos" and len(shown(driver)) == 20
    assert not driver.find_element("xpath", turn.format("next")).is_enabled()
    search = controls(driver).find_element("css selector", "input[type=search]")
    search.send_keys("government A/3")  # both words, in any column, in any case
    assert set(shown(driver)) == {"a/3.jpg", *(f"a/{i}.jpg" for i in range(30, 40))}
    head = driver.find_element("xpath", "//table[@id='photos']//th[starts-with(., 'Score')]/button")
    head.click()
    assert shown(driver) == [*(f"a/{i}.jpg" for i in range(39, 29, -1)), "a/3.jpg"]
    head.click()
    assert shown(driver) == ["a/3.jpg", *(f"a/{i}.jpg" for i in range(30, 40))]
    search.clear()
    search.send_keys("b/")
    head.click()
    assert shown(driver)[0] == "b/99.jpg" or shown(driver)[0] in {f"b/{i}.jpg" for i in range(110, 119)}


def test_the_csv_holds_the_rows_that_fit(visit, report):
    driver = visit(report)
    choose(driver, "Contradiction", "yes")
    (file,) = [driver.downloads / "photos.csv"]
    file.unlink(missing_ok=True)
    controls(driver).find_element("xpath", ".//button[text()='CSV']").click()
    for _ in range(100):
        if file.exists():
            break
        time.sleep(0.05)
    with open(file, encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert len(rows) == 10 and rows[0]["Status"] == "ok" and rows[0]["Level"] == "1"
    assert rows[0]["Attributes"] == "biometrics" and rows[0]["Score"] == "0.711" and rows[0]["Contradiction"] == "yes"
    assert rows[-1]["Photo"] == "'" + NAME  # no formula to a spreadsheet


@pytest.mark.parametrize("width", [390, 768, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_every_screen_in_both_themes(visit, report, width, theme):
    driver = visit(report, width, theme)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    ground = "return getComputedStyle(document.body).backgroundColor"
    dark, light = "rgb(21, 23, 26)", "rgb(255, 255, 255)"
    assert driver.execute_script(ground) == (dark if theme == "dark" else light)
    driver.find_element("class name", "theme").click()  # the other one, whatever the system says
    assert driver.execute_script(ground) == (light if theme == "dark" else dark)
    assert driver.get_log("browser") == []


def test_on_a_phone_a_select_orders_the_cards(visit, report):
    driver = visit(report, 390)
    assert not driver.find_element("css selector", "#photos thead").is_displayed()
    choose(driver, "Order", "Score, the most first")
    assert shown(driver)[:2] == ["a/39.jpg", "a/38.jpg"] and len(shown(driver)) == 20


def test_hostile_names_stay_text_and_links_lead_to_files(visit, report):
    driver = visit(report)
    assert driver.title == "Privacy risk of 120 photos" and driver.get_log("browser") == []
    link = driver.find_element("css selector", "#look tbody th a")
    assert link.get_attribute("href") == (report.parent / "photos" / "a" / "100.jpg").as_uri()


def test_three_thousand_photos_stay_a_short_page(visit, tmp_path):
    rows = [row(i, i / 3000, ["age", "gender", "location"], "{}.jpg") for i in range(3000)]
    driver = visit(make(tmp_path, rows))
    assert driver.execute_script("return document.documentElement.scrollHeight") < 15_000
    assert driver.execute_script("return document.querySelectorAll('*').length") < 5000
    script = """document.querySelector("#photos th:nth-child(2) button").click();
        const search = document.querySelector("input[type=search]");
        search.value = "00.jpg"; search.dispatchEvent(new Event("input"));"""
    driver.execute_script(script)
    assert driver.execute_script("return document.querySelectorAll('*').length") < 5000
    assert count(driver) == "29 photos"
