"""All pairs of the runs of a Table 6: resampling each run once, beside resampling both runs of every pair anew.

    python benchmarks/compare_speed.py --runs 29 --rows 6736 --json outputs/compare_speed.json

The second way is timed on ``--sample`` pairs and scaled to all of them. Both give the same figures, which is checked.
"""

from __future__ import annotations

import itertools
import json
import resource
import time

import numpy as np
from common.measuring import options, save

from cprt.metrics.severity import paired_differences
from cprt.scoring import severity


def main() -> None:
    args = options(__doc__, runs=29, rows=6736, resamples=2000, sample=2)
    rng = np.random.default_rng(0)
    counts = np.stack([rng.integers(0, size + 1, args.rows) for size in (3, 10, 5, 4)], axis=1)
    counts[rng.random(args.rows) < 0.6, 0] = 0
    truth, levels = zip(
        *((one.score, one.level) for one in (severity(tuple(map(int, row))) for row in counts)), strict=True
    )
    noise = rng.uniform(0.05, 0.3, args.runs)
    judges = {
        f"run{number}": np.clip(np.asarray(truth) + rng.normal(0, spread, args.rows), 0, 1).round(3)
        for number, spread in enumerate(noise)
    }
    pairs = list(itertools.combinations(judges, 2))

    start = time.perf_counter()
    together = paired_differences(truth, judges, levels, pairs, resamples=args.resamples)
    once = time.perf_counter() - start
    start = time.perf_counter()
    for pair in pairs[: args.sample]:
        alone = paired_differences(truth, judges, levels, [pair], resamples=args.resamples)
        assert alone[pair] == together[pair], pair
    each = (time.perf_counter() - start) / args.sample * len(pairs)
    found = {
        "runs": args.runs,
        "rows": args.rows,
        "pairs": len(pairs),
        "resamples": args.resamples,
        "seconds": once,
        "seconds_pair_by_pair": each,
        "ratio": each / once,
        "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    print(json.dumps(found, indent=2))
    save(args, found)


if __name__ == "__main__":
    main()
