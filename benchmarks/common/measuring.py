"""What the scripts share: options with ``--json``, and ways that are timed in turn."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cprt.records import write_json

Clock = Callable[[], float]
WALL_AND_PROCESSOR: Mapping[str, Clock] = {"s": time.perf_counter, "cpu_s": time.process_time}  # of all threads


def options(description: str | None, **defaults: Any) -> argparse.Namespace:
    """``--json`` and a script's options, each of its default's type; of a list any number, of a tuple as many."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        number: Any = "+" if isinstance(default, list) else len(default) if isinstance(default, tuple) else None
        kind: Any = type(default if number is None else default[0])
        parser.add_argument(f"--{name}", type=kind, nargs=number, default=default, help="default: %(default)s")
    parser.add_argument("--json", help="file for the figures")
    return parser.parse_args()


def save(args: argparse.Namespace, figures: Any) -> None:
    """Write the figures, where a file for them was named."""
    if args.json:
        write_json(args.json, figures)


def in_turn(
    ways: Mapping[str, Callable[[int], object]], rounds: int, clocks: Mapping[str, Clock] = WALL_AND_PROCESSOR
) -> dict[str, list[float]]:
    """``WAY_CLOCK`` -> what each round took of it. Ways alternate, and are told the number of their round."""
    times: dict[str, list[float]] = {f"{way}_{clock}": [] for way in ways for clock in clocks}
    for number in range(rounds):
        for way, run in ways.items():
            before = [now() for now in clocks.values()]
            run(number)
            for (clock, now), start in zip(clocks.items(), before, strict=True):
                times[f"{way}_{clock}"].append(now() - start)
    return times


def medians(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """That of all rounds, by the same names."""
    return {name: statistics.median(values) for name, values in times.items()}
