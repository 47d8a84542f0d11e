"""Both families with the real vocabularies, templates and processor settings: from labels to an adapter to publish."""

from __future__ import annotations

import json
import math
import random
import sys

import pytest
import real_parts
import torch
from tiktoken import Encoding
from tiktoken.load import load_tiktoken_bpe
from tokenizers import Tokenizer

from cprt.answers import parse
from cprt.answers.structure import structure
from cprt.images import load_image
from cprt.models.decoding.lists import ListTokens
from cprt.models.decoding.scores import SCORE_LEAD_IN
from cprt.models.local import LocalModel
from cprt.prompts import build
from cprt.records import read_pairs, read_predictions
from cprt.taxonomy import Taxonomy
from data_prep.pairs import run as pairs_command
from eval import run as eval_command
from train.pair_dataset import PairCollator, pair_dataset
from train.publish import run as publish_command

pytestmark = pytest.mark.slow  # whole vocabularies

FAMILIES = ("qwen", "llama")
NAMES = {"qwen": "Qwen/Qwen3-VL-2B-Instruct", "llama": "meta-llama/Llama-3.2-11B-Vision-Instruct"}
CAP = {"qwen": ["--max_pixels", "65536"], "llama": []}  # 256 x 256: 64 image tokens; Llama has tiles of 560 x 560


@pytest.fixture(scope="module")
def judge(real):
    """The base of a family as a judge, loaded once."""
    loaded: dict[str, LocalModel] = {}

    def load(family: str) -> LocalModel:
        if family not in loaded:
            loaded[family] = LocalModel(str(real(family)), dtype="float32", max_pixels=65536)
        return loaded[family]

    return load


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_get_the_ids_of_the_vocabulary_itself(real, family):
    ours = Tokenizer.from_file(str(real(family) / "tokenizer.json"))
    ranks = load_tiktoken_bpe(str(real_parts.ranks_file(family)))
    theirs = Encoding(family, pat_str=real_parts.PATTERNS[family], mergeable_ranks=ranks, special_tokens={})
    prompts = [build(name, target) for name, target in (("taxonomy", "score"), ("taxonomy", "attributes"))]
    texts = [text for prompt in prompts for text in (prompt.policy, prompt.question)]
    texts += [f'{{"score": {part / 1000:.3f}}}' for part in range(1001)]
    rng = random.Random(0)
    odd = "aZ09 \t\n'.{}\"éßЖא漢字カ한😀👩‍👩‍👧٣½\u00a0\u3000"
    texts += ["".join(rng.choices(odd, k=40)) for _ in range(300)]
    for text, encoded in zip(texts, ours.encode_batch(texts, add_special_tokens=False), strict=True):
        assert encoded.ids == theirs.encode_ordinary(text), text


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_follows_the_prompt_of_evaluation_token_by_token(judge, demo, family):
    model = judge(family)
    pairs = read_pairs(demo.pairs / "train.jsonl")[:3]
    rows = pair_dataset(pairs, demo.images, model.model_type)
    batch = PairCollator(model.processor)([rows[index] for index in range(len(pairs))])
    tokenizer = model.processor.tokenizer
    start = tokenizer.convert_tokens_to_ids("<|begin_of_text|>")
    for row, pair in enumerate(pairs):
        asked = model._inputs([(pair.prompt, [load_image(demo.images / pair.images[0])])])["input_ids"][0]
        answer = pair.completion[-1]["content"][0]["text"]
        said = [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        ids = batch["input_ids"][row][batch["attention_mask"][row].bool()].tolist()
        assert ids[: len(asked) + len(said)] == asked.tolist() + said
        labels = batch["labels"][row]
        assert labels[labels != -100].tolist() == said
        assert ids.count(start) == (family == "llama")
        assert sum(labels >= model.model.config.get_text_config().vocab_size) == 0


def test_scores_are_cut_into_the_tokens_that_the_tree_expects(judge):
    cut = {family: judge(family).processor.tokenizer.tokenize("0.383") for family in FAMILIES}
    assert cut == {"qwen": ["0", ".", "3", "8", "3"], "llama": ["0", ".", "383"]}


@pytest.mark.parametrize("family", FAMILIES)
def test_structured_answers_of_the_real_vocabularies(judge, demo, family):
    """Lists are put together from the tokens of pairs of keys, and what is held to the form can be read."""
    model, taxonomy, rng = judge(family), Taxonomy.default(), random.Random(0)
    tokens = ListTokens(taxonomy.keys, lambda text: _ids(model, text))
    for _ in range(40):
        some = tuple(sorted(rng.sample(range(22), rng.randrange(9))))
        put = [*tokens.lead, *tokens.path(some), *tokens.steps(some)[tokens.end]]
        text = f'{{"attributes": {json.dumps([taxonomy.keys[one] for one in some])}, "level": 1, "score": 0.711}}'
        assert _ids(model, text)[: len(put)] == put
    photo = load_image(next((demo.images / "images" / "test2017").iterdir()))
    row = build("zero_shot").messages(), [photo]
    (answer,) = model.generate([row], 8, structure=structure("score", taxonomy))
    assert parse(answer.text).status == "ok" and answer.complete and 0 <= answer.willing < 1


@pytest.mark.parametrize("family", FAMILIES)
def test_probabilities_of_scores_are_those_of_single_forward_passes(judge, demo, family):
    """Of a number of three decimals whatever follows; of a shorter one, of what does not go on with it."""
    model = judge(family)
    row = (build("zero_shot").messages(), [load_image(sorted(demo.images.rglob("*.jpg"))[0])])
    (said,) = model.generate([row], 16, SCORE_LEAD_IN)
    assert said.distribution is not None
    numbers = [max(said.distribution, key=said.distribution.__getitem__), "0.292", "0.953", "0.000", "1.000"]
    tokenizer, known = model.processor.tokenizer, len(model.model.get_output_embeddings().weight)
    tokens = tokenizer.convert_ids_to_tokens(range(min(known, len(tokenizer))))
    going_on = torch.tensor([place for place, token in enumerate(tokens) if token[0] in "0123456789."])
    lead = len(_ids(model, SCORE_LEAD_IN + "0")) - 1
    inputs = model._inputs([row])
    asked = inputs["input_ids"].shape[1]
    for number in numbers:
        ways = [number]
        while ways[-1].endswith("0") and len(ways[-1]) > 1:  # 0.710, 0.71; 0.000, 0.00, 0.0, 0
            ways.append(ways[-1][:-1].removesuffix("."))
        total = 0.0
        for way in ways:
            ids = _ids(model, SCORE_LEAD_IN + way)
            logits = _forward(model, inputs, ids)[asked - 1 :].log_softmax(-1)
            probability = math.exp(sum(float(logits[place, ids[place]]) for place in range(lead, len(ids))))
            ends = 1 - float(logits[len(ids)].exp()[going_on].sum()) if len(way) < 5 else 1
            total += probability * ends
        assert said.distribution.get(number, 0.0) == pytest.approx(total, abs=1e-5)


def _ids(model: LocalModel, text: str) -> list[int]:
    return model.processor.tokenizer(text, add_special_tokens=False)["input_ids"]


def _forward(model: LocalModel, inputs: dict, answer: list[int]) -> torch.Tensor:
    """Logits of the one row with an answer behind it, in one plain pass."""
    inputs = dict(inputs)
    tail = torch.tensor([answer])
    inputs["input_ids"] = torch.cat([inputs["input_ids"], tail], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if "mm_token_type_ids" in inputs:
        inputs["mm_token_type_ids"] = torch.cat([inputs["mm_token_type_ids"], torch.zeros_like(tail)], dim=1)
    if "cross_attention_mask" in inputs:
        seen = inputs["cross_attention_mask"]
        inputs["cross_attention_mask"] = torch.cat([seen, seen[:, -1:].expand(-1, tail.shape[1], -1, -1)], dim=1)
    with torch.inference_mode():
        return model.model(**inputs).logits[0].float()


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_takes_a_third_of_the_passes(judge, demo, family, monkeypatch):
    """What comes without a choice is guessed and verified: the same answers as by the library's loop.

    Which digits a random model writes differs between kinds of processor, and with them how often a guess holds: one
    token a pass is the library's loop, and at most a pass for each digit and the two ends is ours.
    """
    model, form = judge(family), structure("score", Taxonomy.default())
    held = form if family == "llama" else None  # what it was taught, this one does not write of itself
    rows = [(build("zero_shot").messages(), [load_image(path)]) for path in sorted(demo.images.rglob("*.jpg"))[:3]]
    passes: list[int] = []
    hook = model.model.model.language_model.register_forward_hook(lambda *of_pass: passes.append(1))
    counts = []
    for lead_in in (None, SCORE_LEAD_IN):
        with monkeypatch.context() as patched:
            patched.setattr("cprt.models.local.KEEPING", ())
            patched.setattr(model, "share_prefix", False)
            plain = model.generate(rows, 16, lead_in, structure=held)
            counts.append(len(passes))
        passes.clear()
        answers = model.generate(rows, 16, lead_in, structure=held, guess=form)
        counts.append(len(passes) - model.share_prefix)  # the prefix is read once a run
        passes.clear()
        model.forget()
        for one, other in zip(answers, plain, strict=True):
            assert one.text == other.text and one.complete and parse(one.text).status == "ok"
            assert one.distribution == (lead_in and pytest.approx(other.distribution, abs=1e-5))
    hook.remove()
    plainly, guessed, scored, guessed_and_scored = counts
    assert scored == plainly + 1 and plainly == {"qwen": 11, "llama": 9}[family]
    assert 2 * guessed < plainly and guessed_and_scored == 2


def test_the_shared_prefix_changes_nothing(judge, demo):
    model = judge("qwen")
    photos = [load_image(path) for path in sorted(demo.images.rglob("*.jpg"))[:3]]
    rows = [(build("taxonomy").messages(), [photo]) for photo in photos]
    shared = model.generate(rows, 16, SCORE_LEAD_IN)
    model.share_prefix = False
    plain = model.generate(rows, 16, SCORE_LEAD_IN)
    model.share_prefix = True
    for one, other in zip(shared, plain, strict=True):
        assert one.text == other.text
        assert one.distribution == pytest.approx(other.distribution, abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_from_labels_to_an_adapter_that_can_be_published(real, demo, root, tmp_path, monkeypatch, capsys, family):
    base, photos, adapter = real(family), ["--images", str(demo.images)], tmp_path / "adapter"
    few = tmp_path / "test.jsonl"
    few.write_text("".join(demo.test_labels.read_text().splitlines(keepends=True)[:3]))
    monkeypatch.chdir(root)

    pairs = tmp_path / "pairs"
    options = ["--labels", str(demo.train_labels), "--size", "16", "--models", str(base), *CAP[family]]
    pairs_command.main(["--out", str(pairs), *photos, *options])
    (lengths,) = json.loads((pairs / "card.json").read_text())["token_lengths"]
    assert 700 < lengths["shortest"] <= lengths["longest"] < 1200

    import train.sft

    recipe = "--max_steps 3 --learning_rate 1e-3 --warmup_steps 0 --lora_r 8 --lora_alpha 16 --eval_strategy no"
    sizes = "--global_batch_size 2 --per_device_train_batch_size 2 --logging_steps 1".split()
    words = ["train/sft.py", "--config", "configs/sft/demo.yaml", "--pairs", str(pairs), *photos, *recipe.split()]
    words += [*sizes, "--model_name_or_path", str(base), "--output_dir", str(adapter)]
    monkeypatch.setattr(sys, "argv", [*words, *(CAP[family] or ["--max_pixels", "null"])])
    train.sft.main()
    end = {"qwen": "<|im_end|>", "llama": "<|eot_id|>"}[family]
    answers = [pair.completion[-1]["content"][0]["text"] for pair in read_pairs(pairs / "train.jsonl")]
    shown = capsys.readouterr().out
    assert any(repr(answer + end) in shown for answer in answers)
    assert f"shared prefix: {'yes' if family == 'qwen' else 'no'}" in shown

    out = tmp_path / "judged"
    options = "--dtype float32 --decoding expected --batch_size 4 --max_new_tokens 16".split()
    options += ["--adapter", str(adapter)]
    eval_command.main(["--model", str(base), "--labels", str(few), *photos, "--out", str(out), *options])
    predictions = read_predictions(out / "predictions.jsonl")
    assert [row.status for row in predictions] == ["ok"] * 3
    for row in predictions:
        assert row.text.startswith(f'{{"score": {row.score}')
        assert 0 < row.expected_score < 1 and 0 < row.label_mass <= 1

    name = "ORG/Llama-judge" if family == "llama" else "ORG/judge"
    options = ["--base_model", NAMES[family], "--data", "drawings", "--metrics", str(out / "metrics.json")]
    publish_command.main(["--adapter", str(adapter), "--repo", name, "--dry_run", "true", *options])
    card = capsys.readouterr().out
    assert ("cprt merge" in card) == (family == "llama")
    assert ('"shortest_edge": 65536, "longest_edge": 65536' in card) == (family == "qwen")
    assert "names this very adapter" in card
