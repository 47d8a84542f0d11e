"""What ``report.html`` looks like: one page that loads nothing, for screens of any size, light and dark, and for print.

Ids, names of runs and models, and answers come from files: they are escaped, and the policy in the page's head allows
our own style and script by their digests, pictures that are part of the page, and nothing else. Without scripts
everything is there, only unsorted.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cprt.pages.markup import digest, figure, interval, isolated, script_json, text, wide
from cprt.records import Label, Prediction
from cprt.taxonomy import LEVELS, Taxonomy
from eval.metrics import HEADS
from eval.report.lists import errors
from eval.report.lists import unscored as without_score
from eval.report.plots import DARK, LIGHT, Panel, calibration_panel, curve_panel, draw, score_panel
from eval.report.write import ListedRow, unscored_by_level

_STYLE, _SCRIPT = (Path(__file__).with_name(f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
_ARROWS = {"bias": "", "mae": " ↓"}  # the others: higher is better
_OTHER_PROTOCOL = ("inter_level_accuracy", "intra_level_accuracy")
_PROMPTINGS = {"zero_shot": "Zero-Shot", "intuition": "Intuition", "taxonomy": "Taxonomy"}  # ours -> the paper's


def page(
    labels: Sequence[Label],
    runs: Mapping[str, Sequence[Prediction]],
    metrics: Mapping[str, Mapping[str, Any]],
    bins: Mapping[str, Sequence[Mapping[str, Any]]],
    listed: Sequence[ListedRow],
    unscored: Sequence[ListedRow],
    pictures: Mapping[str, str],
    taxonomy: Taxonomy,
    paper: Sequence[Mapping[str, Any]],
    comparison: Mapping[str, Any] | None,
) -> str:
    """The whole HTML; arguments as in ``eval.report.write.write_report``, whose parts they are."""
    levels = Counter(label.level for label in labels)
    by_level = ", ".join(f"{levels[level]:,} of level {level}" for level in LEVELS)
    title = f"Privacy judges on {len(labels):,} photos"
    policy = f"default-src 'none'; img-src data:; style-src {digest(_STYLE)}; script-src {digest(_SCRIPT)}; "
    policy += "base-uri 'none'; form-action 'none'"
    private = "<p class=private>This page holds pictures of the photos.</p>" if pictures else ""
    numbers = {id: str(number) for number, id in enumerate(pictures)}
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p class=note>{by_level}. Intervals are 95%. A dash is a figure that is undefined, or that the paper does not give.</p>
{private}{_results(runs, metrics, paper)}
{_comparison(comparison) if comparison else ""}
{_statuses(metrics)}
<h2>Levels</h2>
<p class=note>Rows are true levels, columns predicted ones (level 1 is the most severe). Counts, and the share of the
row's photos with a score; the last column counts those without.</p>
<div class=grid>{"".join(_confusion(name, metrics[name], labels, rows) for name, rows in runs.items())}</div>
<h2>Scores by true level</h2>
<p class=note>A point is a photo. Inside the shaded band of its level it has the right level. Line: median.</p>
<div class=grid>{"".join(_scores(name, labels, rows, taxonomy) for name, rows in runs.items())}</div>
<h2>Calibration</h2>
<p class=note>Photos in ten bins of predicted score. A point on the dashed line has the mean true score that it
predicts, one below it is overestimated. Bars and small numbers: photos in the bin; hollow points: fewer than 10.</p>
<div class=grid>{"".join(_calibration(name, bins[name]) for name in runs)}</div>
{errors(listed, numbers, metrics)}
{without_score(unscored, numbers, metrics)}
</main>
<script type="application/json" id="pictures">{script_json(list(pictures.values()))}</script>
<script>{_SCRIPT}</script>
</body>
</html>
"""


# --- Figures ---------------------------------------------------------------------------------------------------------


def _heads(first: str, names: Iterable[str]) -> str:
    cells = "".join(f"<th scope=col>{HEADS[name]}{_ARROWS.get(name, ' ↑')}</th>" for name in names)
    return f"<thead><tr><th scope=col class=text>{first}</th>{cells}</tr></thead>"


def _results(
    runs: Mapping[str, Sequence[Prediction]],
    metrics: Mapping[str, Mapping[str, Any]],
    paper: Sequence[Mapping[str, Any]],
) -> str:
    own = []
    for name, predictions in runs.items():
        asked = sorted({str(row.prompt) for row in predictions if row.prompt is not None})
        beside = f"<br><small>{text(', '.join(asked))}</small>" if asked else ""
        own.append(_figures_row(f"{isolated(name)}{beside}", metrics[name], "", "run"))
        own += [_figures_row(text(way), figures, "way") for way, figures in _ways(metrics[name])]
    prompts = {_PROMPTINGS.get(str(row.prompt)) for rows in runs.values() for row in rows}
    groups = []
    for prompting in dict.fromkeys(row["prompting"] for row in paper):
        shown = str(prompting == "SFT" or prompting in prompts).lower()
        head = f"<tr class=group><th scope=rowgroup colspan={len(HEADS) + 1}>Paper, {text(prompting)}</th></tr>"
        rows = [_figures_row(text(row["model"]), row, "paper") for row in paper if row["prompting"] == prompting]
        groups.append(f"<tbody data-group data-open={shown}>{head}{''.join(rows)}</tbody>")
    table = f"<table class=figures>{_heads('Run', HEADS)}<tbody>{''.join(own)}</tbody>{''.join(groups)}</table>"
    return f"""<h2>Results</h2>
{wide(table, "Results beside the paper's Table 6")}
<p class=note>Over the photos with a score; coverage is their share. Arrows point to better; a bias above 0
overestimates. † Other protocol: the paper scores curated pairs of photos; ours are all pairs with different true
scores, and a tie counts as wrong. Paper: arXiv:2603.21573, Table 6, on 6,736 photos.</p>"""


def _ways(metrics: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The other ways to a score that metrics.json holds, each with its figures."""
    ways = [(f"{name} score", figures) for name, figures in (metrics.get("decodings") or {}).items()]
    for name, kinds in (metrics.get("calibrated") or {}).items():
        ways += [(f"{name} score, {kind} calibration", figures) for kind, figures in kinds.items()]
    return ways


def _figures_row(head: str, figures: Mapping[str, Any], row_class: str, head_class: str = "") -> str:
    cells = []
    intervals = figures.get("ci") or {}
    for name in HEADS:
        other = "†" if row_class == "paper" and name in _OTHER_PROTOCOL else ""
        sign = "+" if name == "bias" else ""
        cells.append(f"<td>{figure(figures.get(name), sign)}{other}{interval(intervals.get(name), sign)}</td>")
    return f'<tr class="{row_class}"><th scope=row class="{head_class}">{head}</th>{"".join(cells)}</tr>\n'


def _statuses(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(status for figures in metrics.values() for status in figures["status_counts"]))
    rows = []
    for run, figures in metrics.items():
        cells = "".join(f"<td>{figures['status_counts'].get(name, 0):,}</td>" for name in names)
        rows.append(f"<tr><th scope=row class=run>{isolated(run)}</th><td>{figures['n']:,}</td>{cells}</tr>\n")
    heads = "".join(f"<th scope=col>{text(name)}</th>" for name in names)
    table = f"<table><thead><tr><th scope=col class=text>Run</th><th scope=col>photos</th>{heads}</tr></thead>"
    return f"""<h2>Answers</h2>
<p class=note>Only an answer that is ok has a score. None of the others was given one.</p>
{wide(table + f"<tbody>{''.join(rows)}</tbody></table>", "Answers by status")}"""


# --- Differences and curves ------------------------------------------------------------------------------------------


def _comparison(comparison: Mapping[str, Any]) -> str:
    rows = []
    figures = [name for name in HEADS if name != "coverage"]
    for pair in comparison["differences"]:
        cells = []
        for name in figures:
            test = pair["figures"][name]
            beyond = test["beyond_noise"]
            kind = "" if beyond is None else "beyond" if beyond else "within"
            mark = "<span title='beyond noise'> *</span>" if beyond else ""
            cells.append(f'<td class="{kind}">{figure(test["difference"], "+")}{mark}{interval(test["ci"], "+")}</td>')
        head = f"{isolated(pair['run'])}<br><small>minus {isolated(pair['against'])}; {pair['n']:,} photos</small>"
        rows.append(f"<tr><th scope=row class=run>{head}</th>{''.join(cells)}</tr>\n")
    method = comparison["correction"]
    table = f"<table class=figures>{_heads('Run', figures)}<tbody>{''.join(rows)}</tbody></table>"
    found = (
        f"""<h2>Differences</h2>
{wide(table, "Paired differences between runs")}
<p class=note>Both runs on the same resampled photos that both have scored ({method["resamples"]:,} resamples). A star:
beyond noise, at {method["alpha"]:.0%} after Holm's correction for all {method["tests"]} differences here. Intervals are
not corrected.</p>"""
        if rows
        else ""
    )
    return found + _curves(comparison["curves"])


def _curves(curves: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    if not any(len(points) > 1 for points in curves.values()):
        return ""
    pictures = []
    for name, head in HEADS.items():
        panel = curve_panel(
            {
                series: [(point["step"], point[name], point["ci"].get(name)) for point in points]
                for series, points in curves.items()
            }
        )
        pictures.append(f"<figure><h3>{head}</h3>{_picture(panel, f'{head} over training steps', (3.4, 2.5))}</figure>")
    table = "".join(
        f"<tr><th scope=row>{isolated(series)}</th><td>{point['step']:,}</td>"
        + "".join(f"<td>{figure(point[name])}</td>" for name in HEADS)
        + "</tr>"
        for series, points in curves.items()
        for point in points
    )
    heads = "".join(f"<th scope=col>{head}</th>" for head in ("step", *HEADS.values()))
    numbers = (
        f"<table><thead><tr><th scope=col class=text>Training</th>{heads}</tr></thead><tbody>{table}</tbody></table>"
    )
    return f"""<h2>Over training</h2>
<div class="grid small">{"".join(pictures)}</div>
<details><summary>the numbers</summary>{wide(numbers, "Figures over training steps")}</details>"""


# --- Pictures --------------------------------------------------------------------------------------------------------


def _picture(panel: Panel, alt: str, size: tuple[float, float]) -> str:
    """A panel in a light and a dark version, of which a browser shows the one that fits the page; print is light."""
    light, dark = (
        f"data:image/png;base64,{base64.b64encode(draw({'': panel}, theme, size)).decode()}" for theme in (LIGHT, DARK)
    )
    source = f'<source media="screen and (prefers-color-scheme: dark)" srcset="{dark}">'
    return f'<picture>{source}<img src="{light}" alt="{text(alt)}"></picture>'


def _confusion(
    name: str, metrics: Mapping[str, Any], labels: Sequence[Label], predictions: Sequence[Prediction]
) -> str:
    missing = unscored_by_level(labels, predictions)
    rows = []
    for level, counts, lost in zip(LEVELS, metrics["confusion"], missing, strict=True):
        total = sum(counts)
        cells = []
        for count in counts:
            shade = f"s{round(10 * count / total)}" if total else "s0"
            share = f"{count / total:.0%}" if total else "–"
            cells.append(f"<td class={shade}>{count:,}<small>{share}</small></td>")
        rows.append(f"<tr><th scope=row>{level}</th>{''.join(cells)}<td class=none>{lost:,}</td></tr>")
    heads = "".join(f"<th scope=col>{level}</th>" for level in LEVELS)
    return f"""<figure><h3>{isolated(name)}</h3><table class=confusion>
<thead><tr><th scope=col><small>true</small></th>{heads}<th scope=col><small>no score</small></th></tr></thead>
<tbody>{"".join(rows)}</tbody></table></figure>"""


def _scores(name: str, labels: Sequence[Label], predictions: Sequence[Prediction], taxonomy: Taxonomy) -> str:
    scores = [row.score for row in predictions if row.score is not None]
    missing = len(labels) - len(scores)
    lost = f" <small>{missing:,} of {len(labels):,} without a score</small>" if missing else ""
    picture = _picture(
        score_panel(labels, predictions, taxonomy), f"Predicted scores by true level of {name}", (4.2, 3.6)
    )
    return f"<figure><h3>{isolated(name)}{lost}</h3>{picture}</figure>"


def _calibration(name: str, bins: Sequence[Mapping[str, Any]]) -> str:
    picture = _picture(calibration_panel(bins), f"Mean true score over predicted score of {name}", (4.2, 3.6))
    rows = "".join(
        f"<tr><th scope=row>{row['bin'][0]:.1f} to {row['bin'][1]:.1f}</th><td>{row['n']:,}</td>"
        f"<td>{figure(row['mean_prediction'])}</td><td>{figure(row['mean_truth'])}{interval(row['ci'])}</td></tr>"
        for row in bins
    )
    heads = "".join(f"<th scope=col>{head}</th>" for head in ("photos", "mean predicted", "mean true"))
    head = f"<thead><tr><th scope=col class=text>predicted</th>{heads}</tr></thead>"
    table = f"<table class=figures>{head}<tbody>{rows}</tbody></table>"
    return (
        f"<figure><h3>{isolated(name)}</h3>{picture}<details><summary>the numbers</summary>{table}</details></figure>"
    )
