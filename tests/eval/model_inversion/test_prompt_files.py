"""Prompts that a user brings: what the model gets, what stands in the panel, and that they are a setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from collection import ID, describe, make
from loopback import Misbehaving

from cprt.errors import InputError
from eval.model_inversion.compare import run as compare
from eval.model_inversion.judge.prompts import OURS, SUBJECTS, Prompt, Subject
from eval.model_inversion.judge.run import main

THEIRS = {
    "person": {
        "text": "You are an expert. Do the task in the image.\nOnly answer yes or no",
        "question": "Does Image A depict the same individual?",
        "control_text": "Look carefully. You may refuse.",
    }
}


def write(folder: Path, content: Any, name: str = "paper.yaml") -> str:
    (folder / name).write_text(yaml.safe_dump(content))
    return str(folder / name)


def texts(messages: Any) -> list[str]:
    (user,) = messages
    return [part.get("text", "<image>") for part in user["content"]]


def test_a_prompt_is_the_text_and_then_the_pictures(tmp_path: Path):
    prompt, person = Prompt.read(write(tmp_path, THEIRS), "options"), SUBJECTS["person"]
    assert texts(prompt.messages(person, False, "panel", 4, True)) == [THEIRS["person"]["text"], "<image>"]
    assert texts(prompt.messages(person, True, "panel", 4, True)) == ["Look carefully. You may refuse.", "<image>"]
    separate = ["Set of Images B:", "<image>", "<image>", "Image A:", "<image>"]
    assert texts(prompt.messages(person, False, "separate", 2, False))[1:] == separate
    assert prompt.question(person, False) == prompt.question(person, True) == "Does Image A depict the same individual?"
    assert prompt.name.startswith("paper ") and prompt != OURS
    with pytest.raises(InputError, match=r"prompt paper \w{8}: has nothing for 'breed', which Dogs/x asks about"):
        prompt.check(SUBJECTS["breed"], "Dogs/x")


def test_our_own_prompt_is_as_it_was():
    car = Subject("the same car", "colour")
    task = (
        "You compare pictures. {} The pictures of B all show the same subject. Decide whether Image A shows the same "
        "car. Differences in colour do not count."
    )
    panel = (
        "The picture below holds Image A and, beside it after a gap, the Set of Images B; a caption stands under each."
    )
    question = "Does Image A show the same car as the Set of Images B?"
    answer = f"{question} Answer with one word and nothing else: yes or no."
    assert texts(OURS.messages(car, True, "panel", 3, True)) == [task.format(panel), "<image>", answer]
    separate = task.format("You get Image A and the Set of Images B, each after its caption.")
    shown = ["Image A:", "<image>", "Set of Images B:", *["<image>"] * 3]
    assert texts(OURS.messages(car, False, "separate", 3, True)) == [separate, *shown, answer]
    assert texts(OURS.messages(car, False, "separate", 3, False)) == [separate, *shown[2:], *shown[:2], answer]
    assert OURS.question(car, True) == question
    for subject in SUBJECTS.values():
        assert f"shows {subject.same}. Differences in {subject.allow} do" in str(
            OURS.messages(subject, 0, "panel", 3, 1)
        )
        OURS.check(subject, "x")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "must be a mapping of person, object, breed, own"),
        ({"face": {"text": "x"}}, "field 'face': is not one of person, object, breed, own"),
        ({"person": "x"}, "field 'person': must be a mapping of text, question"),
        ({"person": {"question": "x"}}, "field 'person.text': is missing"),
        ({"person": {"text": " "}}, "field 'person.text': ' ' is not a text of at most 8000"),
        ({"person": {"text": "x", "system": "y"}}, "field 'person.system': unknown field"),
    ],
)
def test_a_file_that_does_not_fit_names_the_field(tmp_path: Path, content: Any, said: str):
    with pytest.raises(InputError) as caught:
        Prompt.read(write(tmp_path, content), "options")
    assert f"paper.yaml: {said}" in str(caught.value)


def test_each_judge_is_asked_its_own_prompt_and_the_prompt_is_a_setting(tmp_path: Path):
    """A judge that says yes to our prompt and no to the other: the effect of the prompt is all of it."""
    path = write(tmp_path, THEIRS)
    setups = describe(tmp_path, make(tmp_path))
    asked: dict[str, set[str]] = {}

    def answer(body: dict[str, Any]) -> tuple[str, str]:
        first = body["messages"][0]["content"][0]["text"]
        asked.setdefault(body["model"], set()).add(first)
        return ("No." if "expert" in first else "Yes."), "stop"

    def configure(name: str, url: str, *prompts: str | None) -> list[str]:
        models = [
            {"name": f"judge{i}", "model": f"m{i}", "base_url": url, "max_new_tokens": 8}
            | ({"prompt": prompt} if prompt else {})
            for i, prompt in enumerate(prompts)
        ]
        (tmp_path / name).write_text(yaml.safe_dump({"models": models, "setups": str(setups)}))
        return ["--config", str(tmp_path / name), "--controls", "3"]

    with Misbehaving(answer) as server:
        main([*configure("a.yaml", server.url, None, path), "--out", str(tmp_path / "own")])
        ours = OURS.messages(SUBJECTS["person"], False, "panel", 4, True)[0]["content"][0]["text"]
        assert asked == {"m0": {ours}, "m1": {THEIRS["person"]["text"], "Look carefully. You may refuse."}}
        words = configure("b.yaml", server.url, None)
        main([*words, "--out", str(tmp_path / "theirs"), "--prompt", path])
    rows = [json.loads(line) for line in (tmp_path / "own" / "queries.jsonl").read_text().splitlines()]
    own, other = ([row for row in rows if (row["prompt"] == "own") == is_own] for is_own in (True, False))
    assert len(own) == len(other) == 18
    for one, two in zip(own, other, strict=True):
        assert (
            one["references"] == two["references"] and one["images"] != two["images"]
        )  # another question in the panel
    record = json.loads((tmp_path / "own" / "run.json").read_text())
    assert set(record["prompts"]) == {"own", other[0]["prompt"]} and "expert" not in json.dumps(record)

    standard = tmp_path / "standard" / ID / "prediction.csv"
    standard.parent.mkdir(parents=True)
    reconstructions = [row for row in own if row["kind"] == "reconstruction"]
    lines = [f"{row['file']},{row['class']},yes" for row in reconstructions]
    standard.write_text("filename,class,prediction\n" + "\n".join(lines))
    words = ["--runs", str(tmp_path / "own"), str(tmp_path / "theirs"), "--standard", str(tmp_path / "standard")]
    compare.main([*words, "--out", str(tmp_path / "out"), "--resamples", "20"])
    effects = json.loads((tmp_path / "out" / "compare.json").read_text())["effects"]
    (row,) = [row for row in effects if row["judges"] == ["own/judge0", "theirs/judge0"]]
    assert (row["setting"], row["from"], row["to"]) == ("prompt", "own", other[0]["prompt"])
    assert (row["difference"], row["changed"], row["n"]) == (-1.0, 1.0, 12)


def test_a_file_that_is_not_there_or_lacks_a_subject_is_told_before_anything_is_asked(tmp_path: Path):
    setups = describe(tmp_path, make(tmp_path))
    model = {"name": "one", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
    for prompt, said in (
        ("gone.yaml", r"models\[1\]: field 'prompt': gone.yaml: No such file or directory"),
        (3, r"models\[1\]: field 'prompt': must be the name of a file, or null"),
        (
            write(tmp_path, {"breed": {"text": "x"}}),
            "has nothing for 'person', which CelebA/KEDMI/FFHQ/FaceNet64 asks about",
        ),
    ):
        (tmp_path / "c.yaml").write_text(
            yaml.safe_dump({"models": [model | {"prompt": prompt}], "setups": str(setups)})
        )
        with pytest.raises(InputError, match=said):
            main(["--config", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "out")])
        assert not (tmp_path / "out").exists()
