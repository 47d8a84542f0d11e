"""``cprt mi``: ask judges whether reconstructions show the private class that they claim (arXiv 2505.03519).

Set-ups come from a YAML (``--setups``, see ``collection/setups.py``), judges from ``models`` (fields: ``ModelSpec`` in
``cprt/models/spec.py``). A query is one reconstruction and n references; control pairs of real images
are judged along, so that each judge's own hit and false-alarm rates stand beside its verdict.

Every reply is kept in ``OUT/answers.jsonl`` as it comes: after a kill or an error the same command asks only what is
missing. ``OUT/JUDGE/SETUP`` has the verdicts and their summary (docs/files.md), ``OUT/panels`` the pictures. What was
shown and got no answer counts in every denominator; what could not be shown (too few references, a broken file) counts
in none, stands as ``not_shown``, and ``problems`` says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cprt.config import option, parse, run
from cprt.errors import InputError
from cprt.models.ask import ask, by_weights, open_models, raise_first
from cprt.models.missing import hash_photos
from cprt.models.outcome import Outcome, find_outcomes, with_status
from cprt.models.response_cache import ResponseCache, read_cache
from cprt.models.spec import ModelSpec, read_specs
from cprt.pages.words import show
from cprt.prompts import digest
from cprt.provenance import sign, write_run
from cprt.records import write_json, write_jsonl
from eval.model_inversion.collection.setups import Setup, read_setups
from eval.model_inversion.judge.asked import Asked, read
from eval.model_inversion.judge.panels import Panels
from eval.model_inversion.judge.prompts import OURS, Prompt
from eval.model_inversion.judge.queries import Options, Query, plan

RETRY = ("refused", "unparsed")
RESERVED = ("panels", "answers.jsonl", "queries.jsonl", "setups.json", "run.json")  # no judge may be called so


@dataclass
class MiArguments:
    models: list[dict[str, Any]] = option("the judges, a list of mappings only in the YAML: configs/mi/", filled=True)
    setups: str = option("YAML that says where reconstructions lie and what their classes are")
    out: str = option("folder to write", writes=("answers.jsonl", "queries.jsonl", "setups.json", "*/*/judge.csv"))
    only: list[str] = option("only these set-ups, by name, leading part of a name, or id", factory=list)
    prompt: str | None = option("YAML of prompts (judge/prompts.py); null: ours. A model may have its own", None)
    controls: int = option("control pairs of each kind for a set-up, 0 for none", 200, least=0)
    limit: int | None = option("so many reconstructions of a set-up, evenly over its classes", None, least=1)
    retry: list[str] = option("labels to ask again: refused, unparsed; errors always are", factory=list, among=RETRY)
    workers: int | None = option("threads that make pictures; by default one a core", None, least=1)
    dry_run: bool = option("say how many calls it would take, make and ask nothing", False)
    allow_remote: bool = option("images may go to endpoints on other machines", False)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of ``cprt mi``."""
    args, options = parse((MiArguments, Options), argv, prog="cprt mi", description=__doc__)
    named = [{name: value for name, value in row.items() if name != "prompt"} for row in args.models]
    specs = read_specs(named, "models")
    prompts = _prompts(args)
    reserved = [spec.name for spec in specs if spec.name.lower() in RESERVED]
    if reserved:
        raise InputError.at("models", f"{reserved[0]!r} is the name of another file in OUT", field="name")
    root, setups = read_setups(args.setups, args.only)
    out = Path(args.out)
    for setup in setups:
        for prompt in prompts.values():
            prompt.check(setup.subject, setup.name)
    planned = [(setup, plan(setup, args.controls, options, args.limit)) for setup in setups]
    if args.dry_run:
        _print_calls(specs, planned, options, out / "answers.jsonl")
        return

    models = open_models(specs, args.allow_remote, out / "answers.jsonl")
    judged: list[tuple[str, Asked, dict[str, Any]]] = []
    sign("cprt mi", out / "run.json")
    with ResponseCache(out / "answers.jsonl") as cache:
        of_prompt = {}
        for prompt in dict.fromkeys(prompts.values()):
            panels = Panels(root, out / "panels", options, prompt)
            of_prompt[prompt] = [
                Asked(setup, panels.show(setup, queries, args.workers), options, prompt) for setup, queries in planned
            ]
        every = [asked for of_setups in of_prompt.values() for asked in of_setups]
        write_jsonl(out / "queries.jsonl", [row for asked in every for row in asked.record(out)])
        manifest = [setup.record() for setup in setups]
        write_json(out / "setups.json", manifest)
        _check_some(every)
        hash_photos(path for asked in every for shown in asked.shown for path in shown.images)
        for model in by_weights(models, lambda model: model.spec):
            keyed = [(asked, asked.requests(model.spec)) for asked in of_prompt[prompts[model.spec.name]]]
            requests = dict(one for _, of_setup in keyed for one in of_setup if one is not None)
            again = with_status(find_outcomes(requests, cache, read, model.spec), args.retry) if args.retry else set()
            ask(model, requests, cache, again)
            outcomes = find_outcomes(requests, cache, read, model.spec)
            for asked, of_setup in keyed:
                found = [
                    Outcome("error", error=shown.problem) if one is None else outcomes[one[0]]
                    for shown, one in zip(asked.shown, of_setup, strict=True)
                ]
                judged.append((model.spec.name, asked, asked.write(out, model.spec, found, args.controls)))
    models_asked = [spec.record() | {"prompt": prompts[spec.name].name} for spec in specs]
    config = {**vars(args), **vars(options), "models": models_asked}
    digests: dict[str, dict[str, str]] = {}
    for asked in every:
        words = asked.prompt.messages(asked.setup.subject, False, options.layout, options.n, True)
        digests.setdefault(asked.prompt.name, {})[asked.setup.id] = digest(words)
    write_run("cprt mi", out, config, {"setups": args.setups}, prompts=digests, setups=manifest)
    raise_first(model.stopped for model in models)
    for name, asked, summary in judged:
        _print(name, asked.setup, summary)
    if all(summary["counts"]["error"] == summary["n"] > 0 for _, _, summary in judged):
        first = judged[0][2]["problems"][0]["reason"]
        raise InputError(f"{out}: every query ended in an error (the first: {first})")


def _prompts(args: MiArguments) -> dict[str, Prompt]:
    """Name of a judge -> what it is asked. Raises InputError."""
    read: dict[str | None, Prompt] = {None: OURS}
    found = {}
    for number, row in enumerate(args.models, start=1):
        path = row.get("prompt", args.prompt)
        if path is not None and not isinstance(path, str):
            raise InputError.at(f"models[{number}]", "must be the name of a file, or null", field="prompt")
        if path not in read:
            read[path] = Prompt.read(str(path), f"models[{number}]" if "prompt" in row else "options")
        found[str(row["name"])] = read[path]
    return found


def _check_some(every: Sequence[Asked]) -> None:
    """Where nothing of a set-up can be shown something is wrong: better told before anything is asked."""
    for asked in every:
        images = [shown for shown in asked.shown if not shown.query.is_control]
        if all(shown.problem for shown in images):
            first = f"{images[0].query.path}: {images[0].problem}"
            none = f"none of its {len(images)} reconstructions can be shown (the first: {first})"
            raise InputError(f"{asked.setup.name}: {none}")


def _print_calls(
    specs: Sequence[ModelSpec], planned: Sequence[tuple[Setup, Sequence[Query]]], options: Options, kept: Path
) -> None:
    """What a run would ask of every judge. Set-ups with the same private data share their control pairs."""
    total = {
        (query.setup if query.is_degraded else query.source, query.kind, query.claims, query.file)
        for _, queries in planned
        for query in queries
    }
    for spec in specs:
        print(f"{spec.name}: at most {len(total):,} calls")
    for setup, queries in planned:
        counts = Counter(query.kind for query in queries)
        claims = [query.claims for query in queries if not query.is_control]
        few = sum(len(setup.references_of(name)) < options.least for name in claims)
        controls = f"{counts['positive']:,} positive and {counts['negative']:,} negative controls"
        note = f"; {few:,} cannot be shown, their classes have fewer than {options.least} references" if few else ""
        print(f"  {setup.id}: {counts['reconstruction']:,} reconstructions, {controls}{note}")
    count = sum("error" not in answer for answer in read_cache(kept).values())
    if count:
        print(f"  {count:,} answers are kept in {kept}; those that still fit are not asked again")


def _print(judge: str, setup: Setup, summary: Mapping[str, Any]) -> None:
    controls = summary["controls"]
    labels = ", ".join(f"{count} {label}" for label, count in summary["counts"].items())

    def rate(of: Mapping[str, Any], name: str) -> str:
        return show(of[name], of["ci"][name])

    hits, alarms = (controls[kind] for kind in ("positive", "negative"))
    print(
        f"{judge}, {setup.id}: attack accuracy {rate(summary, 'attack_accuracy')} of {summary['n']:,} ({labels}); "
        f"controls: hit rate {rate(hits, 'hit_rate')} of {hits['n']}, false alarms "
        f"{rate(alarms, 'false_alarm_rate')} of {alarms['n']}"
    )
    if "positive_degraded" in controls:
        hit = rate(controls["positive_degraded"], "hit_rate")
        alarm = rate(controls["negative_degraded"], "false_alarm_rate")
        print(f"  the same pairs, blurred as reconstructions are: hit rate {hit}, false alarms {alarm}")
    if not summary["answered"]:
        print("  note: no reply says yes or no, so its rates say nothing about the reconstructions")
    problems = summary["problems"]
    if problems:
        print(f"  {len(problems)} with a problem (see summary.json), the first: {problems[0]['reason']}")


if __name__ == "__main__":
    run(main, "cprt mi")
