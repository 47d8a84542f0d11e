"""``cprt eval`` of adapters: asked as they were trained, here and served, with the pixel cap they bring."""

from __future__ import annotations

import base64
import io
import json
import shutil
from typing import Any

import pytest
from evaluation import rows
from loopback import Misbehaving
from PIL import Image
from safetensors.torch import load_file, save_file

from cprt.errors import InputError
from cprt.models.adapter import pixel_cap
from cprt.prompts import build
from cprt.provenance import model_digest
from cprt.taxonomy import Taxonomy
from eval.judges import from_options, only_asked
from eval.run import main


def test_an_adapter_is_asked_as_it_was_trained_unless_told(adapter, tmp_path, capsys):
    folder = tmp_path / "adapter"
    shutil.copytree(adapter, folder)
    trained = build("taxonomy", "attributes")
    (folder / "run.json").write_text(json.dumps({"prompt": trained.identity()}))
    taxonomy = Taxonomy.default()

    def asked(adapters: list[str], target: str | None, *prompts: str) -> Any:
        judges = from_options("m", adapters, prompts, target, "greedy", False, taxonomy)
        return only_asked(judges, [], taxonomy)[0].prompt

    assert asked([str(folder)], None) == asked([str(folder)], None, "taxonomy") == trained
    assert asked([], None) == asked([str(folder)], "score") == build("taxonomy", "score")
    assert "was trained with --prompt taxonomy --target attributes: asked otherwise" in capsys.readouterr().out
    mixed = {**trained.identity(), "also": build("taxonomy", "score").identity()}
    (folder / "run.json").write_text(json.dumps({"prompt": mixed}))
    assert asked([str(folder)], None) == trained
    assert asked([str(folder)], "score") == build("taxonomy", "score")
    assert capsys.readouterr().out == ""  # it was trained so too
    assert asked([str(folder)], None, "zero_shot") == build("zero_shot", "score")
    assert "asked otherwise" in capsys.readouterr().out
    own = tmp_path / "own.yaml"
    own.write_text("name: own\npolicy: How bad is it?\nphoto: first\n")
    (folder / "run.json").write_text(json.dumps({"prompt": build(str(own)).identity()}))
    assert asked([str(folder)], None) == build(str(own))
    (folder / "run.json").write_text(json.dumps({"prompt": {"name": None, "target": None, "sha256": "0"}}))
    assert asked([str(folder)], None) == build("taxonomy", "score")
    assert f"{folder} was trained with a prompt or taxonomy that is not known here" in capsys.readouterr().out
    for digest, said in ((taxonomy.digest, ""), ("0", f"note: {folder} was trained on another taxonomy than it is")):
        (folder / "run.json").write_text(json.dumps({"prompt": trained.identity(), "taxonomy": digest}))
        asked([str(folder)], None, "taxonomy", "zero_shot")
        lines = [line for line in capsys.readouterr().out.splitlines() if "on another taxonomy" in line]
        assert len(lines) == bool(said) and all(line.startswith(said) for line in lines)


def test_a_served_adapter_is_asked_as_it_was_trained(demo, adapter, tmp_path):
    """Prompt, target and pixel cap come from its folder, and another adapter under its name is another judge."""
    folder = tmp_path / "adapter"
    shutil.copytree(adapter, folder)
    (folder / "run.json").write_text(json.dumps({"prompt": build("taxonomy", "attributes").identity()}))
    processor = {"image_processor": {"size": {"shortest_edge": 1024, "longest_edge": 2304}}}
    (folder / "processor_config.json").write_text(json.dumps(processor))
    answer = '{"attributes": ["age"], "level": 4, "score": 0.1}'
    with Misbehaving(lambda body: (answer, "stop")) as server:
        data = ["--labels", str(demo.test_labels), "--images", str(demo.images), "--limit", "2"]
        served = [
            "--base_url",
            server.url,
            "--model",
            "judge",
            "--adapter",
            str(folder),
            "--out",
            str(tmp_path / "out"),
        ]
        main([*data, *served])
        assert len(server.bodies) == 2
        main([*data, *served])
        assert len(server.bodies) == 2
        weights = load_file(folder / "adapter_model.safetensors")
        save_file({name: 2 * weight for name, weight in weights.items()}, folder / "adapter_model.safetensors")
        main([*data, *served])
        assert len(server.bodies) == 4
        with pytest.raises(InputError, match="adapter: an endpoint serves one as model"):
            main([*data, *served, "--adapter", str(folder), str(adapter)])
    text, photo, question = server.bodies[0]["messages"][0]["content"]
    assert [text, {"type": "image"}, question] == build("taxonomy", "attributes").messages()[0]["content"]
    with Image.open(io.BytesIO(base64.b64decode(photo["image_url"]["url"].partition(",")[2]))) as image:
        assert image.size == (48, 48)
    row, record = rows(tmp_path / "out")[0], json.loads((tmp_path / "out" / "run.json").read_text())
    assert (row["model"], row["attributes"]) == ("judge", ["age"]) and record["adapter"] == model_digest(folder)


@pytest.mark.slow
def test_a_served_adapter_is_checked_against_the_same_one_here(demo, adapter, demo_base, tmp_path):
    """One photo is asked about in both places, and the endpoint's answer is not asked for again."""
    data = ["--labels", str(demo.test_labels), "--images", str(demo.images), "--limit", "2", "--max_new_tokens", "12"]
    main([*data, "--model", str(demo_base), "--adapter", str(adapter), "--out", str(tmp_path / "here")])
    said = rows(tmp_path / "here")[0]["text"]
    for answer, fits in ((said, True), (said + " 0.1", False)):
        with Misbehaving(lambda body, answer=answer: (answer, "stop")) as server:
            served = ["--base_url", server.url, "--model", "judge", "--adapter", str(adapter), "--check_served", "true"]
            if fits:
                main([*data, *served, "--out", str(tmp_path / "served")])
            else:
                with pytest.raises(InputError, match="about .*jpg the endpoint says .* 0.1', .*adapter.* here "):
                    main([*data, *served, "--out", str(tmp_path / "other")])
            assert len(server.bodies) == (2 if fits else 1)


@pytest.mark.parametrize(
    ("processor", "cap"),
    [
        ({"image_processor": {"size": {"shortest_edge": 1024, "longest_edge": 2304}}}, 2304),
        ({"image_processor": {"size": {"height": 560, "width": 560}}}, None),  # tiles: Mllama
        ({"image_processor": {"size": {"longest_edge": 2304}}}, None),
        ({"image_processor": {"size": {"shortest_edge": 1, "longest_edge": "2304"}}}, None),
        ({"image_processor": {"size": 5}}, None),
        ({"image_processor": []}, None),
        ({}, None),
        (None, None),
    ],
)
def test_the_pixel_cap_of_an_adapter(adapter, tmp_path, processor, cap):
    shutil.copytree(adapter, tmp_path, dirs_exist_ok=True)
    if processor is not None:
        (tmp_path / "processor_config.json").write_text(json.dumps(processor))
    assert pixel_cap(str(tmp_path)) == cap
