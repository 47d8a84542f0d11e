"""The page of ``cprt score``: what it says of the rows, what it marks, and that it runs nothing but its own."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import io
import json
import os
import shutil
import urllib.parse
from typing import Any

import pytest
from judge_endpoint import ANSWERS, PASSPORT, by_width, photo, rows_of
from loopback import Misbehaving
from PIL import Image

from cprt.answers import Answer
from cprt.errors import InputError
from cprt.models.outcome import Outcome
from cprt.models.spec import Response
from cprt.scoring import format_score
from cprt.taxonomy import Taxonomy
from eval.score.options import ScoreArguments
from eval.score.page import COLUMNS, page
from eval.score.photos import Photo
from eval.score.rows import score_row
from eval.score.run import main


class Page(html.parser.HTMLParser):
    """Elements, what stands in styles and scripts, and all other text."""

    def __init__(self, content: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": [], "": []}
        self._open = ""
        self.feed(content)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = tag if tag in self.inside else ""
        if self._open:
            self.inside[tag].append("")

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open:
            self.inside[self._open][-1] += data
        else:
            self.inside[""].append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.inside[""]).split())

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The list of all photos: column -> what its cell holds."""
        data = next(text for text in self.inside["script"] if text.startswith("[["))
        return [dict(zip((column.head for column in COLUMNS), row, strict=True)) for row in json.loads(data)]


def texts(cell: Any) -> str:
    """What a cell shows."""
    if not isinstance(cell, dict):
        return str(cell or "")
    parts = [part for line in cell["lines"] for part in line]
    return " ".join(part if isinstance(part, str) else part[0] for part in parts).replace("\u00a0", " ")


def make_page(judge, folder, tmp_path, *options: str) -> Page:
    main([str(folder), "--base_url", judge.url, "--out", str(tmp_path / "r.html"), "--flag_above", "0.8", *options])
    return Page((tmp_path / "r.html").read_text(encoding="utf-8"))


def test_a_page_shows_what_the_jsonl_came_to_and_asks_and_loads_nothing(folder, tmp_path, monkeypatch):
    """Also of what failed: a photo that breaks off, and one that the endpoint could not answer."""
    whole = photo(folder / "cut.jpg", 21, 400).read_bytes()
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    answer = by_width(ANSWERS)

    def fails(body: dict[str, Any]) -> Any:
        said = answer(body)
        return said if "0.85" in said[0] else (400, {"error": {"message": "no"}})

    with Misbehaving(fails) as server:
        options = [str(folder), "--base_url", server.url, "--out"]
        main([*options, str(tmp_path / "r.jsonl")])
        asked, record = len(server.bodies), (tmp_path / "r.run.json").read_bytes()
        kept = (tmp_path / "r.answers.jsonl").read_bytes()
        main([*options, str(tmp_path / "r.html")])
        assert len(server.bodies) == asked and (tmp_path / "r.run.json").read_bytes() == record
        assert (tmp_path / "r.answers.jsonl").read_bytes() == kept
        assert json.loads((tmp_path / "r.html.run.json").read_text())["config"]["out"] == str(tmp_path / "r.html")
        photo(folder / "new.png", 21, 30)
        main([*options, str(tmp_path / "r.html")])  # and what is new is asked
        assert len(server.bodies) == asked + 1
        main([*options, str(tmp_path / "r.jsonl")])  # errors by the command that met them
        assert len(server.bodies) == 2 * asked
    monkeypatch.setattr("cprt.models.ask.LocalModel", None)
    (tmp_path / "only").mkdir()
    shutil.copy(folder / "cut.jpg", tmp_path / "only")
    for name in ("local.jsonl", "local.html"):  # nothing that could be asked, so that no model is loaded
        with pytest.raises(InputError, match="no photo got a score .the first: cut.jpg"):
            main([str(tmp_path / "only"), "--model", "no/such/folder", "--out", str(tmp_path / name)])


def test_photos_that_the_model_is_not_sure_of_are_looked_at_first(tmp_path):
    """Of three, one is above the threshold with 50%, one with 80% and one with 100%."""
    lists = [{"gov_ids": 0.8, "age": 0.2}, {"gov_ids": 0.5, "age": 0.5}, {"gov_ids": 1.0}]
    rows = []
    for number, of_photo in enumerate(lists):
        answer = Answer("ok", 0.711, 1, 1, ("gov_ids",))
        outcome = Outcome("ok", "{}", answer, response=Response("{}", lists=of_photo))
        args = ScoreArguments(["x"], structured=True, flag_above=0.7, flag_by="expected")
        rows.append(score_row(Photo("p", f"{number}.png"), outcome, args, Taxonomy.default()))
    assert [row["probable"]["uncertain"] for row in rows] == [True, True, False]
    assert [row["flagged"] for row in rows] == [False, False, True]
    files = [tmp_path / f"{number}.png" for number in range(3)]
    html = page(tmp_path / "p.html", rows, files, Taxonomy.default(), {}, with_pictures=False, asks_attributes=True)
    places = [html.index(f"{number}.png") for number in (1, 0, 2)]
    assert places == sorted(places) and "2 photos near the threshold" in html
    half = next(row for row in Page(html).rows if row["Photo"]["value"] == "1.png")
    mean, without, ageless = (format_score(0.5 * score) for score in (0.711 + 0.292, 0.292, 0.711))
    assert texts(
        half["Score"]
    ) == f"{mean} its own 90%: 0.292 to 0.711 level 1 with 50% above the threshold with 50% " + (
        "states 0.711, level 1"
    )
    assert texts(half["Attributes"]) == f"government ID 50%, without it {without} age 50%, without it {ageless}"
    assert (
        texts(half["Hide, in this order"]) == f"government ID → {without}, level 3"
    )  # of equally probable levels the more severe


def test_the_page_runs_nothing_but_its_own_and_asks_nothing_of_the_network(judge, folder, tmp_path):
    photo(folder / "<img src=x onerror=alert(1)>\u202e.png", 21, 33)
    (folder / '"><script>alert(2)<').mkdir()
    (folder / '"><script>alert(2)<' / "broken.png").write_text("no photo")
    page = make_page(judge, folder, tmp_path)
    tags = [tag for tag, _ in page.elements]
    running = [attrs for tag, attrs in page.elements if tag == "script" and attrs.get("type") != "application/json"]
    assert len(running) == tags.count("style") == 1 and not {"img", "link", "iframe", "form", "a"} & set(tags)
    (policy,) = (attrs["content"] for _, attrs in page.elements if attrs.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in str(policy).split(";"))
    assert rules["default-src"] == rules["img-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for kind in ("script", "style"):
        digest = hashlib.sha256(page.inside[kind][-1].encode()).digest()
        assert rules[f"{kind}-src"] == f"'sha256-{base64.b64encode(digest).decode()}'"
    for _, attrs in page.elements:
        assert not [name for name in attrs if name.startswith("on") or name in ("src", "style", "href")]
    names = [row["Photo"]["value"] for row in page.rows]
    assert "<img src=x onerror=alert(1)>\\u202e.png" in names and '"><script>alert(2)</broken.png' in names


def test_the_page_says_what_the_rows_say_those_to_look_at_first(judge, folder, tmp_path):
    page = make_page(judge, folder, tmp_path)
    rows = page.rows
    assert [row["Photo"]["value"] for row in rows] == ["24.png", "25.png", "21.png", "26.png", "22.png", "23.png"]
    assert [row["To look at"] for row in rows] == ["yes", "yes", "no", "no", "no", "no"]
    assert texts(rows[0]["Photo"]) == "24.png refused: I'm sorry, but I can't assist with that request."
    assert texts(rows[2]["Score"]) == "0.879 states 0.850, level 1 flagged" and rows[2]["Level"] == "1"
    assert rows[2]["Attributes"]["value"] == ["biometrics", "government ID", "age"]
    assert texts(rows[2]["Attributes"]).startswith("biometrics without it 0.732, level 1 government ID without it")
    assert texts(rows[2]["Hide, in this order"]) == "biometrics → 0.732, level 1 government ID → 0.292, level 3"
    assert [row["List"] for row in rows] == [None, None, "readable", "unreadable", "readable", "readable"]
    assert [row["Flag"] for row in rows] == [None, None, "flagged", "not flagged", "not flagged", "not flagged"]
    assert "Privacy risk of 6 photos" in page.text and "2 photos without a score" in page.text
    for words in (
        "2 level 1",
        "1 level 3",
        "1 refused",
        "1 unreadable lists",
        "Of 1 photo the list cannot be read",
        "1 flagged",
        "0.8 or more, by the more severe of the score that the model states",
        "taxonomy prompt for attributes and score",
        "Art. 4(14)",
    ):
        assert words in page.text
    lines = [line for row in rows if row["Attributes"] for line in row["Attributes"]["lines"]]
    anchors = {line[0][2] for line in lines if len(line[0]) > 2}
    assert anchors == {f"#law-{key}" for key in ("biometrics", "gov_ids", "age", "location")}
    assert anchors <= {f"#{attrs['id']}" for _, attrs in page.elements if "id" in attrs}


def test_links_lead_from_the_page_to_the_photos(judge, folder, tmp_path):
    odd = os.fsencode(folder) + b"/caf\xe9 #1?.png"
    shutil.copy(folder / "21.png", odd)
    (tmp_path / "pages").mkdir()
    main([str(folder), "--base_url", judge.url, "--out", str(tmp_path / "pages" / "r.html")])
    page = Page((tmp_path / "pages" / "r.html").read_text())
    links = [row["Photo"]["lines"][0][0][2] for row in page.rows]
    assert "../photos/21.png" in links and len(links) == 7
    for link in links:
        assert (tmp_path / "pages").joinpath(os.fsdecode(urllib.parse.unquote_to_bytes(link))).is_file()


def test_contradictions_are_marked_counted_and_flagged(folder, tmp_path, capsys):
    answers = {
        **ANSWERS,
        22: {"attributes": ["gov_ids"], "level": 3, "score": 0.4},  # names a level-1 attribute, states level 3
        23: {"attributes": ["background_people"], "level": 1, "score": 0.994},  # the other way round
    }
    with Misbehaving(by_width(answers)) as server:
        rows = {}
        for by in (None, "stated", "composed"):
            main(
                [str(folder), "--base_url", server.url, "--out", str(tmp_path / "r.jsonl"), "--flag_above", "0.7"]
                + (["--flag_by", by] if by else [])
            )
            rows[by] = {row["path"]: row for row in rows_of(tmp_path / "r.jsonl")}
        said = capsys.readouterr().out
        page = make_page(server, folder, tmp_path)
    assert {path: row["contradiction"] for path, row in rows[None].items()} == {
        "21.png": False,
        "22.png": True,
        "23.png": True,
        "24.png": None,
        "25.png": None,
        "26.png": None,
    }
    flagged = {by: [path for path, row in found.items() if row["flagged"]] for by, found in rows.items()}
    assert flagged == {
        None: ["21.png", "22.png", "23.png", "26.png"],
        "stated": ["21.png", "23.png", "26.png"],
        "composed": ["21.png", "22.png"],
    }
    assert rows["composed"]["26.png"]["flagged"] is None  # names no attributes: a person has to look
    assert rows[None]["22.png"]["flag_score"] == pytest.approx(0.711) and rows[None]["23.png"]["flag_score"] == 0.994
    assert [rows[None]["22.png"][name] for name in ("score", "level")] == [0.4, 3]  # what the model said stays
    assert "; 2 contradictions: the score and the attributes are of two levels" in said
    assert "contradiction: states 0.400, level 3; its attributes make 0.711, level 1" in said
    assert "2 contradictions: the score that the model states" in page.text
    shown = {row["Photo"]["value"]: row for row in page.rows}
    assert "contradiction: states 0.994, level 1; its attributes make 0.000, level 4" in texts(shown["23.png"]["Photo"])
    assert [shown[f"{width}.png"]["Contradiction"] for width in (21, 22, 23, 26)] == ["no", "yes", "yes", None]
    assert [row["Photo"]["value"] for row in page.rows if row["To look at"] == "yes"] == [
        "24.png",
        "25.png",
        "23.png",
        "22.png",
    ]


def test_thumbnails_are_small_pixels_and_nothing_else_also_of_photos_without_a_score(judge, folder, tmp_path):
    exif = Image.Exif()
    exif[0x010E] = "my secret place"
    photo(folder / "21.png", 21).unlink()
    photo(folder / "big.jpg", 600, 400, exif=exif)
    with Misbehaving(by_width({**ANSWERS, 600: PASSPORT})) as server:
        page = make_page(server, folder, tmp_path, "--thumbnails", "true")
    pictures = json.loads(next(text for text in page.inside["script"] if "image/jpeg" in text))
    assert len(pictures) == 6 and all(source.startswith("data:image/jpeg;base64,") for source in pictures)
    shown = {row["Photo"]["value"]: row["Photo"]["picture"] for row in page.rows}
    data = base64.b64decode(pictures[shown["big.jpg"]].partition(",")[2])
    assert b"secret" not in data and b"Exif" not in data and "24.png" in shown
    with Image.open(io.BytesIO(data)) as image:
        assert image.width <= 160 and image.width == pytest.approx(1.5 * image.height, abs=2)
