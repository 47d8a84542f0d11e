"""Every reader of a file from outside, with a file that it takes."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from cprt.config import parse
from cprt.errors import InputError
from cprt.files import open_file, read_text, read_yaml
from cprt.images import load_image
from cprt.models.adapter import base_of, pixel_cap
from cprt.models.completion import Unusable, read_completion
from cprt.models.response_cache import read_cache
from cprt.models.spec import ModelSpec
from cprt.prompts import build
from cprt.provenance import made_by
from cprt.records import (
    Label,
    Prediction,
    read_json,
    read_jsonl,
    read_labels,
    read_object,
    read_pairs,
    read_predictions,
    to_json,
)
from cprt.tables import read_csv
from cprt.taxonomy import Taxonomy
from cprt.vispr import read_annotation
from data_prep.download import DownloadRecord
from data_prep.id_lists import read_ids
from data_prep.labels.files import read_aliases, read_annotations, read_bench, read_table
from data_prep.selection import read_map
from eval.agreement import rows as agreement
from eval.counterfactual import run as counterfactual
from eval.counterfactual.cases import read_fingerprints
from eval.judges import trained_prompt
from eval.measures import measure
from eval.model_inversion.compare.inputs import from_folders, from_yaml
from eval.model_inversion.compare.pictures import references_shown
from eval.model_inversion.judge.prompts import Prompt as JudgePrompt
from eval.model_inversion.metrics.evaluation import Inputs
from eval.model_inversion.metrics.join import read_classifier, read_controls, read_judge, read_naturals
from eval.model_inversion.standard.spec import ClassifierSpec
from eval.model_inversion.study.answers import read_sheet
from eval.model_inversion.study.sheets import Asked, draw, read_key
from eval.paper import read_rows, table2
from eval.runs import read_runs

TAXONOMY = Taxonomy.default()
ZEROS = {key: 0 for key in TAXONOMY.keys}


@dataclass
class Options:
    labels: str
    rank: int = 3
    rate: float = 0.5
    names: list[str] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=list)
    limit: int | None = None


@dataclass(frozen=True)
class Reader:
    read: Callable[[Path], Any]
    content: bytes
    suffix: str = ""
    optional: bool = False  # one of the files in a run's folder


def _jsonl(*rows: dict[str, Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _csv(*rows: str) -> bytes:
    return "".join(f"{row}\r\n" for row in rows).encode()


def _picture() -> bytes:
    buffer = io.BytesIO()
    Image.radial_gradient("L").resize((24, 16)).save(buffer, "PNG")
    return buffer.getvalue()


def _bench() -> bytes:
    groups: dict[str, dict[str, int]] = {}
    for attribute in TAXONOMY.attributes:
        groups.setdefault(f"level{attribute.level}", {})[attribute.key] = 0
    return json.dumps([{"id": "ä.jpg", "binary_labels": groups, "level": 4, "score": 0.0}]).encode()


_LABELS = _jsonl({"id": "ä\u2028b", "image": "images/a.jpg", "labels": ZEROS, "level": 4, "score": 0, "source": "x"})
_ANNOTATIONS = _jsonl(
    {"id": "a", "annotator": "x", "status": "ok", "labels": ZEROS, "error": None},
    {"id": "b", "annotator": "x", "status": "refused", "labels": None, "error": "no"},
)
_PAIRS = _jsonl(
    {
        "id": "a",
        "images": ["images/a.jpg"],
        "prompt": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "?"}]}],
        "completion": [{"role": "assistant", "content": "!"}],
        "level": 4,
        "score": 0.5,
    }
)
_PREDICTIONS = _jsonl({"id": "a", "status": "ok", "score": 0.5}, {"id": "b", "status": "refused", "text": "I cannot."})
_KEYS, _CELLS = ",".join(ZEROS), ",".join("0" for _ in ZEROS)
_OPTIONS = (
    b"labels: a\nrank: 5\nrate: 1e-4\nnames: [x, 'y', \"z\"]\nmodels:\n  - {name: a, more: [1, {b: null}]}\nlimit: ~\n"
)
_TAXONOMY = b'name: mine\nremove: [age]\nattributes:\n  - {key: pets, level: 4, question: "Are there pets?"}\n'
_SETUPS = b"- name: A/B\n  standard: e.csv\n  judges:\n    gemini: j.csv\n    qwen: {file: j.csv, n: 4, order: 0}\n"
_CLASSIFIER = {
    "name": "E",
    "library": "torchvision",
    "architecture": "resnet18",
    "weights": "e.csv",
    "num_classes": 3,
    "classes": "numeric",
    "crop": [0, 0, 9, 9],
    "resize": 64,
    "mean": [0.5, 0.5, 0.5],
    "std": [0.5, 0.5, 0.5],
}
_EVAL = {
    "command": ["cprt", "eval"],
    "config": {"judge": {"name": "a", "model": "nobody/nothing", "max_new_tokens": 9, "max_pixels": 9216}, "n": 1},
    "prompt": {"name": "taxonomy", "target": "score", "sha256": build("taxonomy", "score").digest},
    "decoding": {"greedy": True, "max_pixels": 9216},
    "model": "nobody/nothing@main",
    "adapter": None,
    "taxonomy": TAXONOMY.digest,
    "inputs": {"labels": {"sha256": hashlib.sha256(b"").hexdigest()}},
}
_MODEL = b"{name: a, model: b, base_url: 'http://127.0.0.1:1/v1', temperature: 1e-1, extra: {top_k: 1}}\n"

_PROMPT = b"name: mine\npolicy: |\n  Say how private it is.\nquestion: ''\nscore_key: risk\n"


_REPLY = {
    "choices": [
        {
            "message": {"role": "assistant", "content": [{"type": "text", "text": "0.7"}], "refusal": None},
            "finish_reason": "stop",
            "logprobs": {
                "content": [{"token": "0", "logprob": -0.1, "top_logprobs": [{"token": "1", "logprob": -2.5}]}]
            },
        }
    ],
    "usage": {"prompt_tokens": 10, "completion_tokens": 3},
}
_FETCHED = {"a": {"sha256": "0", "size": 1, "mtime_ns": 1, "into": "b", "files": 1, "bytes": 1}}
_ANNOTATION = b'{"image_path": "images/val2017/a.jpg", "attributes": {"x": ["a1_age_approx"]}, "safe": false}'
_LEVELS = {"levels": {str(level): {"agreement": 0.9, "kappa": None} for level in (1, 2, 3, 4)}}
_AGREEMENT = json.dumps(
    {
        "table2": [{"comparison": "a", "agreement": 0.9, "kappa": 0.8, "paper": {"agreement_percent": 87, "kappa": 0}}],
        "human_human": _LEVELS,
        "model_human": {"pooled": _LEVELS},
        "model_model": {"pooled": _LEVELS},
    }
).encode()
_WORDINGS = b"person:\n  text: Same?\n"
_QUERIES = _jsonl(
    *(
        dict(setup="s", kind=kind, file="a.png", path="1/a.png", images=[f"{kind}.png"], references=["b.png"])
        | {"class": "1"}
        for kind in ("reconstruction", "positive", "negative")
    )
)
_BASE = b'{"base_model_name_or_path": "nobody/nothing"}'


def _content(path: Path) -> bytes:
    """What is in a file, for readers that take bytes, or a file of one name; raises InputError where it is none."""
    with open_file(path) as file:
        return file.read()


def _reply(path: Path) -> Any:
    """An endpoint's words, as they are kept."""
    try:
        row = read_completion(_content(path), 9).row()
    except Unusable as error:
        raise InputError("no answer") from error
    return json.dumps(row, allow_nan=False).encode("utf-8", "backslashreplace")


def _folder(path: Path, name: str) -> Path:
    """A folder in which the file has a name."""
    content = _content(path)
    folder = path.parent / f"folder of {Path(name).stem}"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return folder


def _downloads(path: Path) -> Any:
    return DownloadRecord(_folder(path, "archives/downloads.json"))


def _fingerprints(path: Path) -> Any:
    return read_fingerprints(str(_folder(path, "a.json")), {"a"})


def _adapter(path: Path, name: str) -> Any:
    folder = _folder(path, name)
    (folder / "adapter_model.safetensors").touch()
    if name != "adapter_config.json":
        (folder / "adapter_config.json").write_bytes(b'{"peft_type": "LORA", "r": 4}')
    return pixel_cap(folder)


def _record() -> bytes:
    return json.dumps(_EVAL).encode()


@cache
def _metrics() -> bytes:
    labels, predictions = _evaluated()
    return json.dumps(measure(labels, predictions, TAXONOMY, "x", resamples=3), default=to_json).encode()


def _evaluated() -> tuple[list[Label], list[Prediction]]:
    labels = [Label(id, None, None, level, score, None) for id, level, score in (("a", 4, 0.1), ("b", 1, 0.8))]
    return labels, [Prediction("a", "m", "taxonomy", "ok", score=0.2), Prediction("b", "m", "taxonomy", "refused")]


@contextmanager
def _as(path: Path, name: str) -> Iterator[str]:
    """A folder in which a link of the name that a run gives the file leads to it, among what else is there."""
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        folder.mkdir()
        answers = _jsonl(*map(asdict, _evaluated()[1]))
        for other, content in {"predictions.jsonl": answers, "run.json": _record(), "metrics.json": _metrics()}.items():
            if other != name:
                (folder / other).write_bytes(content)
        (folder / name).symlink_to(path)
        yield str(folder)


def _trained(path: Path) -> Any:
    with _as(path, "run.json") as folder:
        return trained_prompt(folder, TAXONOMY)


def _repeated(path: Path) -> Any:
    with _as(path, "run.json") as folder:
        return counterfactual.read_runs({"run": Path(folder)}, TAXONOMY)


def _compared(path: Path, name: str) -> Any:
    with _as(path, name) as folder:
        empty = Path(folder).with_name("empty")
        empty.touch()
        return read_runs({"run": Path(folder)}, str(empty), _evaluated()[0], TAXONOMY)


def _judges(path: Path, name: str) -> Any:
    with _as(path, name) as folder:
        standard = Path(folder).with_name("standard")
        for place in (Path(folder) / "judge" / "s" / "judge.csv", standard / "s" / "prediction.csv"):
            place.parent.mkdir(parents=True)
            place.write_bytes(_csv("filename,label,prediction", "1/a.png,yes,yes"))
        return from_folders([folder], Inputs("judge.csv", str(standard)))


READERS: dict[str, Reader] = {
    "text": Reader(read_text, "ä\r\n写真\n".encode()),
    "json": Reader(read_json, b'{"a": [1, 2.5e3, null, true, "\\ud83d\\ude00"], "b": {"c": "\\u00e4"}}'),
    "object": Reader(read_object, b'{"a": 1}'),
    "jsonl": Reader(lambda path: list(read_jsonl(path)), b'{"a": 1}\n\n{"b": [2]}\n'),
    "yaml": Reader(read_yaml, b"a: &x [1, .5, ~, 'b']\nc: {<<: {d: e}, f: *x}\n? g\n: |\n  h\n"),
    "csv": Reader(lambda path: read_csv(path).need(["a"]), b'\xef\xbb\xbfa,b\r\n1,"2\r\n3"\r\n'),
    "ids of lines": Reader(read_ids, b"2017_1\nval2017/2017_2.jpg\nannotations/val2017/2017_3.json\n", ".txt"),
    "ids of rows": Reader(read_ids, _LABELS, ".jsonl"),
    "ids of a list": Reader(read_ids, _bench(), ".json"),
    "ids of a table": Reader(read_ids, _csv("id,x", "a,1", '"b",2'), ".csv"),
    "labels": Reader(read_labels, _LABELS),
    "pairs": Reader(read_pairs, _PAIRS),
    "predictions": Reader(read_predictions, _PREDICTIONS),
    "bench": Reader(lambda path: read_bench(path, TAXONOMY), _bench()),
    "labels by hand": Reader(
        lambda path: read_table(path, TAXONOMY), _csv(f"id,{_KEYS},level,score", f"a,{_CELLS},4,0.0", f"b,{_CELLS},,")
    ),
    "annotations": Reader(lambda path: read_annotations(path, TAXONOMY), _ANNOTATIONS),
    "answers of people": Reader(
        lambda path: list(agreement.read_answers(path, TAXONOMY)),
        _csv(f"annotator,kind,image,{_KEYS}", f"x,human,a.jpg,{_CELLS}", f"y,model,a.jpg,{_CELLS}"),
    ),
    "answers of models": Reader(lambda path: list(agreement.read_annotations(path, TAXONOMY)), _ANNOTATIONS),
    "aliases": Reader(lambda path: read_aliases(path, TAXONOMY), b"face: biometrics\nyears: age\n"),
    "map": Reader(
        lambda path: read_map(path, TAXONOMY),
        b"a1_age_approx: {attribute: age}\na9_face: {attribute: null, clear: no}\n",
    ),
    "taxonomy": Reader(Taxonomy.load, _TAXONOMY),
    "options": Reader(lambda path: parse(Options, ["--config", str(path)]), _OPTIONS),
    "model": Reader(lambda path: ModelSpec.read(dict(read_object_of_yaml(path)), "models[1]"), _MODEL),
    "judge": Reader(read_judge, _csv("filename,class,response,label", 'a.png,1,"Yes, ""they"" are.\n",yes')),
    "classifier": Reader(read_classifier, _csv("filename,prediction", "ID=3_T=12_P=0.png,no", "2/b.png,YES")),
    "controls": Reader(read_controls, _csv("kind,filename,class,label", "positive,a.png,1,yes", "negative,a.png,1,no")),
    "naturals": Reader(read_naturals, _csv("filename,prediction", "a.png,no")),
    "set-ups": Reader(from_yaml, _SETUPS),
    "kept answers": Reader(
        read_cache, b'{"key": "ab", "answer": {"text": "1"}}\n{"key": "cd", "answer": {"error": "x"}}\n'
    ),
    "run record": Reader(made_by, b'{"command": ["cprt", "eval", "--limit", "3"], "config": {}}'),
    "prompt": Reader(lambda path: build(str(path), "score"), _PROMPT, ".yaml"),
    "classifier's own": Reader(
        lambda path: ClassifierSpec.read(read_object_of_yaml(path), "classifier"), json.dumps(_CLASSIFIER).encode()
    ),
    "record of an adapter": Reader(_trained, _record(), optional=True),
    "record of a run, to repeat": Reader(_repeated, _record(), optional=True),
    "record of a run, to compare": Reader(lambda path: _compared(path, "run.json"), _record(), optional=True),
    "metrics of a run": Reader(lambda path: _compared(path, "metrics.json"), _metrics(), optional=True),
    "record of judges": Reader(lambda path: _judges(path, "run.json"), _record(), optional=True),
    "set-ups of judges": Reader(
        lambda path: _judges(path, "setups.json"), b'[{"id": "s", "name": "A/B"}]', optional=True
    ),
    "photo": Reader(load_image, _picture()),
    "reply of an endpoint": Reader(_reply, json.dumps(_REPLY).encode()),
    "record of downloads": Reader(_downloads, json.dumps({"archives": _FETCHED, "labels": {}}).encode()),
    "annotation of a photo": Reader(lambda path: read_annotation(path, Path(path).stem), _ANNOTATION, ".json"),
    "annotations with fingerprints": Reader(_fingerprints, _ANNOTATION),
    "rows of a table": Reader(lambda path: read_rows(str(path)), b"Zero-Shot / Gemini 3 Flash: a-run\n"),
    "agreement": Reader(lambda path: table2(read_object(path), str(path)), _AGREEMENT),
    "prompts of a judge": Reader(lambda path: JudgePrompt.read(str(path), "models[1]"), _WORDINGS),
    "queries of judges": Reader(lambda path: draw(_folder(path, "queries.jsonl"), 1, 2, 0), _QUERIES),
    "queries of judges, for a page": Reader(
        lambda path: references_shown.__wrapped__(_folder(path, "queries.jsonl")), _QUERIES
    ),
    "key of a study": Reader(
        read_key, _csv("number,setup,kind,class,filename,picture", "1,s,reconstruction,1,a,p.png")
    ),
    "sheet of a study": Reader(
        lambda path: read_sheet(path, {"1": Asked("1", "s", "reconstruction", "1", "a", "p.png")}),
        _csv("number,picture,answer", "1,p.png,yes"),
    ),
    "adapter": Reader(lambda path: _adapter(path, "adapter_config.json"), b'{"peft_type": "LORA", "r": 4}'),
    "processor of an adapter": Reader(
        lambda path: _adapter(path, "processor_config.json"),
        b'{"image_processor": {"size": {"shortest_edge": 9216, "longest_edge": 9216}}}',
    ),
    "base of an adapter": Reader(lambda path: base_of(_folder(path, "adapter_config.json"), None, None), _BASE),
    "base in an adapter's record": Reader(lambda path: base_of(_folder(path, "run.json"), "x", None), _record()),
}


def read_object_of_yaml(path: Path) -> dict[str, Any]:
    """A mapping, as the parser of options hands one on."""
    content = read_yaml(path)
    return content if isinstance(content, dict) else {}


def make_neighbours(folder: Path) -> None:
    """The files that a reader's content names, beside it."""
    for name in ("e.csv", "j.csv"):
        (folder / name).write_bytes(_csv("filename,label,prediction", "1/a.png,yes,yes"))
