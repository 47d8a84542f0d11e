"""``cprt compare``: paired differences with a correction, refusals, curves over training, and what goes to W&B."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged import TAXONOMY, judge, make_labels, paired_difference, write_folder
from wandb_file import find_run, read_run, read_table

from cprt.errors import InputError
from cprt.records import Label, Prediction, read_json, write_json, write_jsonl
from eval.compare.differences import FIGURES, choose_pairs, coverage_difference, differences, holm, over_seeds
from eval.compare.results import Spread
from eval.compare.run import main
from eval.measures import HEADS, measure
from eval.runs import EvaluatedRun, find_runs, read_runs, unique_names

NOTHING = measure([], [], TAXONOMY, "x")  # metrics that differences do not look at
ADAPTERS = "/home/somebody/outputs/tuned/checkpoint-"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base, two checkpoints of a training, and another judge; noise falls with training."""
    top, labels = tmp_path_factory.mktemp("runs"), make_labels(90)
    secret = [replace(row, text="secret answer") for row in judge(labels, 0.4, seed=1, lost=0.1)]
    write_folder(top / "base", labels, secret)
    write_folder(top / "c20", labels, judge(labels, 0.25, seed=2), f"{ADAPTERS}20")
    write_folder(top / "c80", labels, judge(labels, 0.05, seed=3), f"{ADAPTERS}80")
    write_folder(top / "same", labels, judge(labels, 0.05, seed=3), "elsewhere/final", model="digest of another base")
    return top


def options(folders: Path, out: Path, *names: str) -> list[str]:
    runs = [str(folders / name) for name in names or ("base", "c20", "c80", "same")]
    return ["--runs", *runs, "--labels", str(folders / "labels.jsonl"), "--out", str(out)]


@pytest.fixture(scope="module")
def compared(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command as a user runs it, with W&B, where environment and folder could give the user away."""
    out = tmp_path_factory.mktemp("compared") / "somebody" / "out"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    command = [sys.executable, "-m", "eval.compare.run", *options(folders, out), "--wandb", "true"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env={**environment, "USER": "somebody", "LOGNAME": "somebody"},
    )
    (out / "terminal.txt").write_text(done.stdout)
    return out


# --- Differences ---------------------------------------------------------------------------------------------------


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, None, 0.02]) == [0.02, None, 0.02]
    assert holm([]) == [] and holm([None]) == [None] and holm([0.9, 0.8]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_as_the_step_down_procedure_says(p_values: list[float]):
    adjusted, m = holm(p_values), len(p_values)
    rejected, going = set(), True
    for rank, place in enumerate(sorted(range(m), key=p_values.__getitem__)):
        going = going and p_values[place] * (m - rank) < 0.05
        if going:
            rejected.add(place)
    assert {place for place, p in enumerate(adjusted) if p is not None and p < 0.05} == rejected


def test_differences_are_paired_on_the_photos_that_both_scored(folders, compared):
    comparison = read_json(compared / "compare.json")
    labels = make_labels(90)
    base, tuned = judge(labels, 0.4, seed=1, lost=0.1), judge(labels, 0.05, seed=3)
    both = [row.score is not None for row in base]
    columns = [
        np.asarray(values, dtype=float)[both]
        for values in (
            [label.score for label in labels],
            [row.score for row in tuned],
            [row.score for row in base],
            [label.level for label in labels],
        )
    ]
    expected = paired_difference(*columns, TAXONOMY, resamples=2000, seed=0)
    (pair,) = [row for row in comparison["differences"] if (row["run"], row["against"]) == ("c80", "base")]
    assert pair["n"] == sum(both) < 90
    for name in FIGURES:
        assert {key: pair["figures"][name][key] for key in ("difference", "ci", "p")} == expected[name]
    error = float(np.abs(columns[1] - columns[0]).mean() - np.abs(columns[2] - columns[0]).mean())
    assert pair["figures"]["mae"]["difference"] == pytest.approx(error)
    assert comparison["correction"] == {"method": "Holm", "tests": 21, "alpha": 0.05, "resamples": 2000, "seed": 0}
    flat = [test for row in comparison["differences"] for test in row["figures"].values()]
    assert [test["p_holm"] for test in flat] == holm([test["p"] for test in flat])
    assert pair["figures"]["mae"]["beyond_noise"] is True


def held_against(first: list[Prediction], second: list[Prediction], labels: list[Label]) -> dict[str, Any]:
    runs = [EvaluatedRun(name, rows, NOTHING, {}) for name, rows in (("a", first), ("b", second))]
    (pair,) = differences(runs, [("b", "a")], labels, TAXONOMY, resamples=500, seed=0)
    return {name: vars(test) for name, test in pair.figures.items()}


def test_equal_runs_do_not_differ():
    labels = make_labels(60)
    figures = held_against(judge(labels, 0.1), judge(labels, 0.1), labels)
    assert {test["difference"] for test in figures.values()} == {0.0}
    assert {test["p_holm"] for test in figures.values()} == {1.0}
    assert {test["beyond_noise"] for test in figures.values()} == {False}
    assert {test["ci"] for test in figures.values()} == {None}  # all resamples say 0, which is no interval


def test_a_constant_judge_has_no_correlation_to_differ_in():
    labels = make_labels(60)
    figures = held_against(judge(labels, 0.1), [replace(row, score=0.5) for row in judge(labels, 0.1)], labels)
    assert figures["spearman"] == {"difference": None, "ci": None, "p": None, "p_holm": None, "beyond_noise": None}
    assert figures["mae"]["beyond_noise"] is True


def test_runs_without_a_common_photo_have_no_difference():
    labels = make_labels(20)
    first, second = judge(labels, 0.1, lost=1.0), judge(labels, 0.1)
    assert {test["difference"] for test in held_against(first, second, labels).values()} == {None}


def test_pairs():
    assert choose_pairs(["a", "b", "c"], None) == [("b", "a"), ("c", "a")]
    assert choose_pairs(["a", "b", "c"], "b") == [("a", "b"), ("c", "b")]
    assert choose_pairs(["a", "b", "c"], "all") == [("b", "a"), ("c", "a"), ("c", "b")]
    assert choose_pairs(["a"], None) == []
    with pytest.raises(InputError, match=r"no run is called 'd' \(there are a, b\)"):
        choose_pairs(["a", "b"], "d")


# --- Terminal, page, W&B -------------------------------------------------------------------------------------------


def test_the_terminal_shows_figures_and_stars(compared):
    lines = (compared / "terminal.txt").read_text().splitlines()
    comparison = read_json(compared / "compare.json")
    assert lines[0].split() == " ".join(HEADS.values()).split()
    assert max(map(len, lines[:12])) <= 120
    tuned = comparison["runs"]["c80"]
    assert lines[3].split() == ["c80", *(f"{tuned[name]:.3f}" for name in HEADS)]
    assert "coverage by McNemar's exact test, corrected for the coverage of 3 pairs" in lines
    (row,) = [line for line in lines[6:] if line.startswith("c80")]
    for name, cell in zip(FIGURES, row.split()[1:], strict=False):
        test = comparison["differences"][1]["figures"][name]
        assert cell == f"{test['difference']:+.3f}" + "*" * test["beyond_noise"]


def test_the_page_holds_differences_and_curves(compared):
    html = (compared / "report.html").read_text()
    assert "<h2>Differences</h2>" in html and "<h2>Over training</h2>" in html
    assert all((compared / name).is_file() for name in ("scores.png", "confusion.png", "calibration.png", "run.json"))
    assert "image/jpeg" not in html


def test_curves_start_with_the_base(compared):
    comparison = read_json(compared / "compare.json")
    assert list(comparison["curves"]) == ["tuned"]
    points = comparison["curves"]["tuned"]
    # "same" is of another base and of a final adapter, whose step is unknown.
    assert [(point["step"], point["run"]) for point in points] == [(0, "base"), (20, "c20"), (80, "c80")]
    assert [point["mae"] for point in points] == [comparison["runs"][run]["mae"] for run in ("base", "c20", "c80")]


def test_weights_and_biases_get_what_the_page_says(compared):
    comparison = read_json(compared / "compare.json")
    path = find_run(compared)
    run = read_run(path)
    assert run.project == "cprt" and run.config["runs"] == ["base", "c20", "c80", "same"]
    curve = [row for row in run.history if "training_step" in row]
    assert [row["training_step"] for row in curve] == [0, 20, 80]
    for row, point in zip(curve, comparison["curves"]["tuned"], strict=True):
        assert {name: row[f"over_training/{name}/tuned"] for name in HEADS} == {name: point[name] for name in HEADS}
    tables = {
        key: read_table(path, row[key])
        for row in run.history
        for key in ("figures", "differences", "confusion")
        if key in row
    }
    figures = [dict(zip(tables["figures"]["columns"], row, strict=True)) for row in tables["figures"]["data"]]
    assert [row["spearman"] for row in figures] == [part["spearman"] for part in comparison["runs"].values()]
    assert [[row["mae low"], row["mae high"]] for row in figures] == [
        part["ci"]["mae"] for part in comparison["runs"].values()
    ]
    assert len(tables["differences"]["data"]) == 3 * len(FIGURES)
    assert [row[2:] for row in tables["confusion"]["data"] if row[0] == "c80"] == comparison["runs"]["c80"]["confusion"]
    assert run.summary["c80/mae"] == comparison["runs"]["c80"]["mae"]


def test_no_answer_id_path_or_picture_goes_to_weights_and_biases(compared):
    files = [file for file in find_run(compared).parent.rglob("*") if file.is_file() and "logs" not in file.parts]
    assert files
    for file in files:
        data = file.read_bytes()
        for secret in (b"somebody", b"secret answer", b"photo_0", b"\x89PNG", b"\xff\xd8\xff", sys.executable.encode()):
            assert secret not in data, (file.name, secret)
        assert str(compared.parents[1]).encode() not in data


# --- Folders -------------------------------------------------------------------------------------------------------


def test_a_folder_of_judges_stands_for_all_in_it(folders):
    names = ["base", "c20", "c80", "same"]
    assert find_runs([str(folders)]) == {name: folders / name for name in names}
    found = find_runs([str(folders / "c80"), str(folders / "base")])
    assert list(found.items()) == [("c80", folders / "c80"), ("base", folders / "base")]


def test_a_folder_that_is_a_run_and_holds_others_is_neither(folders, tmp_path):
    both = tmp_path / "both"
    shutil.copytree(folders, both)
    shutil.copy(both / "base" / "predictions.jsonl", both)
    with pytest.raises(InputError, match="holds a run of its own, .*, and runs in its folders: name those you mean"):
        find_runs([str(both)])
    assert list(find_runs([str(both / "predictions.jsonl"), str(both / "c80")]).values()) == [both, both / "c80"]


def test_names_take_as_much_of_the_path_as_tells_them_apart(tmp_path):
    assert unique_names([tmp_path / "a" / "x", tmp_path / "b" / "x"]) == ["a/x", "b/x"]
    assert unique_names([tmp_path / "x", tmp_path / "y\x1b[2J"]) == ["x", "y\\x1b[2J"]
    assert unique_names([Path("/x/y"), Path("/x/y")]) == ["//x/y-1", "//x/y-2"]  # an end, whatever is given
    (tmp_path / "base").mkdir()
    for file in ("base/predictions.jsonl", "base.jsonl"):
        (tmp_path / file).touch()
    both = [str(tmp_path / "base"), str(tmp_path / "base.jsonl")]
    assert find_runs(both) == {"base": tmp_path / "base", "base.jsonl": tmp_path / "base.jsonl"}


def test_one_run_alone_gets_a_page(folders, tmp_path, capsys):
    main(options(folders, tmp_path, "c80"))
    html = (tmp_path / "report.html").read_text()
    assert "<h2>Differences</h2>" not in html and "<h2>Results</h2>" in html
    assert "minus" not in capsys.readouterr().out


@pytest.mark.slow
def test_what_cprt_eval_leaves_can_be_compared(demo, demo_base, adapter, tmp_path):
    """The real command on the tiny model: the base and two checkpoints."""
    from eval.run import main as evaluate

    for step in (5, 10):
        shutil.copytree(adapter, tmp_path / "trained" / f"checkpoint-{step}")
    common = [
        "--model",
        str(demo_base),
        "--labels",
        str(demo.test_labels),
        "--images",
        str(demo.images),
        "--prompt",
        "zero_shot",
        "--dtype",
        "float32",
        "--max_new_tokens",
        "24",
    ]
    evaluate([*common, "--out", str(tmp_path / "base")])
    checkpoints = [str(tmp_path / "trained" / f"checkpoint-{step}") for step in (5, 10)]
    evaluate([*common, "--out", str(tmp_path / "tuned"), "--adapter", *checkpoints])
    main(
        [
            "--runs",
            str(tmp_path / "base"),
            str(tmp_path / "tuned"),
            "--labels",
            str(demo.test_labels),
            "--out",
            str(tmp_path / "out"),
            "--resamples",
            "100",
            "--thumbnails",
            "true",
            "--images",
            str(demo.images),
        ]
    )
    comparison = read_json(tmp_path / "out" / "compare.json")
    assert [(row["step"], row["run"]) for row in comparison["curves"]["trained"]] == [
        (0, "base"),
        (5, "checkpoint-5"),
        (10, "checkpoint-10"),
    ]
    assert comparison["n"] == 16
    assert "data:image/jpeg" in (tmp_path / "out" / "report.html").read_text()


# --- Others' predictions, coverage, seeds ------------------------------------------------------------------------


@pytest.mark.slow
def test_predictions_of_anybody_are_measured_and_held_against_a_run(folders, tmp_path, capsys):
    """``id``, ``status`` and ``score`` are enough; rows that are not there count against coverage."""
    labels = make_labels(90)
    foreign = judge(labels, 0.05, seed=3)[:60]
    rows = [{"id": row.id, "status": row.status, "score": row.score} for row in foreign]
    write_jsonl(tmp_path / "their_model.jsonl", rows)
    (tmp_path / "other").mkdir()
    write_jsonl(tmp_path / "other" / "predictions.jsonl", rows[:30])
    theirs = ["--runs", str(folders / "base" / "predictions.jsonl"), str(tmp_path / "their_model.jsonl")]
    main([*options(folders, tmp_path / "out"), *theirs, str(tmp_path / "other"), "--resamples", "300"])
    comparison = read_json(tmp_path / "out" / "compare.json")
    assert list(comparison["runs"]) == ["base", "their_model", "other"]
    measured = measure(labels, foreign, TAXONOMY, "x")
    assert comparison["runs"]["their_model"]["mae"] == measured.mae
    assert comparison["runs"]["their_model"]["ci"] == measured.ci
    assert comparison["runs"]["their_model"]["coverage"] == pytest.approx(60 / 90)
    assert comparison["runs"]["other"]["status_counts"]["missing"] == 60
    record = read_json(tmp_path / "out" / "run.json")
    names = ["base/metrics.json", "base/predictions.jsonl", "labels", "other/predictions.jsonl"]
    assert sorted(record["inputs"]) == [*names, "their_model/their_model.jsonl"]
    assert "their_model" in capsys.readouterr().out
    write_jsonl(tmp_path / "their_model.jsonl", [{"id": "stranger", "status": "ok", "score": 0.5}])
    with pytest.raises(InputError, match="their_model.jsonl: prediction id 'stranger' has no label"):
        main([*options(folders, tmp_path / "out"), *theirs])


def test_coverage_differs_by_mcnemar_over_all_photos(compared):
    scored = np.asarray([row.score is not None for row in judge(make_labels(90), 0.4, seed=1, lost=0.1)])
    pairs = {row["run"]: row["coverage"] for row in read_json(compared / "compare.json")["differences"]}
    lost = int((~scored).sum())
    assert lost > 5 and pairs["c80"]["difference"] == pytest.approx(lost / 90)
    assert pairs["c80"]["p"] == pytest.approx(2 * 0.5**lost)  # all discordant photos on one side
    assert pairs["c80"]["p_holm"] == pytest.approx(3 * 2 * 0.5**lost)  # of three pairs, all alike
    low, high = pairs["c80"]["ci"]
    assert 0 < low < lost / 90 < high and pairs["c80"]["beyond_noise"] is True


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40))
def test_coverage_difference_agrees_with_counting(pairs: list[tuple[bool, bool]]):
    first, second = (np.asarray([pair[side] for pair in pairs], dtype=bool) for side in (0, 1))
    found = coverage_difference(first, second)
    if not pairs:
        assert found == {"difference": None, "ci": None, "p": None}
        return
    assert found["difference"] == pytest.approx((sum(first) - sum(second)) / len(pairs))
    assert found["ci"][0] < found["ci"][1]
    gained, lost = sum(a and not b for a, b in pairs), sum(b and not a for a, b in pairs)
    tail = sum(math.comb(gained + lost, k) for k in range(min(gained, lost) + 1)) / 2 ** (gained + lost)
    assert found["p"] == pytest.approx(min(1.0, 2 * tail))


def test_the_spread_over_seeds_is_of_runs_that_differ_in_nothing_else(folders, tmp_path, capsys):
    labels = make_labels(90)
    shutil.copy(folders / "labels.jsonl", tmp_path)
    made = {}
    for rank, seed in ((16, 0), (16, 1), (16, 7), (64, 0), (64, 1), (8, 0)):
        rows = judge(labels, 1 / rank, seed=seed)
        made[rank, seed] = measure(labels, rows, TAXONOMY, "x", resamples=0)
        write_folder(tmp_path / f"r{rank}s{seed}", labels, rows, f"/home/somebody/sweep/rank-{rank}/seed-{seed}")
    zero_shot = {"name": "zero_shot", "target": "score"}
    write_folder(tmp_path / "asked", labels, rows, "/home/somebody/sweep/rank-16/seed-3", prompt=zero_shot)
    write_folder(tmp_path / "mine-seed-1", labels, rows)
    write_folder(tmp_path / "mine-seed-2", labels, rows)
    paths = find_runs([str(path) for path in sorted(tmp_path.glob("*/"))])
    groups = over_seeds(read_runs(paths, str(tmp_path / "labels.jsonl"), labels, TAXONOMY))
    assert {name: (group.seeds, group.runs) for name, group in groups.items()} == {
        "mine": ([1, 2], ["mine-seed-1", "mine-seed-2"]),
        "rank-16": ([0, 1, 7], ["r16s0", "r16s1", "r16s7"]),
        "rank-64": ([0, 1], ["r64s0", "r64s1"]),
    }
    for name in HEADS:
        values = [made[16, seed].figure(name) for seed in (0, 1, 7)]
        spread = groups["rank-16"].figures[name]
        assert spread == Spread(
            *map(pytest.approx, (np.mean(values), statistics.stdev(values), min(values), max(values)))
        )
    two = ["--runs", str(tmp_path / "r64s0"), str(tmp_path / "r64s1"), "--resamples", "20"]
    main([*options(folders, tmp_path / "out"), *two, "--labels", str(tmp_path / "labels.jsonl")])
    spread = read_json(tmp_path / "out" / "compare.json")["seeds"]["rank-64"]["figures"]["mae"]
    said = capsys.readouterr().out
    table = said[said.index("mean over seeds") :].splitlines()
    assert table[1].startswith("rank-64 (2)") and table[1].split()[4] == f"{spread['mean']:.3f}"
    assert table[2].split()[2] == f"±{spread['sd']:.3f}"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Over seeds" in page and "seeds 0, 1<" in page


def test_seeds_of_a_recipe_are_found_wherever_its_folder_is_named_from(tmp_path, monkeypatch, capsys):
    """Relative and absolute paths of one folder are one recipe; a seed that is there twice leaves no spread."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def evaluated(name: str, adapter: str, **decoding: Any) -> EvaluatedRun:
        record = {"config": {"judge": {"adapter": adapter}}, "decoding": {"greedy": True, **decoding}}
        return EvaluatedRun(name, [], NOTHING, record)

    folders = ["../x/seed-0", f"{tmp_path}/x/seed-1", "../here/../x/seed-2"]
    runs = [evaluated(f"r{number}", folder) for number, folder in enumerate(folders)]
    assert {name: group.seeds for name, group in over_seeds(runs).items()} == {"x": [0, 1, 2]}
    sampled = evaluated("warm", "../x/seed-3", greedy=False)
    assert [group.seeds for group in over_seeds([*runs, sampled]).values()] == [[0, 1, 2]]
    assert over_seeds([*runs, evaluated("again", folders[1])]) == {}
    assert "note: r1 and again are both of seed 1: no spread" in capsys.readouterr().out


# --- Refusals ------------------------------------------------------------------------------------------------------


def edit(file: Path, **changes: Any) -> None:
    write_json(file, {**read_json(file), **changes})


@pytest.mark.parametrize(
    ("file", "changes", "complaint"),
    [
        ("run.json", {"inputs": {"labels": {"path": "x", "sha256": "0"}}}, r"c80/run.json: was made on other labels"),
        ("run.json", {"inputs": 3}, r"c80/run.json: does not say which labels it was made on"),
        ("run.json", {"taxonomy": "another"}, r"c80/run.json: was made with another taxonomy"),
        ("metrics.json", {"n": 20}, r"c80/metrics.json: field 'n': 20 is not the number of labels, 90"),
        ("metrics.json", {"mae": 0.01}, r"c80/metrics.json: field 'mae': is not that of predictions.jsonl beside it"),
        ("metrics.json", {"confusion": [[1]]}, r"field 'confusion': is not that of predictions.jsonl"),
        (
            "metrics.json",
            {"decodings": {"expected": 3}},
            r"field 'decodings.expected': must be a mapping of n, coverage",
        ),
    ],
)
def test_what_does_not_fit_is_refused(folders, tmp_path, file, changes, complaint):
    for name in ("base", "c80"):
        shutil.copytree(folders / name, tmp_path / name)
    shutil.copy(folders / "labels.jsonl", tmp_path)
    edit(tmp_path / "c80" / file, **changes)
    with pytest.raises(InputError, match=complaint) as caught:
        main(options(tmp_path, tmp_path / "out", "base", "c80"))
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_other_labels_are_refused(folders, tmp_path):
    rows = [json.loads(line) for line in (folders / "labels.jsonl").read_text().splitlines()]
    write_jsonl(tmp_path / "labels.jsonl", [{**row, "score": 0.0} for row in rows])
    with pytest.raises(InputError, match=r"base/run.json: was made on other labels than .*labels.jsonl"):
        main([*options(folders, tmp_path / "out"), "--labels", str(tmp_path / "labels.jsonl")])


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--runs", "nowhere"], "nowhere: no such folder"),
        (["--runs", "tests"], "tests: holds no predictions.jsonl"),
        (["--thumbnails", "true"], "thumbnails needs images"),
        (["--images", "x"], "images goes with thumbnails"),
        (["--resamples", "0"], "resamples must be 1 to 100,000, not 0"),
        (["--against", "nobody"], "no run is called 'nobody'"),
    ],
)
def test_bad_options_get_one_line(folders, tmp_path, more, complaint):
    with pytest.raises(InputError, match=re.escape(complaint)):
        main([*options(folders, tmp_path / "out"), *more])


def test_a_run_given_twice_is_refused(folders, tmp_path):
    with pytest.raises(InputError, match="base: is there twice"):
        main(options(folders, tmp_path / "out", "base", "base"))
