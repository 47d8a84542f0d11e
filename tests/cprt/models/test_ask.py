"""Local models behind the engine: batching changes no answer, with one photo, several or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from cprt.errors import InputError
from cprt.images import load_image
from cprt.models import local as local_module
from cprt.models.ask import Model, answer_batch, ask, open_models
from cprt.models.checkpoint import find_device, load_model, load_processor, to_device
from cprt.models.local import LocalModel
from cprt.models.response_cache import ResponseCache
from cprt.models.spec import ModelSpec, Request, Response
from cprt.prompts import build

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
    requests = [Request(shared, (photo,)) for photo in photos]
    requests += [
        Request(user("Name the objects.")),
        Request(user("How bright is it? " * 9)),
        Request(user("Copy: {}")),
    ]
    requests += [
        Request(user(None, "and", None, "?"), (photos[0], photos[1])),
        Request(user("Compare", None, None), (photos[2], photos[1])),
        Request(user("Name the objects in", None), (photos[1],)),
    ]
    texts = []
    for batch_size in (1, 4):
        row = {"name": "m", "model": str(demo_base), "max_new_tokens": 16, "dtype": "float32", "batch_size": batch_size}
        model = Model(ModelSpec.read(row, "spec"))
        with ResponseCache(tmp_path / f"{batch_size}.jsonl") as cache:
            model.ask(requests, cache, "asking")
            texts.append([cache.rows(model.spec.key(request))[0]["text"] for request in requests])
    assert texts[0] == texts[1] and len(texts[0]) == 9 and len(set(texts[0])) > 3
    local = LocalModel(str(demo_base), dtype="float32")
    (generation,) = local.generate([(shared, [load_image(photos[1])])], 16)
    assert texts[0][1] == generation.text


def test_logprobs_of_a_local_model_are_those_of_its_logits(demo_base: Path, photos: list[Path], tmp_path: Path):
    """In a batch of unequal photos, with a shared prefix, against one plain forward pass over prompt and answer."""
    row = {"name": "m", "model": str(demo_base), "max_new_tokens": 12, "dtype": "float32", "top_logprobs": 3}
    model = Model(ModelSpec.read(row, "spec"))
    messages = build("zero_shot").messages()
    with ResponseCache(tmp_path / "answers.jsonl") as cache:
        requests = [Request(messages, (photo,)) for photo in photos]
        model.ask(requests, cache, "asking")
        responses = [cache.rows(model.spec.key(request))[0] for request in requests]
    plain = LocalModel(str(demo_base), dtype="float32", share_prefix=False)
    tokenizer = plain.processor.tokenizer
    for photo, response in zip(photos, responses, strict=True):
        end = response["logprobs"][-1]["token"] if response["complete"] else ""
        written = response["text"] + end
        assert "".join(entry["token"] for entry in response["logprobs"]) == written
        inputs = plain._inputs([(messages, [load_image(photo)])])
        answer = tokenizer(written, add_special_tokens=False, return_tensors="pt")["input_ids"]
        assert answer.shape[1] == len(response["logprobs"]) > 3
        width = inputs["input_ids"].shape[1]
        for name, filling in (
            ("input_ids", answer),
            ("attention_mask", torch.ones_like(answer)),
            ("mm_token_type_ids", torch.zeros_like(answer)),
        ):
            inputs[name] = torch.cat([inputs[name], filling], dim=1)
        with torch.inference_mode():
            expected = plain.model(**inputs).logits[0, width - 1 : -1].log_softmax(-1)
        for place, entry in enumerate(response["logprobs"]):
            assert entry["logprob"] == pytest.approx(expected[place, answer[0, place]].item(), abs=1e-4)
            best = expected[place].topk(3).values.tolist()
            assert [option["logprob"] for option in entry["top_logprobs"]] == pytest.approx(best, abs=1e-4)
            assert entry["top_logprobs"][0]["token"] == entry["token"]  # greedy


def test_a_photo_that_cannot_be_read_is_an_error_beside_the_answers(
    demo_base: Path, photos: list[Path], tmp_path: Path
):
    broken = tmp_path / "broken.png"
    broken.write_bytes(photos[0].read_bytes()[:60])
    row = {"name": "m", "model": str(demo_base), "max_new_tokens": 4, "dtype": "float32"}
    requests = [Request(user("Name", None), (path,)) for path in (photos[0], broken)]
    model = Model(ModelSpec.read(row, "spec"))
    with ResponseCache(tmp_path / "answers.jsonl") as cache:
        model.ask(requests, cache, "asking")
        whole, cut = map(model.spec.key, requests)
        assert whole in cache and cut not in cache and cache.rows(cut)[0]["error"].startswith("broken.png: ")


@pytest.mark.parametrize("size", [(201, 1), (1, 300), (1, 1)])
def test_a_photo_that_the_processor_does_not_take_is_an_error_beside_the_answers(
    demo_base: Path, photos: list[Path], tmp_path: Path, size: tuple[int, int]
):
    """The rest of its batch is asked, and says what it says without it."""
    Image.new("RGB", size).save(tmp_path / "odd.png")
    row = {"name": "m", "model": str(demo_base), "max_new_tokens": 6, "dtype": "float32", "batch_size": 4}
    asked = [*photos, tmp_path / "odd.png"]
    model = Model(ModelSpec.read(row, "spec"))
    with ResponseCache(tmp_path / "answers.jsonl") as cache:
        requests = [Request(user("Name", None), (path,)) for path in asked]
        model.ask(requests, cache, "asking")
        said = {path.name: cache.rows(model.spec.key(one))[0] for path, one in zip(asked, requests, strict=True)}
    local = LocalModel(str(demo_base), dtype="float32")
    for photo in photos:
        assert said[photo.name]["text"] == local.generate([(user("Name", None), [load_image(photo)])], 6)[0].text
    if size != (1, 1):
        assert said["odd.png"]["error"].startswith("odd.png: the model's processor does not take it (")
        assert "aspect ratio" in said["odd.png"]["error"]


def test_a_batch_that_a_card_has_no_memory_for_is_asked_in_halves(
    demo_base: Path, photos: list[Path], tmp_path: Path, monkeypatch
):
    """Down to a photo that is too much by itself; the others say what they say alone."""
    Image.new("RGB", (256, 256)).save(tmp_path / "large.png")
    local, asked = LocalModel(str(demo_base), dtype="float32"), [*photos, tmp_path / "large.png"]
    batch = [(path.name, Request(user("Name", None), (path,)), [load_image(path)]) for path in asked]
    generate = local.generate

    def short(rows: list[Any], *more: Any) -> list[Response]:
        if len(rows) > 2 or any(image.width > 200 for _, images in rows for image in images):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return generate(rows, *more)

    monkeypatch.setattr(local, "generate", short)
    said = dict(answer_batch(local, batch, 6))
    assert [said[path.name].text for path in photos] == [
        generate([(one.messages, images)], 6)[0].text for _, one, images in batch[:3]
    ]
    assert said["large.png"].error == "large.png: takes more memory than the card has; take a smaller max_pixels"


@pytest.mark.slow
def test_adapters_of_one_base_load_it_once_and_say_what_they_say_alone(
    demo_base: Path, photos: list[Path], tmp_path: Path, monkeypatch, capsys
):
    from peft import LoraConfig, get_peft_model

    adapters: list[str | None] = [None]
    for seed in range(3):
        torch.manual_seed(seed)
        target = ["q_proj", "v_proj"] if seed else ["o_proj"]
        config = LoraConfig(r=4, lora_alpha=64, target_modules=rf".*language_model.*({'|'.join(target)})")
        tuned = get_peft_model(load_model(str(demo_base)), config)
        for name, weight in tuned.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.3)
        tuned.save_pretrained(tmp_path / f"adapter_{seed}")
        adapters.append(str(tmp_path / f"adapter_{seed}"))
    adapters.append(None)  # and back again
    loaded: list[str] = []

    def counted(model: str, *args, **more):
        loaded.append(model)
        return load_model(model, *args, **more)

    rows = [
        {"name": f"m{n}", "model": str(demo_base), "adapter": adapter, "max_new_tokens": 12, "dtype": "float32"}
        for n, adapter in enumerate(adapters)
    ]
    texts = []
    monkeypatch.setattr(local_module, "load_model", counted)
    with ResponseCache(tmp_path / "answers.jsonl") as cache:
        for model in open_models([ModelSpec.read(row, "spec") for row in rows], False, None):
            requests = [Request(user("Name", None), (path,)) for path in photos]
            ask(model, requests, cache)
            texts.append([cache.rows(model.spec.key(request))[0]["text"] for request in requests])
    assert loaded == [str(demo_base)]
    assert capsys.readouterr().out == f"{demo_base} on {str(find_device()).upper()}, float32\n"
    for adapter, said in zip(adapters, texts, strict=True):
        alone = LocalModel(str(demo_base), adapter, dtype="float32")
        assert said == [alone.generate([(user("Name", None), [load_image(path)])], 12)[0].text for path in photos]
    assert len({tuple(said) for said in texts}) == 4


def test_without_a_network_a_model_of_the_hub_is_told_at_once_unless_there_are_answers(tmp_path: Path):
    spec = ModelSpec.read({"name": "m", "model": "nobody/has-this-model"}, "spec")
    with pytest.raises(InputError, match=r"^nobody/has-this-model: cannot be loaded as a model \([^\n]*\)$"):
        open_models([spec], False, tmp_path / "answers.jsonl")
    (tmp_path / "answers.jsonl").touch()
    (model,) = open_models([spec], False, tmp_path / "answers.jsonl")
    with ResponseCache(tmp_path / "answers.jsonl") as cache:
        cache.put([(model.spec.key(Request(user("?"))), {"text": "kept"})])
        ask(model, [Request(user("?"))], cache)  # asks nothing, needs nothing
        with pytest.raises(InputError, match="cannot be loaded as a model"):
            ask(model, [Request(user("!"))], cache)


def test_the_device_is_what_torch_finds_and_a_precision_nobody_chose_is_one_that_it_has(demo_base: Path):
    device = find_device()
    assert device.type == (torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu")
    for dtype in ("auto", "bfloat16"):
        model = to_device(load_model(str(demo_base), dtype=dtype), device, dtype)
        assert (model.device, model.dtype) == (device, torch.bfloat16)  # the demo's base is stored so


def test_no_such_model_is_bad_input(tmp_path: Path):
    model = Model(ModelSpec.read({"name": "m", "model": "no/such/model"}, "spec"))
    with ResponseCache(tmp_path / "answers.jsonl") as cache, pytest.raises(InputError, match="no such model folder"):
        model.ask([Request(user("b"))], cache, "asking")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("./demo_bas", r"^\./demo_bas: no such model folder \(did you mean demo_base\?\)$"),
        ("/nowhere", "^/nowhere: no such model folder$"),
        ("assets/x/y", "^assets/x/y: no such model folder$"),
        ("assets/demo_bas", r"; there is no folder assets/demo_bas here \(did you mean assets/demo_base\?\)$"),
        ("assets/pears", r"\); there is no folder assets/pears here$"),
        ("demo_bas", r"\); there is no folder demo_bas here \(did you mean demo_base\?\)$"),
        ("nobody/has-this-model", r"cannot be loaded as a model \([^\n]*\)$"),
    ],
)
def test_a_mistyped_folder_is_told_as_one(tmp_path: Path, monkeypatch, model: str, said: str):
    (tmp_path / "assets" / "demo_base").mkdir(parents=True)
    (tmp_path / "demo_base").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=said):
        load_processor(model)


def test_a_cut_adapter_is_bad_input(demo_base: Path, tmp_path: Path):
    (tmp_path / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"]})
    )
    (tmp_path / "adapter_model.safetensors").write_bytes((999).to_bytes(8, "little") + b"{")
    with pytest.raises(InputError, match="adapter_model.safetensors: is cut off or damaged"):
        LocalModel(str(demo_base), str(tmp_path))
