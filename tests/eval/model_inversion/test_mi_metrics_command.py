"""``cprt mi-metrics`` from files: the paper's golden case in every layout, what is counted where, Type-I transfer."""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from growth import grows_linearly
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from cprt.errors import InputError
from cprt.metrics.bootstrap import ClusteredShare
from eval.model_inversion.metrics.run import main

GOLDEN = [("yes", "yes")] * 805 + [("no", "no")] * 111 + [("no", "yes")] * 403 + [("yes", "no")] * 181


def write_csv(path: Path, header: str, rows: list[tuple[str, ...]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header.split(","))
        writer.writerows(rows)
    return path


def measure(folder: Path, *options: str) -> dict[str, Any]:
    main(
        [
            "--judge",
            str(folder / "judge.csv"),
            "--standard",
            str(folder / "prediction.csv"),
            "--out",
            str(folder / "m.json"),
            *options,
        ]
    )
    return json.loads((folder / "m.json").read_text())


def write_pairs(folder: Path, pairs: list[tuple[str, str]]) -> None:
    """Judge's label and E's verdict of each reconstruction."""
    names = [f"{i % 4}/{i}.png" for i in range(len(pairs))]
    write_csv(folder / "judge.csv", "filename,label", [(name, a) for name, (a, _) in zip(names, pairs, strict=True)])
    rows = [(name, b) for name, (_, b) in zip(names, pairs, strict=True)]
    write_csv(folder / "prediction.csv", "filename,prediction", rows)


def golden(layout: str, rng: random.Random) -> tuple[str, list[tuple[str, ...]], str, list[tuple[str, ...]]]:
    """Header and rows of the judge's and of E's file, 1,500 each, shuffled on their own."""
    pairs = GOLDEN.copy()
    rng.shuffle(pairs)
    judge, standard = [], []
    for number, (label, prediction) in enumerate(pairs):
        claims, name = str(number % 300), f"ID={number // 300}_T={number % 300}_P={number % 7}_CT=0.8688.png"
        judge.append(
            {
                "older": (name, label.title()),
                "newer": (f"{claims}/{name}", f"{label.title()}, as the nose shows.", f"{label} "),
                "ours": (name, claims, label.title(), label),
                "swapped": (label.upper(), name),
            }[layout]
        )
        standard.append((prediction, name) if layout == "swapped" else (name, prediction))
    rng.shuffle(judge)
    rng.shuffle(standard)
    headers = {
        "older": "filename,label",
        "newer": "filename,response,label",
        "ours": "filename,class,response,label",
        "swapped": "label,filename",
    }
    return headers[layout], judge, "prediction,filename" if layout == "swapped" else "filename,prediction", standard


@pytest.mark.parametrize("layout", ["older", "newer", "ours", "swapped"])
def test_the_papers_golden_case(tmp_path: Path, layout: str, capsys: pytest.CaptureFixture[str]):
    header, judge, of_standard, standard = golden(layout, random.Random(layout))
    write_csv(tmp_path / "judge.csv", header, judge)
    write_csv(tmp_path / "prediction.csv", of_standard, standard)
    found = measure(tmp_path)
    assert [found[name] for name in ("n", "tp", "tn", "fp", "fn")] == [1500, 805, 111, 403, 181]
    percent = {name: round(100 * found[name], 2) for name in ("accuracy_judge", "accuracy_standard", "fpr", "fnr")}
    assert percent == {"accuracy_judge": 65.73, "accuracy_standard": 80.53, "fpr": 78.40, "fnr": 18.36}
    assert found["tpr"] == pytest.approx(805 / 986) and found["tnr"] == pytest.approx(111 / 514)
    truth, predicted = zip(*GOLDEN, strict=True)
    assert found["kappa"] == pytest.approx(cohen_kappa_score(truth, predicted))
    for name, part, whole in (("accuracy_judge", 986, 1500), ("fpr", 403, 514), ("fnr", 181, 986)):
        wilson = stats.binomtest(part, whole).proportion_ci(method="wilson")  # classes are drawn at random here
        assert found["ci"][name] == pytest.approx(list(wilson), abs=0.01)
        assert 0.75 < found["design_effect"][name] < 1.3
    assert found["classes"] == 300
    low, high = found["ci"]["kappa"]
    assert low < found["kappa"] < high and high - low < 0.12
    assert found["join"] == {
        "matched": 1500,
        "only_judge": 0,
        "only_standard": 0,
        "only_judge_examples": [],
        "only_standard_examples": [],
        "by": "class and file",
    }
    printed = capsys.readouterr().out
    for text in (
        "n 1500, TP 805, TN 111, FP 403, FN 181",
        "80.53% [",
        "65.73% [",
        "78.40% [",
        "18.36% [",
        "over 300 classes",
    ):
        assert text in printed


def test_refusals_and_failures_stay_in_n_and_out_of_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Faults 5 and 6: a refusal counted as no, a failed call made the denominator smaller."""
    pairs = [
        ("yes", "yes"),
        ("yes", "no"),
        ("no", "yes"),
        ("no", "no"),
        ("refused", "yes"),
        ("refuse", "no"),
        ("refused", "yes"),
        ("unparsed", "yes"),
        ("error", "no"),
        ("error", "yes"),
    ]
    write_pairs(tmp_path, pairs)
    found = measure(tmp_path)
    assert [found[name] for name in ("n", "tp", "tn", "fp", "fn")] == [10, 1, 1, 1, 1]
    assert (found["accuracy_judge"], found["accuracy_standard"], found["fpr"]) == (0.2, 0.6, 0.5)
    assert found["judge_labels"] == {"yes": 2, "no": 2, "refused": 3, "unparsed": 1, "error": 2}
    low, high = found["ci"]["refusal_rate"]
    assert found["refusal_rate"] == 0.3 and low < 0.3 < high
    assert found["left_out_of_table"] == {"refused": 3, "unparsed": 1, "error": 2}
    assert "refused, unparsed and error are left out" in found["counting"] and found["refused_as_no"] is False
    printed = capsys.readouterr().out
    assert "not in the 2x2 table: 3 refused, 1 unparsed, 2 error" in printed and "refused by the judge" in printed

    found = measure(tmp_path, "--refused_as_no", "true")
    assert [found[name] for name in ("n", "tp", "tn", "fp", "fn")] == [10, 1, 2, 3, 1]
    assert (found["accuracy_judge"], found["accuracy_standard"], found["fpr"]) == (0.2, 0.6, 0.6)
    assert found["left_out_of_table"] == {"unparsed": 1, "error": 2}
    assert "unparsed and error are left out" in found["counting"] and "refused is a no" in found["counting"]


def test_nothing_but_refusals_leaves_rates_undefined(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Fault 4: a rate over nothing is null, and a dash where it is printed."""
    write_pairs(tmp_path, [("refused", "yes"), ("error", "no")])
    found = measure(tmp_path)
    assert {found[name] for name in ("fpr", "fnr", "tpr", "tnr", "kappa")} == {None}
    assert {found["ci"][name] for name in ("fpr", "fnr", "tpr", "tnr", "kappa")} == {None}
    assert (found["n"], found["accuracy_judge"], found["accuracy_standard"]) == (2, 0.0, 0.5)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["FPR", "of", "E", "-"] in printed


def test_what_is_not_matched_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_csv(tmp_path / "judge.csv", "filename,label", [(f"1/{i}.png", "yes") for i in range(20)])
    write_csv(tmp_path / "prediction.csv", "filename,prediction", [(f"1/{i}.png", "yes") for i in range(13, 22)])
    found = measure(tmp_path)
    assert found["n"] == 7 and found["join"] == {
        "matched": 7,
        "only_judge": 13,
        "only_standard": 2,
        "only_judge_examples": [f"1/{i}.png" for i in range(5)],
        "only_standard_examples": ["1/20.png", "1/21.png"],
        "by": "class and file",
    }
    printed = capsys.readouterr().out
    assert "left out: 13 reconstructions only in the judge's file, as 1/0.png" in printed
    assert "left out: 2 reconstructions only in E's file, as 1/20.png, 1/21.png" in printed


def test_type_i_transfer_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_pairs(
        tmp_path,
        [("no", "yes"), ("no", "yes"), ("no", "no"), ("no", "yes"), ("yes", "yes"), ("refused", "no"), ("no", "yes")],
    )
    accepted = ["yes", "yes", "yes", "no", "yes", "yes"]  # and no verdict of T on the last
    target = write_csv(
        tmp_path / "t.csv", "prediction,filename", [(a, f"{i % 4}/{i}.png") for i, a in enumerate(accepted)]
    )
    naturals = write_csv(
        tmp_path / "n.csv", "filename,prediction", [(f"cat_{i}.jpg", "yes" if i < 2 else "no") for i in range(50)]
    )
    found = measure(tmp_path, "--target", str(target), "--naturals", str(naturals))
    # T accepts 0, 1, 2 of what the judge rejects; of these E accepts 0 and 1.
    assert (found["type_i"], found["type_i_transfer"]) == (3, pytest.approx(2 / 3))
    assert (found["naturals"], found["natural_rate"]) == (50, 0.04)
    assert found["type_i_excess"] == pytest.approx(2 / 3 - 0.04)
    assert found["ci"]["type_i_transfer"] == ClusteredShare.of([1, 1, 0], [1, 1, 1]).interval  # three classes
    assert found["join"]["target"] == {"matched": 6, "without_target": 1, "only_target": 0}
    assert "1 reconstructions have no verdict of T" in capsys.readouterr().out
    assert list(found["type_i_transfer_to"]) == ["E"] and found["naturals_that_t_accepts"] is False
    found = measure(tmp_path, "--target", str(target), "--refused_as_no", "true")
    assert (found["type_i"], found["type_i_transfer"]) == (4, 0.5)
    assert (found["natural_rate"], found["type_i_excess"]) == (None, None)
    record = json.loads((tmp_path / "m.run.json").read_text())
    assert set(record["inputs"]) == {"judge", "standard", "target"} and record["config"]["refused_as_no"] is True


def test_type_i_transfer_to_several_evaluation_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """T accepts all; the judge rejects 0 to 5; E accepts 0 to 3, another 0 alone and says nothing of 5."""
    write_pairs(tmp_path, [("no", "yes" if i < 4 else "no") for i in range(6)] + [("yes", "yes")] * 2)
    rows = [(f"{i % 4}/{i}.png", "yes") for i in range(8)]
    target = write_csv(tmp_path / "t.csv", "filename,prediction", rows)
    second = [(name, "yes" if i == 0 else "no") for i, (name, _) in enumerate(rows) if i != 5]
    other = write_csv(tmp_path / "other.csv", "filename,prediction", second)
    taken = write_csv(
        tmp_path / "n.csv", "filename,prediction", [(f"{i}.png", "yes" if i < 3 else "no") for i in range(20)]
    )
    words = ["--target", str(target), "--others", f"ResNet={other}", f"Third={target}"]
    found = measure(tmp_path, *words, "--naturals_others", f"ResNet={taken}")
    to = found["type_i_transfer_to"]
    assert {name: (row["n"], row["transfer"]) for name, row in to.items()} == {
        "E": (6, pytest.approx(4 / 6)),
        "ResNet": (5, 0.2),
        "Third": (6, 1.0),
    }
    assert to["E"]["transfer"] == found["type_i_transfer"] and to["E"]["ci"] == found["ci"]["type_i_transfer"]
    assert {name: row["natural_rate"] for name, row in to.items()} == {"E": None, "ResNet": 0.15, "Third": None}
    printed = capsys.readouterr().out
    assert (
        "Type-I transfer to ResNet        20.00% [" in printed and "natural images ResNet accepts  15.00% [" in printed
    )
    with pytest.raises(InputError, match="naturals_others: 'Fourth' is none of --others"):
        measure(tmp_path, *words, "--naturals_others", f"Fourth={taken}")
    assert "other ResNet" in json.loads((tmp_path / "m.run.json").read_text())["inputs"]
    for wrong in ("ResNet", "=x.csv", "E=x.csv", "a="):
        with pytest.raises(InputError, match="must be NAME=PATH"):
            measure(tmp_path, "--others", wrong)


def test_every_file_may_call_images_otherwise_behind_id_and_t(tmp_path: Path):
    """As the public code joins: E, T and a further model, each with names of its own."""
    said = [("yes", "yes"), ("no", "yes"), ("no", "no"), ("no", "yes")]
    names = {who: [f"ID={i}_T={i % 2}_{who}=0.{i}.png" for i in range(4)] for who in ("CT", "E", "P", "X")}
    write_csv(tmp_path / "judge.csv", "filename,label", [(n, j) for n, (j, _) in zip(names["CT"], said, strict=True)])
    verdicts = [(n, e) for n, (_, e) in zip(names["E"], said, strict=True)]
    write_csv(tmp_path / "prediction.csv", "filename,prediction", verdicts)
    target = write_csv(tmp_path / "t.csv", "filename,prediction", [(n, "yes") for n in names["P"]])
    other = write_csv(tmp_path / "x.csv", "filename,prediction", [(n, "no") for n in names["X"]])
    found = measure(tmp_path, "--target", str(target), "--others", f"Other={other}")
    assert (found["join"]["by"], found["join"]["matched"], found["join"]["target"]["matched"]) == (
        "class, ID and T",
        4,
        4,
    )
    assert (found["tp"], found["fp"], found["type_i"], found["type_i_transfer"]) == (1, 2, 3, pytest.approx(2 / 3))
    assert found["type_i_transfer_to"]["Other"]["transfer"] == 0


def test_natural_images_that_t_rejects_do_not_count(tmp_path: Path):
    write_pairs(tmp_path, [("no", "yes"), ("yes", "yes")])
    of_e = write_csv(
        tmp_path / "n.csv", "filename,prediction", [(f"{i}.jpg", "yes" if i < 2 else "no") for i in range(9)]
    )
    of_t = write_csv(
        tmp_path / "t.csv", "filename,prediction", [(f"{i}.jpg", "yes" if i < 5 else "no") for i in range(9)]
    )
    found = measure(tmp_path, "--naturals", str(of_e), "--naturals_target", str(of_t))
    assert (found["naturals"], found["natural_rate"], found["naturals_that_t_accepts"]) == (5, 0.4, True)
    with pytest.raises(InputError, match="--naturals_target goes with --naturals"):
        measure(tmp_path, "--naturals_target", str(of_t))


def test_what_the_correction_assumes_stands_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_pairs(tmp_path, [("no", "yes")] * 50 + [("yes", "yes")] * 50)
    rows = [("positive", f"1/{i}.jpg", str(i), "", "yes" if i < 36 else "no") for i in range(40)]
    rows += [("negative", f"2/{i}.jpg", str(i), "", "yes" if i < 4 else "no") for i in range(40)]
    controls = write_csv(tmp_path / "c.csv", "kind,filename,class,response,label", rows)
    found = measure(tmp_path, "--controls", str(controls))
    # (0.5 - 0.2) / (0.9 - 0.2) and (0.5 - 0.1) / (0.8 - 0.1)
    assert found["accuracy_judge_corrected_range"] == pytest.approx([3 / 7, 4 / 7])
    printed = capsys.readouterr().out
    assert "corrected assumes that the judge errs on reconstructions as often as on its control pairs" in printed
    assert "the corrected accuracy lies from 42.86% to 57.14%" in printed
    measure(tmp_path)
    assert "assumes" not in capsys.readouterr().out


def test_correction_by_controls_is_clipped_and_kept_raw(tmp_path: Path):
    write_pairs(tmp_path, [("no", "yes")] * 98 + [("yes", "yes")] * 2)
    rows = [("positive", f"1/{i}.jpg", "1", "", "yes" if i < 36 else "refused") for i in range(40)]
    rows += [("negative", f"2/{i}.jpg", "1", "", "yes" if i < 4 else "no") for i in range(40)]
    controls = write_csv(tmp_path / "c.csv", "kind,filename,class,response,label", rows)
    found = measure(tmp_path, "--controls", str(controls))
    assert (found["control_hit_rate"], found["control_false_alarm_rate"]) == (0.9, 0.1)
    assert found["accuracy_judge_corrected_raw"] == pytest.approx((0.02 - 0.1) / (0.9 - 0.1))
    assert found["accuracy_judge_corrected"] == 0
    assert found["ci"]["accuracy_judge_corrected"][0] == 0 > found["ci"]["accuracy_judge_corrected_raw"][0]
    assert found["controls"]["positive"] == {"yes": 36, "no": 0, "refused": 4, "unparsed": 0, "error": 0}

    write_csv(
        controls,
        "kind,filename,class,response,label",
        [(kind, f"{i}.jpg", "1", "", "yes" if i else "no") for kind in ("positive", "negative") for i in range(4)],
    )
    found = measure(tmp_path, "--controls", str(controls))
    assert (found["accuracy_judge_corrected"], found["accuracy_judge_corrected_raw"]) == (None, None)
    assert found["control_hit_rate"] == found["control_false_alarm_rate"] == 0.75


def test_swapped_files_are_refused_in_one_line_and_nothing_is_written(tmp_path: Path):
    write_pairs(tmp_path, [("yes", "yes")])
    out = tmp_path / "out" / "m.json"
    command = [
        sys.executable,
        "-m",
        "cprt.cli",
        "mi-metrics",
        "--judge",
        str(tmp_path / "prediction.csv"),
        "--standard",
        str(tmp_path / "judge.csv"),
        "--out",
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == "" and not out.parent.exists()
    (line,) = done.stderr.splitlines()
    assert "prediction.csv:1: field 'label': is missing from the header, which has 'prediction'" in line
    with pytest.raises(InputError, match=r"judge.csv:1: field 'prediction': .*a judge's file where a classifier's"):
        main(["--judge", str(tmp_path / "judge.csv"), "--standard", str(tmp_path / "judge.csv"), "--out", str(out)])
    assert not out.parent.exists()


def test_resamples_can_be_none_but_not_negative(tmp_path: Path):
    write_pairs(tmp_path, [("yes", "yes"), ("no", "no"), ("no", "yes")])
    found = measure(tmp_path, "--resamples", "0")
    assert found["ci"]["kappa"] is None and found["ci"]["fpr"] is not None
    with pytest.raises(InputError, match="resamples must be 0 to 100,000"):
        measure(tmp_path, "--resamples", "-1")


@pytest.mark.slow
def test_rows_are_joined_in_linear_time(tmp_path: Path):
    def join(size: int) -> Callable[[], None]:
        folder = tmp_path / str(size)
        pairs = (GOLDEN * 27)[:size]
        rows = [(f"{i % 1000}/ID={i}_T={i % 1000}.png", a, b) for i, (a, b) in enumerate(pairs)]
        write_csv(folder / "judge.csv", "filename,response,label", [(name, "Well.", a) for name, a, _ in rows])
        write_csv(folder / "prediction.csv", "filename,prediction", [(name, b) for name, _, b in reversed(rows)])

        def work() -> None:
            found = measure(folder)
            assert found["n"] == size and found["fp"] == pairs.count(("no", "yes"))

        return work

    assert grows_linearly(join, 40_000)
