"""Local models behind the engine: batching changes no answer, with one photo, several or none."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from cprt.ask import Model
from cprt.errors import InputError
from cprt.images import load_image
from cprt.local import LocalModel
from cprt.prompts import build
from cprt.questions import ModelSpec, Question
from cprt.store import AnswerStore

IMAGE = {"type": "image"}


def user(*parts: str | None) -> list[dict]:
    """One user message; None stands for an image."""
    content = [IMAGE if part is None else {"type": "text", "text": part} for part in parts]
    return [{"role": "user", "content": content}]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("photos")
    for number, size in enumerate([(96, 96), (64, 128), (128, 64)]):
        image = Image.effect_mandelbrot(size, (-3, -2.5, 2 - number / 2, 2.5), 100).convert("RGB")
        image.save(folder / f"{number}.png")
    return sorted(folder.iterdir())


def test_answers_do_not_depend_on_the_batch(demo_base: Path, photos: list[Path], tmp_path: Path):
    shared = build("zero_shot").messages()
    questions = [Question(shared, (photo,)) for photo in photos]
    questions += [
        Question(user("Name the objects.")),
        Question(user("How bright is it? " * 9)),
        Question(user("Copy: {}")),
    ]
    questions += [Question(user(None, "and", None, "?"), (photos[0], photos[1])),
                  Question(user("Compare", None, None), (photos[2], photos[1])),
                  Question(user("Name the objects in", None), (photos[1],))]  # fmt: skip
    texts = []
    for batch_size in (1, 4):
        row = {"name": "m", "model": str(demo_base), "max_new_tokens": 16, "dtype": "float32", "batch_size": batch_size}
        model = Model(ModelSpec.read(row, "spec"))
        keyed = {model.spec.key(question): question for question in questions}
        with AnswerStore(tmp_path / f"{batch_size}.jsonl") as store:
            model.ask(keyed, store, "asking")
            texts.append([store[key]["text"] for key in keyed])
    assert texts[0] == texts[1] and len(texts[0]) == 9 and len(set(texts[0])) > 3
    local = LocalModel(str(demo_base), dtype="float32")
    (generation,) = local.generate([(shared, [load_image(photos[1])])], 16)
    assert texts[0][1] == generation.text


def test_a_photo_that_cannot_be_read_is_an_error_beside_the_answers(
    demo_base: Path, photos: list[Path], tmp_path: Path
):
    broken = tmp_path / "broken.png"
    broken.write_bytes(photos[0].read_bytes()[:60])
    row = {"name": "m", "model": str(demo_base), "max_new_tokens": 4, "dtype": "float32"}
    questions = {name: Question(user("Name", None), (path,)) for name, path in (("a", photos[0]), ("b", broken))}
    with AnswerStore(tmp_path / "answers.jsonl") as store:
        Model(ModelSpec.read(row, "spec")).ask(questions, store, "asking")
        assert "a" in store and "b" not in store and "broken.png" in store["b"]["error"]


def test_no_such_model_is_bad_input(tmp_path: Path):
    model = Model(ModelSpec.read({"name": "m", "model": "no/such/model"}, "spec"))
    with AnswerStore(tmp_path / "answers.jsonl") as store, pytest.raises(InputError, match="no such model folder"):
        model.ask({"a": Question(user("b"))}, store, "asking")
