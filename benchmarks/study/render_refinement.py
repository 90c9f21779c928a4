"""Render the study of self-training as a Markdown page, from the stored pairs of sets.

python benchmarks/study/render_refinement.py [results/study/refinement.jsonl] [--out results/study/refinement.md]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import records
from numpy.typing import NDArray
from records import Record
from refinement import IMAGES, ROWS, SET_PRIORS, STORE, WAYS
from render_tabular import MINUS, markdown

from uulearn.reproduction.experiments import DATASET_NAMES
from uulearn.reproduction.statistics import mean_std

DOUBT = 1.0
"""Number of standard errors that a gain must exceed, as in `uulearn.estimator.self_training`."""
DOUBTS = (0.0, DOUBT, 1.645, 2.0)
TITLES = {"pure": "treated as pure (`self_training_rounds`)", "estimated": "with estimated priors"}


def kept(way: Record, doubt: float = DOUBT) -> int:
    """Return the round that the rule chooses: the last that gains more than ``doubt`` standard errors over the best.

    Examples
    --------
    >>> way = {"accuracy": [0.8, 0.8, 0.9], "gains": {"1-0": [0.01, 0.02], "2-0": [0.05, 0.02], "2-1": [0.01, 0.02]}}
    >>> kept(way), kept(way, doubt=3), kept(way, doubt=0)
    (2, 0, 2)
    """
    best = 0
    for number in range(1, len(way["accuracy"])):
        value, error = way["gains"][f"{number}-{best}"]
        best = number if value > doubt * error else best
    return best


def gain(way: Record, number: int) -> float | None:
    """Return the gain in test accuracy of a round over the first training, in points; None if the round was not run."""
    return 100 * (way["accuracy"][number] - way["accuracy"][0]) if number < len(way["accuracy"]) else None


def gain_of_halves(way: Record, number: int) -> float | None:
    """Return the same gain for the ensembles of the halves."""
    if number >= len(way["accuracy"]):
        return None
    return 100 * float(np.mean(way["accuracy_of_halves"][number]) - np.mean(way["accuracy_of_halves"][0]))


def estimated_gain(way: Record, number: int) -> float | None:
    """Return the gain that the rule estimates."""
    return 100 * float(way["gains"][f"{number}-0"][0]) if number < len(way["accuracy"]) else None


# ----------------------------------------------------------------------------------------------------------- the page


def page(stored: records.Stored) -> str:
    """Return the complete page."""
    pairs = list(stored.fits.values())
    if not pairs:
        raise ValueError("no pair of sets is stored; run benchmarks/study/refinement.py first.")
    packages = sorted({" ".join(each) for one in stored.environments.values() for each in one["versions"].items()})
    return "\n\n".join(
        [
            "# Self-training",
            f"{len(pairs)} pairs of sets, by `python benchmarks/study/refinement.py` and `python "
            "benchmarks/study/render_refinement.py`, which describe the comparison. Each number is the gain in test "
            "accuracy over the first ensemble, in points, with the standard error of the paired difference. The "
            "pseudo-labeled sets are either treated as pure (priors 1 and 0) or used with their estimated priors. "
            f"Versions: {', '.join(packages)}.",
            gains(pairs),
            "*Used* counts the pairs of sets for which the rule chose at least one round. *Worse* counts those whose "
            "test accuracy fell, and in parentheses those in which it fell by more than two standard errors.",
            "## By dataset",
            by_dataset(pairs),
            "## Is the estimated gain right?",
            fairness(pairs),
            levels(pairs),
            "## Other rules",
            rules(pairs),
        ]
    ) + "\n"  # fmt: skip


def gains(pairs: Sequence[Record]) -> str:
    """Return a table with one line per way to use pseudo-labeled sets."""
    heads = ["pseudo-labeled sets", "always one round", "always two", "as chosen", "… images", "… tables", "used",
             "worse", "worst"]  # fmt: skip
    lines = []
    for name in WAYS:
        ways = [pair["ways"][name] for pair in pairs]
        pictures = [pair["configuration"]["dataset"] in IMAGES for pair in pairs]
        chosen = [gain(way, kept(way)) or 0.0 for way in ways]
        bars = [2 * 100 * way["test_error"][kept(way)] for way in ways]
        lines.append(
            [
                TITLES[name],
                spread([gain(way, 1) for way in ways]),
                spread([gain(way, 2) for way in ways]),
                spread(chosen),
                spread([value for value, own in zip(chosen, pictures, strict=True) if own]),
                spread([value for value, own in zip(chosen, pictures, strict=True) if not own]),
                f"{sum(kept(way) > 0 for way in ways)} of {len(ways)}",
                f"{sum(value < 0 for value in chosen)} "
                f"({sum(value < -bar for value, bar in zip(chosen, bars, strict=True))})",
                signed(min(chosen)),
            ]
        )
    return markdown(heads, lines)


def by_dataset(pairs: Sequence[Record]) -> str:
    """Return a table of means over seeds, with one line per dataset, pair of priors and way."""
    heads = ["data", "θ, θ′", "first accuracy", "sets", "one round", "two", "as chosen", "rounds used"]
    lines = []
    names = [*ROWS, *sorted({pair["configuration"]["dataset"] for pair in pairs} - ROWS.keys())]
    for name in names:
        for priors in SET_PRIORS:
            own = [pair for pair in pairs if _is(pair, name, priors)]
            for place, way_name in enumerate(WAYS if own else ()):
                ways = [pair["ways"][way_name] for pair in own]
                first = f"{100 * np.mean([way['accuracy'][0] for way in ways]):.1f}"
                where = (
                    [DATASET_NAMES.get(name, name), f"{priors[0]:g}, {priors[1]:g}", first] if not place else [""] * 3
                )
                figures = [mean([gain(way, number) for way in ways]) for number in (1, 2)]
                chosen = mean([gain(way, kept(way)) for way in ways])
                lines.append([*where, way_name, *figures, chosen, ", ".join(str(kept(way)) for way in ways)])
    return markdown(heads, lines)


def _is(pair: Record, name: str, priors: tuple[float, float]) -> bool:
    return (pair["configuration"]["dataset"], tuple(pair["configuration"]["set_priors"])) == (name, priors)


def fairness(pairs: Sequence[Record]) -> str:
    """Compare the gain estimated on halves with the true gain on halves and on all rows."""
    heads = ["pseudo-labeled sets", "round", "estimated gain, halves", "true gain, halves", "difference",
             "deviation of the errors, in standard errors", "true gain, all rows"]  # fmt: skip
    lines = []
    for name in WAYS:
        for number in (1, 2):
            ways = [pair["ways"][name] for pair in pairs if number < len(pair["ways"][name]["accuracy"])]
            if not ways:
                continue
            estimated, true = (_known(ways, number, which) for which in (estimated_gain, gain_of_halves))
            off = estimated - true
            scores = off / [100 * max(way["gains"][f"{number}-0"][1], 1e-9) for way in ways]
            figures = [spread(estimated.tolist()), spread(true.tolist()), spread(off.tolist()), f"{scores.std():.2f}"]
            lines.append([name, str(number), *figures, spread([gain(way, number) for way in ways])])
    return markdown(heads, lines)


def _known(ways: Sequence[Record], number: int, which: Callable[[Record, int], float | None]) -> NDArray[np.float64]:
    return np.array([which(way, number) for way in ways], dtype=np.float64)


def levels(pairs: Sequence[Record]) -> str:
    """Compare the accuracy estimated on halves with that of the ensemble of all rows, with sets treated as pure."""
    parts = []
    for which, own in (
        ("all data", pairs),
        ("without Kuzushiji-MNIST", [pair for pair in pairs if pair["configuration"]["dataset"] != "kmnist"]),
    ):
        ways = [pair["ways"]["pure"] for pair in own]
        everywhere = [_off(way, number) for way in ways for number in range(1, len(way["accuracy"]))]
        chosen = [_off(way, kept(way)) for way in ways if kept(way)]
        parts.append(f"{which}: {spread(everywhere)} over all rounds, {spread(chosen)} over the {len(chosen)} used")
    return (
        "If a round is used, `out_of_fold_evaluation_` contains the accuracy estimated on halves of the rows. This "
        "estimate minus the test accuracy of the round's ensemble on all rows, sets treated as pure: "
        f"{'; '.join(parts)}. Test rows of Kuzushiji-MNIST are harder than its training rows."
    )


def _off(way: Record, number: int) -> float:
    return 100 * float(way["estimates"][number][0] - way["accuracy"][number])


def rules(pairs: Sequence[Record]) -> str:
    """Return the results of the rule with other numbers of standard errors."""
    heads = ["pseudo-labeled sets", "required standard errors", "used", "gain", "worst"]
    lines = []
    for name in WAYS:
        ways = [pair["ways"][name] for pair in pairs]
        for doubt in DOUBTS:
            chosen = [kept(way, doubt) for way in ways]
            gained = [gain(way, number) or 0.0 for way, number in zip(ways, chosen, strict=True)]
            lines.append(
                [name, f"{doubt:g}", str(sum(number > 0 for number in chosen)), spread(gained), signed(min(gained))]
            )
    return markdown(heads, lines)


def spread(values: Sequence[float | None]) -> str:
    """Return the mean and standard error of the values that are not None.

    Examples
    --------
    >>> spread([0.5, 1.5]), spread([-0.2]), spread([None])
    ('+1.0 ± 0.5', '−0.2', '')
    """
    known = [value for value in values if value is not None]
    if not known:
        return ""
    middle, deviation = mean_std(known)
    return signed(middle) + ("" if deviation is None else f" ± {deviation / len(known) ** 0.5:.1f}")


def mean(values: Sequence[float | None]) -> str:
    """Return the mean of the values that are not None."""
    known = [value for value in values if value is not None]
    return signed(float(np.mean(known))) if known else ""


def signed(points: float) -> str:
    """Return a number with its sign, or without a sign if it rounds to zero.

    Examples
    --------
    >>> signed(1.25), signed(-0.31), signed(-0.02)
    ('+1.2', '−0.3', '0.0')
    """
    text = f"{points:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", MINUS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path, nargs="?", default=STORE)
    parser.add_argument("--out", type=Path, help="default: next to the store, with the suffix .md")
    asked = parser.parse_args(arguments)
    try:
        text = page(records.read([asked.store]))
    except ValueError as error:
        sys.exit(str(error))
    out = asked.out or asked.store.with_suffix(".md")
    out.write_text(text, encoding="utf-8")
    print(f"written: {out}")


if __name__ == "__main__":
    main()
