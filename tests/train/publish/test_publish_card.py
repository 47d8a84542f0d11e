"""The card that ``cprt publish`` writes."""

from __future__ import annotations

import json
import random

import pytest
import yaml
from huggingface_hub import ModelCard
from publishing import BASE, REPO, metrics_of

from cprt.metrics.attributes import evaluate_attributes, evaluate_probabilities
from cprt.prompts import build
from cprt.taxonomy import Taxonomy


def table(card: str, heading: str) -> list[list[str]]:
    rows = card.partition(f"## {heading}\n")[2].partition("\n## ")[0].splitlines()
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows if row.startswith("|")]


def test_the_cards_metadata_are_the_metrics(publish, hub, trained, tmp_path):
    """Parsed back by the Hub's own reader: every figure and interval at full precision, an undefined one left out."""
    path = metrics_of(trained, tmp_path / "tuned", intra_level_accuracy=None)
    assert publish(trained, "--metrics", str(path))[0] == 0
    metrics = json.loads(path.read_text())
    card = hub.tree(REPO)["README.md"].decode()
    data = ModelCard(card).data
    assert (data.base_model, data.library_name, data.license) == (BASE, "peft", "other")
    assert data.to_dict()["base_model_relation"] == "adapter" and data.model_name == "judge"
    found = {result.metric_type: result for result in data.eval_results}
    assert list(found) == ["pearson", "spearman", "mae", "bias", "level_accuracy", "inter_level_accuracy", "coverage"]
    for name, result in found.items():
        assert result.metric_value == metrics[name] and result.metric_args == {"interval_95": metrics["ci"][name]}
        assert result.dataset_args == {"rows": 16, "rows_with_a_score": 15}
        assert result.dataset_type == "cprt-demo-data"
    rows = table(card, "Results")
    assert rows[2] == ["Pearson", "0.123", "[0.073, 0.173]"] and rows[-1] == ["Coverage", "0.938", "[0.887, 0.988]"]
    assert rows[-2] == ["Intra-level pairwise accuracy", "-", "[0.673, 0.773]"]
    assert "ok: 15, unparsed: 1, refused: 0" in card and "names this very adapter by its digest" in card
    assert "The paper has no row for this base." in card


def test_the_card_says_how_well_each_attribute_is_seen(publish, hub, trained, tmp_path):
    """Precision, recall and average precision of the metrics, by level; the costliest error; nothing without them."""
    taxonomy, rng = Taxonomy.default(), random.Random(0)
    truth = {str(photo): rng.sample(taxonomy.keys, 4) for photo in range(16)}
    named = {photo: sorted({*keys[1:], "age"}) for photo, keys in truth.items()}
    chances = {photo: {key: rng.random() * (key in keys) for key in taxonomy.keys} for photo, keys in named.items()}
    seen, probable = evaluate_attributes(truth, named), evaluate_probabilities(truth, chances)
    path = metrics_of(trained, tmp_path / "tuned", attributes=seen, attribute_probabilities=probable)
    assert publish(trained, "--metrics", str(path))[0] == 0
    card = hub.tree(REPO)["README.md"].decode()
    heads, _, *rows = table(card, "Attributes")
    assert heads == ["attribute", "level", "photos", "precision", "recall", "average precision"]
    places = [(one.key, taxonomy.names[one.key], one.level, "per_attribute") for one in taxonomy.attributes]
    places += [(str(one.level), f"level {one.level}", one.level, "levels") for one in taxonomy.levels]
    assert len(rows) == len(places) == 26
    for row, (key, name, level, kind) in zip(rows, places, strict=True):
        assert row[:2] == [name, str(level)]
        for shown, of, figure in zip(
            row[3:], (seen, seen, probable), ("precision", "recall", "average_precision"), strict=True
        ):
            value, bounds = of[kind][key][figure], of[kind][key]["ci"][figure]
            interval = "" if bounds is None else f" [{bounds[0]:.3f}, {bounds[1]:.3f}]"
            assert shown == ("-" if value is None else f"{value:.3f}{interval}")
    worst = seen["costliest"]
    how = {"missed": "missed, which takes", "invented": "named where it is not there, which adds"}[worst["error"]]
    assert f"The costliest error: {taxonomy.names[worst['attribute']]} {how} {worst['cost']:.3f} [" in card
    assert publish(trained, "--metrics", str(metrics_of(trained, tmp_path / "plain")))[0] == 0
    assert "## Attributes" not in hub.tree(REPO)["README.md"].decode()


@pytest.mark.parametrize(
    "base, steps, key",
    [
        ("Qwen/Qwen3-VL-8B-Instruct", 80, "Qwen3-VL (8B) (80 steps)"),
        ("Qwen/Qwen3-VL-4B-Instruct", 80, "Qwen3-VL (4B) (80 steps)"),
        ("Qwen/Qwen3-VL-2B-Instruct", 80, "Qwen3-VL (2B) (80 steps)"),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", 160, "Llama 3.2 (160 steps)"),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", 80, "Llama 3.2 (80 steps)"),
    ],
)
def test_the_papers_row_stands_beside_ours(publish, hub, copy, edit_json, base, steps, key, tmp_path):
    """Table 6, transcribed here a second time; on other photos than the paper's it says that columns do not compare."""
    paper = {
        "Qwen3-VL (8B) (80 steps)": "0.799 0.762 0.140 0.061 0.633 0.849 0.745",
        "Qwen3-VL (4B) (80 steps)": "0.790 0.753 0.142 -0.024 0.614 0.833 0.779",
        "Qwen3-VL (2B) (80 steps)": "0.530 0.324 0.347 0.199 0.545 0.625 0.757",
        "Llama 3.2 (160 steps)": "0.441 0.444 0.242 0.162 0.364 0.703 0.847",
        "Llama 3.2 (80 steps)": "0.415 0.410 0.241 0.140 0.325 0.714 0.860",
    }
    edit_json(copy / "run.json", lambda record: record["result"].update(steps=steps))
    repo = "some-lab/Llama-judge"
    for n, same in ((6736, True), (16, False)):
        path = metrics_of(copy, tmp_path / "tuned", n=n)
        assert publish(copy, "--metrics", str(path), "--data", "vispr", base=base, repo=repo)[0] == 0
        card = hub.tree(repo)["README.md"].decode()
        rows = table(card, "Results")
        assert rows[0][3] == "paper: " + key.replace(" (80", " + SFT, 80").replace(" (160", " + SFT, 160").rstrip(")")
        assert " ".join(row[3] for row in rows[2:-1]) == paper[key] and rows[-1][3] == "-"
        assert ("the columns cannot be compared" not in card) == same
        data = ModelCard(card).data
        assert data.license == ("cc-by-nc-4.0" if base.startswith("Qwen") else "llama3.2")
        assert data.datasets == ["timtsapras23/CPRT-Bench"] and "CC BY-NC 4.0" in card
        assert data.eval_results[0].dataset_type == "timtsapras23/CPRT-Bench"


def test_training_leaves_our_card(trained, demo_base):
    """Where it stands, with the base as the run called it; a checkpoint has none, and none of a library is left."""
    card = (trained / "README.md").read_text()
    assert card.startswith("---\nbase_model: assets/demo_base\n") and "# adapter\n" in card
    assert "Base model: `assets/demo_base`, revision not recorded" in card and "POLICY = " in card
    assert 'BASE, ADAPTER = "assets/demo_base", "adapter"' in card and "hf download" not in card
    assert "trl" not in ModelCard(card).data.tags and "More Information Needed" not in card
    assert not (trained / "checkpoint-1" / "README.md").exists()


def test_without_metrics_the_card_says_so(publish, hub, trained):
    assert publish(trained)[0] == 0
    card = hub.tree(REPO)["README.md"].decode()
    assert "Not measured: nothing is known of how well this adapter judges; `cprt eval` measures it." in card
    assert "model-index" not in card and ModelCard(card).data.eval_results is None


def test_the_recipe_is_the_runs_own(publish, hub, trained):
    assert publish(trained)[0] == 0
    record = json.loads((trained / "run.json").read_text())
    recipe = {row[0]: row[1].strip("`") for row in table(hub.tree(REPO)["README.md"].decode(), "Recipe")[2:]}
    assert recipe["optimiser steps"] == "2" and recipe["pairs a step"] == "8" and recipe["learning rate"] == "0.005"
    assert recipe["LoRA rank"] == "64" and recipe["LoRA alpha"] == "192" and recipe["seed"] == "0"
    assert recipe["LoRA modules"] == r".*language_model\..*\.(q\|k\|v\|o\|gate\|up\|down)_proj"
    assert record["git"] is None or record["git"] in recipe["made with"]
    for section in (
        "Results",
        "Data and licences",
        "Recipe",
        "Prompt",
        "Load it with PEFT",
        "Serve it with vLLM",
        "Limits and misuse",
    ):
        assert f"\n## {section}\n" in hub.tree(REPO)["README.md"].decode()


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"pearson": "high"}, "field 'pearson': 'high' is not a number or null"),
        ({"coverage": None}, "field 'coverage': says that no photo was asked about"),
        ({"n": 0}, "field 'n': says that no photo was asked about"),
        ({"n": 1.5}, "field 'n': 1.5 is not a whole number"),
        ({"ci": {"mae": [1]}}, "field 'ci.mae': [1] is not a list of 2"),
        ({"status_counts": {"ok": "many"}}, "field 'status_counts.ok': 'many' is not a whole number"),
    ],
)
def test_metrics_that_are_none(publish, hub, trained, tmp_path, change, reason):
    path = metrics_of(trained, tmp_path / "tuned", **change)
    assert publish(trained, "--metrics", str(path))[2] == [f"cprt publish: error: {path}: {reason}"]
    assert hub.requests == []


def test_metrics_of_another_model_are_refused(publish, hub, trained, tmp_path, edit_json):
    """Those of another adapter and of the base alone; of metrics without a record the card says that nothing shows."""
    path = metrics_of(trained / "checkpoint-1", tmp_path / "tuned")
    other = f"cprt publish: error: {path}: was not measured on {trained}, but on another model (see its run.json)"
    assert publish(trained, "--metrics", str(path))[2] == [other]
    edit_json(path.with_name("run.json"), lambda record: record.update(adapter=None))
    assert publish(trained, "--metrics", str(path))[2] == [other]
    assert hub.requests == []
    path.with_name("run.json").unlink()
    assert publish(trained, "--metrics", str(path))[0] == 0
    assert "Nothing beside the metrics says which adapter they are of" in hub.tree(REPO)["README.md"].decode()


def test_a_prompt_of_ones_own(publish, hub, copy, edit_json, tmp_path):
    """A prompt from an extended taxonomy is in the card when the taxonomy is given; without it the card says so."""

    extension = tmp_path / "more.yaml"
    key = Taxonomy.default().keys[-1]
    extension.write_text(yaml.safe_dump({"remove": [key]}))
    prompt = build("taxonomy", "score", Taxonomy.load(extension))
    edit_json(copy / "run.json", lambda record: record.update(prompt=prompt.identity()))
    assert publish(copy)[0] == 0
    assert f"a prompt of its own (digest `{prompt.digest}`)" in hub.tree(REPO)["README.md"].decode()
    assert publish(copy, "--taxonomy", str(extension))[0] == 0
    card = hub.tree(REPO)["README.md"].decode()
    assert "POLICY = " in card and f"- {key}:" not in card


SMUGGLED = "x\n\n## Endorsed\n\nby the authors"


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r", "\u2028", "\x0b", "\x85"])
def test_nothing_smuggles_a_heading_or_a_cell(publish, hub, copy, edit_json, line_break, tmp_path):
    """Whatever the run's record says, the card has its own headings, rows and metadata alone."""
    assert publish(copy)[0] == 0
    plain = hub.tree(REPO)["README.md"].decode()
    smuggled = SMUGGLED.replace("\n", line_break) + " | y | `z`"

    def change(record):
        record |= {"seed": smuggled, "git": smuggled, "base_digest": smuggled, "prompt": {"sha256": smuggled}}
        record["packages"]["trl"] = smuggled
        record["result"]["steps"] = smuggled
        record["inputs"]["pairs"]["sha256"] = smuggled
        record["config"]["trainer"] |= {"optim": smuggled, "lr_scheduler_type": smuggled}

    edit_json(copy / "run.json", change)
    edit_json(
        copy / "adapter_config.json", lambda content: content.update(target_modules=[smuggled], lora_dropout=smuggled)
    )
    assert publish(copy)[0] == 0
    card = hub.tree(REPO)["README.md"].decode()
    assert [line for line in card.splitlines() if line.startswith("#")] == [
        line for line in plain.splitlines() if line.startswith("#")
    ]
    assert [len(row) for row in table(card, "Recipe")] == [len(row) for row in table(plain, "Recipe")]
    assert ModelCard(card).data.to_dict() == ModelCard(plain).data.to_dict() and "Endorsed" in card


def test_a_prompt_cannot_leave_its_block(publish, hub, copy, edit_json, tmp_path):
    """Nor its string: what Python reads there is the prompt, whatever fences and quotes are in it."""

    extension, attribute = tmp_path / "more.yaml", Taxonomy.default().attributes[-1]
    odd = 'Is ``` or """ or \\ visible\n```\n# Endorsed?"'
    row = {"key": "odd", "name": "odd", "level": attribute.level, "question": odd}
    extension.write_text(yaml.safe_dump({"attributes": [row]}))
    prompt = build("taxonomy", "score", Taxonomy.load(extension))
    edit_json(copy / "run.json", lambda record: record.update(prompt=prompt.identity()))
    assert publish(copy, "--taxonomy", str(extension))[0] == 0
    card = hub.tree(REPO)["README.md"].decode()
    found: dict[str, str] = {}
    exec(card.partition("```python\n")[2].partition("\n```")[0], found)
    assert (found["POLICY"], found["QUESTION"]) == (prompt.policy, prompt.question)


def test_how_a_family_is_served(publish, hub, copy, edit_json):
    """Qwen3-VL as an adapter under the cap that it was trained with; Mllama, which vLLM takes no adapter of, merged."""
    assert publish(copy)[0] == 0
    card = hub.tree(REPO)["README.md"].decode()
    cap = json.loads((copy / "processor_config.json").read_text())["image_processor"]["size"]
    line = card.partition("--mm-processor-kwargs '")[2].partition("'")[0]
    assert json.loads(line) == {"size": cap} and "--enable-lora --max-lora-rank 64" in card and "cprt merge" not in card
    edit_json(copy / "adapter_config.json", lambda content: content.update(modules_to_save=["lm_head"]))
    assert publish(copy)[0] == 0
    card = hub.tree(REPO)["README.md"].decode()
    assert "cprt merge --adapter judge --base_model some-lab/tiny-base --out judge-merged" in card
    assert "vllm serve ./judge-merged" in card and "--enable-lora" not in card and line in card
    edit_json(copy / "processor_config.json", lambda content: content.update(processor_class="MllamaProcessor"))
    assert publish(copy, repo="some-lab/Llama-judge")[0] == 0
    card = hub.tree("some-lab/Llama-judge")["README.md"].decode()
    assert "vLLM takes no adapter of this family" in card and "cprt merge --adapter Llama-judge" in card
    assert "transformers serve ./Llama-judge-merged" in card and "vllm serve" not in card
