"""Facts of docs/what-can-go-wrong.md and its study page, from ``benchmarks/results/wrong.json``."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from pathlib import Path
from statistics import pstdev
from typing import Any

RECORD = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "wrong.json"

Results = dict[str, Any]


def percent(fraction: float, digits: int = 1) -> str:
    """Return a fraction in percent."""
    return f"{100 * fraction:.{digits}f}%"


def signed(value: float) -> str:
    """Return a number with two digits and a typographic minus sign."""
    return f"{value:.2f}".replace("-", "−")


def wrap(message: str, **indent: str) -> str:
    """Return a message wrapped to the width of a code block."""
    return textwrap.fill(message, 86, subsequent_indent="  ", break_on_hyphens=False, **indent)


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    lines = [tuple(header), *map(tuple, rows)]
    text = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([text[0], f"|{len(lines[0]) * '---|'}", *text[1:]])


def facts() -> dict[str, str]:
    """Return all facts of the two pages."""
    results = json.loads(RECORD.read_text(encoding="utf-8"))["results"]
    parts = (overfitting, order, wrong_priors, close_priors, leak, batches, selection_and_messages)
    return {name: value for part in parts for name, value in part(results).items()}


def overfitting(results: Results) -> dict[str, str]:
    """Return the facts of sections 1 and 6."""
    found = {"default-true": percent(results["overfitting_default"])}
    for method, run in results["overfitting"].items():
        best = run["true"].index(max(run["true"]))
        stop = run["best_epoch"]
        found |= {
            f"{method}-negative-epoch": str(run["first_negative_epoch"]),
            f"{method}-risk": signed(run["risk"][-1]),
            f"{method}-peak-epoch": str(best + 1),
            f"{method}-peak": percent(run["true"][best]),
            f"{method}-stop-epoch": str(stop),
            f"{method}-stop": percent(run["true"][stop - 1]),
            f"{method}-true": percent(run["true"][-1]),
            f"{method}-training-rows": percent(run["training_rows"][-1]),
            f"{method}-held-out": percent(run["held_out"][-1]),
        }
    return found | {f"copies-{name}": percent(value) for name, value in results["copies"].items()}


def order(results: Results) -> dict[str, str]:
    """Return the facts of section 2."""
    right, swapped = results["order"]
    return {
        "order-true": percent(right["true"], 0),
        "order-swapped": percent(swapped["true"], 0),
        "order-estimate": percent(right["estimate"], 0),
        "order-swapped-estimate": percent(swapped["estimate"], 0),
    } | {f"swaps-{labels}": percent(share, 0) for labels, share in results["detected_swaps"].items()}


def wrong_priors(results: Results) -> dict[str, str]:
    """Return the facts of section 3."""
    found = {}
    for priors, name in (("(0.8, 0.2)", "far"), ("(0.55, 0.45)", "close")):
        by_error = {own["error"]: own for own in results["wrong_priors"][priors]}
        for error, sign in ((-0.06, "low"), (0.0, "right"), (0.06, "high")):
            found[f"{name}-{sign}-true"] = percent(by_error[error]["true"])
            found[f"{name}-{sign}-estimate"] = percent(by_error[error]["estimate"])
    rows = [
        (priors, f"{own['error']:+.2f}".replace("-", "−"), percent(own["estimate"]), percent(own["true"]))
        for priors, errors in results["wrong_priors"].items()
        for own in errors
    ]
    found["wrong-priors"] = table(("true priors", "error in θ", "estimated accuracy", "true accuracy"), rows)
    found["far-low-unbiased"] = percent(results["wrong_priors_unbiased"][0]["true"])
    rows = [
        (priors, percent(low["true"]), percent(right["true"]))
        for priors, (low, right) in results["wrong_priors_abs_sigmoid"].items()
    ]
    found["wrong-priors-default-loss"] = table(("true priors", "θ too low by 0.06", "correct θ"), rows)
    return found | {f"term-{name.replace(' ', '')}": signed(v) for name, v in results["held_out_term"].items()}


def close_priors(results: Results) -> dict[str, str]:
    """Return the facts of section 4."""
    found, rows = {}, []
    for gap, own in results["close_priors"].items():
        spread = 100 * pstdev(e - t for e, t in zip(own["estimate"], own["true"], strict=True))
        low, high = percent(min(own["true"]), 0), percent(max(own["true"]), 0)
        found[f"gap-{gap}"] = f"{low} to {high}"
        found[f"gap-{gap}-error"] = f"{spread:.0f}"
        mean = sum(own["true"]) / len(own["true"])
        rows.append((gap, f"{low} to {high}", percent(mean), f"{spread:.1f} points"))
    header = ("difference of the priors", "true accuracy, 20 samples", "mean", "error of the estimate (std)")
    found["close-priors"] = table(header, rows)
    for priors, n in results["rows_for_2_points"].items():
        found[f"rows-{priors.strip('()').replace(', ', '-')}"] = f"{n:,}"
    return found


def leak(results: Results) -> dict[str, str]:
    """Return the facts of section 5."""
    found = {}
    for strength, own in results["leak"].items():
        found[f"leak-{strength}-true"] = percent(own["true"], 0)
        found[f"leak-{strength}-estimate"] = percent(own["estimate"], 0)
        found[f"leak-{strength}-auc"] = f"{own['auc_between_files']:.2f}"
    for strength, own in results["leak_default"].items():
        found[f"leak-{strength}-default-true"] = percent(own["true"], 0)
        found[f"leak-{strength}-default-estimate"] = percent(own["estimate"], 0)
    rows = [
        (
            strength,
            *(percent(own[part]) for part in ("true", "true_unbiased", "estimate")),
            f"{own['auc_between_files']:.2f}",
        )
        for strength, own in results["leak"].items()
    ]
    header = ("strength", "true, `leaky_relu`", "true, `unbiased`", "estimate, `leaky_relu`", "AUC between the files")
    found["leak"] = table(header, rows)
    alarms = results["alarms"]
    rows = [(percent(float(best)), *(percent(share, 0) for share in own.values())) for best, own in alarms.items()]
    found["alarms"] = table(("best possible accuracy", *(f"strength {s}" for s in next(iter(alarms.values())))), rows)
    (warning,) = results["command"]["0.5"]["warnings"]
    message = wrap(warning["message"], initial_indent="  ")
    found["command-warning"] = f"```text\n{warning['category']}:\n{message}\n```"
    message = wrap(f"error: {results['command']['1.0']['error']}")
    found["command-error"] = f"```text\n{message}\n```"
    return found


def batches(results: Results) -> dict[str, str]:
    """Return the facts of section 7."""
    found = {}
    sizes = list(results["batches"]["abs"])
    rows = [
        (f"`{method}`", *(percent(own["true"]) for own in by_size.values()))
        for method, by_size in results["batches"].items()
    ]
    header = [f"{int(size):,}" for size in sizes]
    found["batches"] = table(("rows per batch", *header), rows)
    rows = [
        (priors, *(percent(share, 0) for share in by_size.values())) for priors, by_size in results["noise"].items()
    ]
    found["noise"] = table(("rows per batch", *header), rows)
    rows = [
        (f"`{method}`", *(percent(own["true"]) for own in by_size.values()))
        for method, by_size in results["batches_sigmoid"].items()
    ]
    found["batches-sigmoid"] = table(("rows per batch", "20", "500"), rows)
    for method, by_size in results["batches"].items():
        for size in ("20", "500"):
            found[f"batches-{method}-{size}"] = percent(by_size[size]["true"])
    small = results["batches"]["leaky_relu"]["20"]
    found["batches-below-zero"] = percent(small["below_zero"], 0)
    found["batches-risk-term"] = signed(small["risk_term"])
    for name, accuracy in results["sizes"].items():
        found[f"sizes-{name.replace(' ', '')}"] = percent(accuracy)
    return found


def selection_and_messages(results: Results) -> dict[str, str]:
    """Return the facts of sections 8 and 9."""
    found, rows = {}, []
    for own in results["best_of"]:
        values = [percent(own[part]) for part in ("estimate", "true", "fresh_rows", "best")]
        rows.append((str(tuple(own["priors"])), str(own["candidates"]), *values))
    best = results["best_of"][-1]
    found["best-estimate"], found["best-true"] = percent(best["estimate"]), percent(best["true"])
    header = (
        "priors",
        "candidates",
        "estimate of the best",
        "true accuracy of the best",
        "estimate on new rows",
        "highest true accuracy",
    )
    found["best-of"] = table(header, rows)
    rows = []
    for name, own in results["endings"].items():
        messages = ", ".join(f"`{message}`" for message in own["messages"]) or "–"
        rows.append(
            (name, percent(own["true"]), percent(own["estimate"]), percent(own["predicted_positive"], 0), messages)
        )
    header = ("model, priors (0.8, 0.2)", "true accuracy", "estimate", "predicted positive", "messages")
    found["endings"] = table(header, rows)
    money = results["endings"]["MLP, default settings, one column in money"]
    found["money-true"] = percent(money["true"])
    found["no-money-true"] = percent(results["endings"]["MLP, default settings"]["true"])
    return found
