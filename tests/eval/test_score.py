"""``cprt score`` as a user runs it: rows and advice, real endpoints, kills, the tiny model and adapters."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from judge_endpoint import ANSWERS, PASSPORT, by_width, photo, rows_of
from loopback import Misbehaving

from cprt.answers import Answer
from cprt.errors import InputError
from cprt.guidance.regulations import regulations_of
from cprt.guidance.risk import Risk
from cprt.models.ask import Model
from cprt.models.outcome import Outcome
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Request, Response
from cprt.prompts import build
from cprt.scoring import format_score
from cprt.taxonomy import Taxonomy
from eval.score.options import ScoreArguments
from eval.score.photos import Photo
from eval.score.rows import beside, score_row
from eval.score.run import main, settle
from eval.score.table import show_table


def level_1(s: float) -> float:
    """Eq. 17-20 for level 1: S_max = 330 * 3 + 30 * 10 + 5 * 5 + 4 = 1319."""
    return 0.711 + 0.289 * math.sqrt((s - 330) / (1319 - 330))


def test_a_row_holds_level_score_regulations_and_advice(judge, folder, tmp_path, capsys):
    out = tmp_path / "r.jsonl"
    main([str(folder), "--base_url", judge.url, "--out", str(out), "--flag_above", "0.85"])
    rows = {row["path"]: row for row in rows_of(out)}
    row = rows["21.png"]
    assert (row["root"], row["status"], row["score"], row["level"], row["error"]) == (str(folder), "ok", 0.85, 1, None)
    assert row["flagged"] is True and json.loads(row["text"]) == PASSPORT
    assert [one["key"] for one in row["attributes"]] == ["biometrics", "gov_ids", "age"]  # the taxonomy's order
    first, _, age = row["attributes"]
    assert (first["name"], first["level"]) == ("biometrics", 1)
    assert first["regulations"] == regulations_of("biometrics") and "GDPR" in first["regulations"]
    assert age["regulations"] is None  # Table 4 has no row for it
    assert first["score_without"] == pytest.approx(level_1(335)) and first["level_without"] == 1
    assert age["score_without"] == pytest.approx(level_1(660)) and age["level_without"] == 1
    advice = row["advice"]
    assert advice["composed_score"] == pytest.approx(level_1(665)) and advice["composed_level"] == 1
    assert advice["hide_first"] == "biometrics"
    assert [(step["hide"], step["level"]) for step in advice["order"]] == [("biometrics", 1), ("gov_ids", 3)]
    assert advice["order"][0]["score"] == pytest.approx(level_1(335)) and advice["order"][1]["score"] == 0.292
    assert rows["22.png"]["flagged"] is False and rows["23.png"]["advice"]["hide_first"] is None
    # What has no score is never flagged or cleared.
    assert [(rows[f"{width}.png"]["status"], rows[f"{width}.png"]["flagged"]) for width in (24, 25)] == [
        ("refused", None),
        ("unparsed", None),
    ]
    # A score whose list of attributes cannot be trusted has no advice.
    assert (rows["26.png"]["score"], rows["26.png"]["attributes"], rows["26.png"]["advice"]) == (0.75, None, None)
    said = capsys.readouterr()
    assert said.out.splitlines()[1].split() == ["0.879", "1", "*", "21.png"]  # by what it is flagged by
    assert "states 0.850, level 1" in said.out and "named attributes make 0.879, level 1; without" in said.out
    assert "hide biometrics, then gov_ids: 0.292, level 3" in said.out
    assert "Art. 4(14)" not in said.out  # the file has it
    assert "6 photos (4 ok, 1 unparsed, 1 refused); 1 flagged (score 0.85 or more)" in said.out
    assert "no score: 24.png: refused" in said.err and "images leave" not in said.err
    assert "1 list of attributes cannot be read, so no advice follows; --structured true helps" in said.err
    record = json.loads((tmp_path / "r.run.json").read_text())
    assert record["counts"] == {"ok": 4, "refused": 1, "unparsed": 1}
    assert record["prompt"] == build("taxonomy", "attributes").identity()
    assert str(judge.port) not in json.dumps(record)
    main([str(folder), "--base_url", judge.url])  # without a file the laws stand on the terminal
    said = capsys.readouterr().out
    assert "Art. 4(14)" in said and "age: no row in Table 4" in said


def test_answers_are_structured_when_told(tmp_path):
    photo(tmp_path / "21.png", 21)
    with Misbehaving(lambda body: (json.dumps(PASSPORT) if "response_format" in body else "0.9", "stop")) as server:
        for name, more in (("free", []), ("held", ["--structured", "true"])):
            main([str(tmp_path), "--base_url", server.url, "--out", str(tmp_path / f"{name}.jsonl"), *more])
    assert [row["score"] for name in ("free", "held") for row in rows_of(tmp_path / f"{name}.jsonl")] == [0.9, 0.85]
    schema = server.bodies[1]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["attributes"]["items"]["enum"] == list(Taxonomy.default().keys)
    assert "response_format" not in server.bodies[0]
    assert "free" not in rows_of(tmp_path / "held.jsonl")[0]


def test_an_answer_that_an_endpoint_did_not_hold_to_the_form_says_so(tmp_path, capsys):
    photo(tmp_path / "21.png", 21)
    with Misbehaving(lambda body: ("0.9", "stop")) as server:
        main([str(tmp_path), "--base_url", server.url, "--out", str(tmp_path / "r.jsonl"), "--structured", "true"])
    (row,) = rows_of(tmp_path / "r.jsonl")
    assert (row["score"], row["free"]) == (0.9, True) and "response_format" in server.bodies[0]
    assert json.loads((tmp_path / "r.run.json").read_text())["free_answers"] == 1
    assert "note: 1 of 1 answers are free ones" in capsys.readouterr().err


def test_the_goal_of_the_advice(judge, folder, tmp_path):
    main([str(folder / "21.png"), "--base_url", judge.url, "--out", str(tmp_path / "r.jsonl"), "--until_level", "4"])
    (row,) = rows_of(tmp_path / "r.jsonl")
    assert (row["root"], row["path"]) == (str(folder), "21.png")
    assert [step["hide"] for step in row["advice"]["order"]] == ["biometrics", "gov_ids", "age"]
    main([str(folder / "21.png"), "--base_url", judge.url, "--out", str(tmp_path / "r.jsonl"), "--until_score", "0.8"])
    assert [step["hide"] for step in rows_of(tmp_path / "r.jsonl")[0]["advice"]["order"]] == ["biometrics"]


def test_what_was_answered_is_never_asked_again_whatever_the_format(judge, folder, tmp_path):
    for name in ("r.jsonl", "r.jsonl", "r.html"):
        main([str(folder), "--base_url", judge.url, "--out", str(tmp_path / name)])
    shutil.copy(folder / "21.png", folder / "copy.png")
    main([str(folder), "--base_url", judge.url, "--out", str(tmp_path / "r.jsonl")])
    assert len(judge.bodies) == len(ANSWERS)
    assert rows_of(tmp_path / "r.jsonl")[-1]["score"] == 0.85
    main([str(folder), "--base_url", judge.url])  # no file: nothing is kept, and nothing was
    assert len(judge.bodies) == 2 * len(ANSWERS)


def test_without_one_score_the_status_is_2_and_the_rows_are_there(judge, folder, tmp_path):
    out = tmp_path / "r.jsonl"
    with pytest.raises(InputError, match=r"no photo got a score \(the first: 24.png: refused: I'm sorry"):
        main([str(folder / "24.png"), str(folder / "25.png"), "--base_url", judge.url, "--out", str(out)])
    assert [row["status"] for row in rows_of(out)] == ["refused", "unparsed"]


def test_an_endpoint_that_refuses_the_key_stops_the_run_and_what_came_is_written(folder, tmp_path):
    server = Misbehaving(lambda body: (401, {}) if len(server.bodies) > 2 else by_width(ANSWERS)(body))
    with server, pytest.raises(InputError, match="refuses a call without a key"):
        main([str(folder), "--base_url", server.url, "--out", str(tmp_path / "r.jsonl"), "--concurrency", "1"])
    statuses = [row["status"] for row in rows_of(tmp_path / "r.jsonl")]
    assert len(statuses) == 6 and statuses.count("error") == 4
    assert "not asked: the run stopped before" in (tmp_path / "r.jsonl").read_text()


def test_photos_leave_the_machine_only_when_allowed_and_with_a_word(judge, folder, tmp_path, capsys):
    url = f"http://0.0.0.0:{judge.port}/v1"  # reaches this machine, and is no loopback address
    with pytest.raises(InputError, match="images would leave this one"):
        main([str(folder), "--base_url", url, "--out", str(tmp_path / "r.jsonl")])
    assert judge.bodies == []
    main([str(folder), "--base_url", url, "--out", str(tmp_path / "r.jsonl"), "--allow_remote", "true"])
    assert "another machine: up to 6 images leave this one" in capsys.readouterr().err
    assert len(judge.bodies) == 6


def test_a_kill_loses_and_doubles_nothing(folder, tmp_path):
    for number in range(20):
        photo(folder / f"more{number}.png", 21)
    plain, killed = tmp_path / "plain.jsonl", tmp_path / "killed.jsonl"
    with Misbehaving(by_width(ANSWERS), delay=0.03) as server:
        options = ["--base_url", server.url, "--concurrency", "1", "--out"]
        main([str(folder), *options, str(plain)])
        command = [sys.executable, "-m", "eval.score.run", str(folder), *options, str(killed)]
        kept = tmp_path / "killed.answers.jsonl"
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and (not kept.exists() or kept.read_bytes().count(b"\n") < 9):
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert kept.read_bytes().count(b"\n") < 26 and not killed.exists(), "killed too late to prove anything"
        subprocess.run(command, check=True, capture_output=True)
    keys = [json.loads(line)["key"] for line in kept.read_text().splitlines()]
    assert len(keys) == len(set(keys)) == 26
    assert killed.read_text() == plain.read_text()


# --- Local models and adapters -----------------------------------------------------------------------------------


def test_a_local_model_says_how_probable_attributes_are(demo_base, tmp_path, capsys):
    """Flagged, ordered and shown first by the mean over its lists, as the kept answers have them."""
    for width in (64, 96, 128):
        photo(tmp_path / f"{width}.png", width, 64)
    how = ["--model", str(demo_base), "--dtype", "float32", "--max_pixels", "9216", "--structured", "true"]
    out = tmp_path / "r.jsonl"
    main([str(tmp_path), *how, "--flag_above", "0.3", "--out", str(out)])
    said = capsys.readouterr().out
    rows = rows_of(out)
    kept = [json.loads(line)["answer"]["lists"] for line in (tmp_path / "r.answers.jsonl").read_text().splitlines()]
    risks = [Risk.read(lists, Taxonomy.default()) for lists in kept]
    assert sorted(row["probable"]["score"] for row in rows) == pytest.approx(sorted(risk.mean for risk in risks))
    for row in rows:
        told = row["probable"]
        risk = min(risks, key=lambda risk: abs(risk.mean - told["score"]))
        assert row["flag_score"] == told["score"] and row["flagged"] is (told["score"] >= 0.3)
        assert 0 < row["willing"] < 0.01  # a base that answers nothing that can be read when it is free
        assert told["exceeds"] == pytest.approx(risk.exceeds(0.3)) and told["band"] == pytest.approx(list(risk.band))
        assert told["uncertain"] is (0.05 < told["exceeds"] < 0.95) and told["level"] == risk.level
        left = [one["score_without"] for one in told["attributes"]]
        assert left == sorted(left) and all(one["probability"] >= 0.05 for one in told["attributes"])
        for one in told["attributes"]:
            assert one["score_without"] == pytest.approx(risk.hiding(one["key"]).mean)
        assert [(one["hide"], one["score"], one["level"]) for one in told["order"]] == [
            (step.key, pytest.approx(step.score), step.level) for step in risk.hide_in_order()
        ]
        low, high = map(format_score, told["band"])
        assert f"its own 90%: {low} to {high}; level {told['level']} with" in " ".join(said.split())
    main([str(tmp_path), *how, "--flag_above", "0.3", "--out", str(tmp_path / "r.html")])
    page = (tmp_path / "r.html").read_text()
    unsure = sum(row["probable"]["uncertain"] for row in rows)
    assert "mean severity over all lists" in page and (f"{unsure} photo" in page) is bool(unsure)
    assert "the middle 90% of the model&#39;s own probability, which is no promise" in page

    # With a hold-out whose truth lies 0.05 above each band, both ends move out by as much.
    wanted = [{"id": str(n), "level": 1, "score": 0.85} for n in range(9)]
    held = [row | {"status": "ok", "mean_score": 0.75, "score_band": [0.7, 0.8]} for row in wanted]
    for name, content in (("l", wanted), ("p", held)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    chosen = ["--threshold_from", str(tmp_path / "p.jsonl"), "--threshold_labels", str(tmp_path / "l.jsonl")]
    capsys.readouterr()
    main([str(tmp_path), *how, *chosen, "--out", str(tmp_path / "r.html")])
    assert "90% bands are widened by 0.050 (9 labelled photos)" in capsys.readouterr().out
    page = (tmp_path / "r.html").read_text()
    assert "hold the truth in 90% of photos like the 9 labelled ones" in page
    main([str(tmp_path), *how, *chosen, "--out", str(out)])
    for before, after in zip(rows, rows_of(out), strict=True):
        low, high = before["probable"]["band"]
        assert after["probable"]["band"] == pytest.approx([max(0, low - 0.05), min(1, high + 0.05)])
        assert after["probable"]["band_calibrated"] and not before["probable"]["band_calibrated"]

    # With one that leaves no doubt about any labelled photo, what the model is in doubt about is left to a person.
    certain = [row | {"score_deviation": 0.0} for row in held]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in certain))
    capsys.readouterr()
    main([str(tmp_path), *how, *chosen, "--abstain", "0.2", "--out", str(out)])
    said = capsys.readouterr().out
    assert "no closer than 0.000 (standard deviation), 0 of 9 labelled photos; MAE on the others 0.100" in said
    assert all(row["probable"]["abstains"] and row["probable"]["deviation"] > 0 for row in rows_of(out))
    assert "3 photos left to a person: the model is too uncertain" in said
    assert json.loads((tmp_path / "r.run.json").read_text())["abstention"]["mae"] == pytest.approx(0.1)
    main([str(tmp_path), *how, *chosen, "--abstain", "0.2", "--out", str(tmp_path / "r.html")])
    assert "Left to a person" in (tmp_path / "r.html").read_text()


def test_what_is_nearly_sure_or_outside_its_band_is_said_so(capsys):
    """94.8% is below the 95% asked for; a mean may lie outside the middle 90%; what hiding leaves is a mean."""
    taxonomy, answer = Taxonomy.default(), Answer("ok", 0.711, 1, 1, ("gov_ids",))
    args = ScoreArguments(["x"], structured=True, flag_above=0.7, flag_by="expected")
    for share, said in ((0.948, ["above the threshold with 94%"]), (0.96, ["0.711 to 0.711, the mean outside by unl"])):
        outcome = Outcome("ok", "{}", answer, response=Response("{}", lists={"gov_ids": share, "": 1 - share}))
        row = score_row(Photo("p", "0.png"), outcome, args, taxonomy)
        assert all(part in "; ".join(beside(row, format_score)) for part in said)
        show_table([row], taxonomy, flagging=True, full=True)
        assert "hide gov_ids: mean 0.000, likeliest level 4" in capsys.readouterr().out
    nothing = Outcome("ok", "{}", Answer("ok", 0.0, 4, 4, ()), response=Response("{}", lists={"": 1.0}))
    show_table([score_row(Photo("p", "0.png"), nothing, args, taxonomy)], taxonomy, flagging=True, full=True)
    assert "how probable" not in capsys.readouterr().out


def test_a_row_says_where_the_lists_that_were_found_hold_little():
    answer, args = Answer("ok", 0.711, 1, 1, ("gov_ids",)), ScoreArguments(["x"], structured=True, flag_by="expected")
    for mass, said in ((0.4, True), (0.6, False)):
        outcome = Outcome("ok", "{}", answer, response=Response("{}", lists={"gov_ids": mass}))
        row = score_row(Photo("p", "0.png"), outcome, args, Taxonomy.default())
        assert ("lists found hold 40% of its probability" in beside(row, format_score)) is said


def test_a_local_model_says_what_it_says_elsewhere(demo_base, adapter, tmp_path, capsys):
    """The tiny models answer no privacy question: their words are kept, and nothing is made of them."""
    chosen = [photo(tmp_path / f"{width}.png", width, 64) for width in (64, 96, 128)]
    with pytest.raises(InputError, match="no photo got a score"):
        main(
            [
                *map(str, chosen),
                "--model",
                str(demo_base),
                "--adapter",
                str(adapter),
                "--dtype",
                "float32",
                "--max_new_tokens",
                "12",
                "--batch_size",
                "2",
                "--target",
                "score",
                "--prompt",
                "zero_shot",
                "--max_pixels",
                "9216",
                "--out",
                str(tmp_path / "r.jsonl"),
            ]
        )
    row = {
        "name": "m",
        "model": str(demo_base),
        "adapter": str(adapter),
        "dtype": "float32",
        "max_new_tokens": 12,
        "max_pixels": 9216,
        "batch_size": 1,
    }
    model = Model(ModelSpec.read(row, "spec"))
    requests = {str(path): Request(build("zero_shot").messages(), (path,)) for path in chosen}
    with ResponseCache(tmp_path / "alone.jsonl") as cache:
        model.ask(requests, cache, "alone")
        expected = [cache.rows(str(path))[0]["text"] for path in chosen]
    rows = rows_of(tmp_path / "r.jsonl")
    assert [row["text"] for row in sorted(rows, key=lambda row: int(row["path"][:-4]))] == expected
    assert {row["status"] for row in rows} == {"unparsed"} and {row["score"] for row in rows} == {None}
    assert "scores alone, without attributes and advice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("trained", "options", "asked", "said"),
    [
        (None, {}, ("taxonomy", "attributes"), ""),
        (None, {"prompt": "zero_shot"}, ("zero_shot", "score"), "scores alone"),
        (("taxonomy", "attributes"), {}, ("taxonomy", "attributes"), ""),
        (("taxonomy", "score"), {}, ("taxonomy", "score"), "--target score, as ADAPTER was trained: scores alone"),
        (("intuition", "score"), {}, ("intuition", "score"), "as ADAPTER was trained"),
        (
            ("intuition", "score"),
            {"target": "attributes"},
            ("taxonomy", "attributes"),
            "ADAPTER was trained with --prompt intuition --target score: asked otherwise",
        ),
        (("taxonomy", "score"), {"target": "attributes"}, ("taxonomy", "attributes"), "asked otherwise"),
        (("zero_shot", "score"), {"target": "score"}, ("zero_shot", "score"), "scores alone"),
    ],
)
def test_an_adapter_is_asked_as_it_was_trained(adapter, tmp_path, capsys, trained, options, asked, said):
    folder = tmp_path / "adapter"
    shutil.copytree(adapter, folder)
    if trained:
        (folder / "run.json").write_text(json.dumps({"prompt": build(*trained).identity()}))
    judge = settle(ScoreArguments(["x"], adapter=str(folder), **options), Taxonomy.default())
    assert (judge.prompt.name, judge.prompt.target) == asked
    err = capsys.readouterr().err
    assert said.replace("ADAPTER", str(folder)) in err and (said != "" or err == "")
    assert judge.spec.max_pixels is None  # the cap that the adapter brings


def test_a_prompt_that_is_not_known_here_gets_a_word(adapter, tmp_path, capsys):
    folder = tmp_path / "adapter"
    shutil.copytree(adapter, folder)
    (folder / "run.json").write_text('{"prompt": {"name": "taxonomy"}}')
    assert settle(ScoreArguments(["x"], adapter=str(folder)), Taxonomy.default()).prompt.target == "attributes"
    assert "not known here" in capsys.readouterr().err
    (folder / "adapter_config.json").unlink()
    with pytest.raises(InputError, match="is not an adapter folder"):
        settle(ScoreArguments(["x"], adapter=str(folder)), Taxonomy.default())
    assert capsys.readouterr().err == ""  # that it is none is all there is to say


# --- Bad input ---------------------------------------------------------------------------------------------------

_THRESHOLD = ["--threshold_from", "p.jsonl", "--threshold_labels", "l.jsonl"]


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        ([], "name photos, or folders of photos"),
        (["x", "--out", "r.csv"], "'r.csv' is neither NAME.jsonl nor NAME.html"),
        (["x", "--thumbnails", "true"], "thumbnails need --out NAME.html"),
        (["x", "--threshold_from", "p.jsonl"], "threshold_from and threshold_labels need each other"),
        (["x", "--flag_above", "1.2"], "flag_above must be more than 0 and at most 1"),
        (["x", "--flag_above", "nan"], "'nan' is not a number"),
        (["x", "--population", "1", "1", "1", "1"], "population goes with threshold_from"),
        ([*_THRESHOLD, "--population", "1", "2"], "population: needs four shares"),
        ([*_THRESHOLD, "--population", *["1e200"] * 4], "population: needs four shares"),
        ([*_THRESHOLD, "--population", "1e-320", "1", "1", "1"], "population: needs four shares"),
        (["x", "--max_pixels", "0"], "max_pixels must be at least 1"),
        (["x", "--population", "nan", "1", "1", "1"], "'nan' is not a number"),
        (["x", "--flag_by", "both"], "invalid choice: 'both'"),
        (["x", "--flag_by", "expected"], "flag_by expected needs --structured true"),
        (["x", "--flag_by", "composed", "--target", "score"], "flag_by composed needs target attributes"),
        (["x", "--until_level", "1"], "until_level must be 2 to 4"),
        (["x", "--target", "attributes", "--prompt", "intuition"], "target 'attributes' needs prompt 'taxonomy'"),
        (["x", "--batch_size", "0"], "batch_size must be at least 1"),
        (["x", "--base_url", "ftp://x"], "must be http(s)://"),
        (["x", "--base_url", "http://127.0.0.1:1/v1", "--adapter", "y"], "y: is not an adapter folder"),
        (["x", "--taxonomy", "nowhere.yaml"], "nowhere.yaml: No such file"),
    ],
)
def test_bad_options_get_one_line(argv, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        main(argv)
    assert complaint in str(caught.value) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_photos_and_two_runs_at_once(judge, folder, tmp_path):
    (tmp_path / "none\n").mkdir()
    with pytest.raises(InputError, match=r"no photos in .*none\\n$"):
        main([str(tmp_path / "none\n"), "--base_url", judge.url])
    with ResponseCache(tmp_path / "r.answers.jsonl"), pytest.raises(InputError, match="another run is writing here"):
        main([str(folder), "--base_url", judge.url, "--out", str(tmp_path / "r.html")])
