"""``cprt COMMAND``: finds the stage that does the work and hands the arguments on. Only that stage is imported."""

from __future__ import annotations

import sys
from importlib import import_module

from cprt import __version__
from cprt.config import check_config, run
from cprt.errors import InputError, suggestion

# In pipeline order: name, module, what it does.
_COMMANDS = """
demo-data      data_prep.demo.data  draw a small photo collection with labels, in the layout of the real one
download       data_prep.download  fetch, check and unpack the photo collection and the released labels
images         data_prep.image_cache  check every photo once and reduce it once, into a cache
select         data_prep.selection  choose photos of VISPR as the paper does, from VISPR's own labels
annotate       data_prep.annotate  ask two or more models which attributes each photo makes inferable
labels         data_prep.labels.run  read CPRT labels, recompute level and score, write labels.jsonl
export         data_prep.labels.export  labels of your own in CPRT-Bench's format, with a data card
pairs          data_prep.pairs.run  turn labels into instruction-response pairs for fine-tuning
boundaries     data_prep.boundaries.run  learn score bands from labels and compare them with the published ones
fit            train.fit.run  whether a training recipe fits a GPU, and how long it takes, before renting one
ablate         train.ablations.run  train a recipe in variants and seeds, evaluate and compare them
prompts        eval.prompts  print every prompt that is used, exactly as it is sent
eval           eval.run  ask a model about every photo, write predictions and metrics
metrics        eval.metrics  compare a predictions file with a labels file
compare        eval.compare.run  several runs or checkpoints side by side, and which differences are beyond noise
survey         data_prep.labels.survey  photos for people to label, and a rating sheet for each of them
agreement      eval.agreement.run  how far people and models agree on attributes, beside the paper's Table 2
counterfactual eval.counterfactual.run  ask as if all faces were anonymised, and compare (paper 5.4.1)
paper          eval.paper  the paper's tables from your results: CSV, LaTeX and Markdown, with the differences
score          eval.score.run  level, score, attributes and advice for photos of your own
merge          train.merge  base and adapter as one model, for engines that take no adapter of its family
publish        train.publish.run  put a trained adapter on the Hugging Face Hub: checked, private, with a card
mi             eval.model_inversion.judge.run  ask judges whether reconstructions show the private class that they claim
mi-standard    eval.model_inversion.standard.run  what a classifier says of reconstructions, with FID and PRDC
mi-metrics     eval.model_inversion.metrics.run  a judge beside an evaluation model on the same reconstructions
mi-compare     eval.model_inversion.compare.run  all model-inversion set-ups and judges in a table, chart and page
mi-study       eval.model_inversion.study.run  people judge reconstructions too: rating sheets, and agreement
"""
COMMANDS = tuple(tuple(line.split(maxsplit=2)) for line in _COMMANDS.strip().splitlines())
MODULES = {command: module for command, module, _ in COMMANDS}


def main() -> None:
    """Entry point of the console script."""
    name, *rest = sys.argv[1:] or ["--help"]
    if name == "help":
        name, *rest = [*rest[:1], "--help"]
    if name in MODULES:
        run(lambda: _command(name, rest), f"cprt {name}")
    run(lambda: _top_level(name), "cprt")


def _command(name: str, words: list[str]) -> None:
    check_config(words)
    import_module(MODULES[name]).main(words)


def _top_level(name: str) -> None:
    if name in ("-h", "--help"):
        print("usage: cprt COMMAND [--config YAML] [--option VALUE ...]\n\ncommands, in pipeline order:")
        for command, _, summary in COMMANDS:
            print(f"  {command:<14} {summary}")
        print("\nTraining stands between pairs and eval: accelerate launch train/sft.py --config configs/sft/NAME.yaml")
        print("`cprt COMMAND --help` lists the options of a command.")
    elif name == "--version":
        print(f"cprt {__version__}")
    else:
        raise InputError(f"no command {name!r}{suggestion(name, MODULES)}; see cprt --help")


if __name__ == "__main__":
    main()
