"""``uulearn plan``: print the number of rows to hold out, as text or JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING, Annotated

import typer

from uulearn.cli.options import AsJson, flag, option
from uulearn.defaults import AUTO_MODELS, TARGET_PRIOR

if TYPE_CHECKING:
    from uulearn.theory.planning import PlannedPrecision, RowPlan


def plan(
    set_priors: Annotated[tuple[float, float], option("θ θ′", "Class priors of set 0 and set 1, such as 0.6 0.4.")],
    target_prior: Annotated[
        float, option("π", "Class prior of the population on which the classifier will be used.")
    ] = TARGET_PRIOR,
    accuracy: Annotated[float, option("P", "Expected accuracy.")] = 0.9,
    half_width: Annotated[float, option("P", "Half-width of the interval; 0.02 means ±2 percentage points.")] = 0.02,
    sizes: Annotated[
        tuple[int, int] | None, option("N N′", "Number of held-out rows of set 0 and set 1, to print their precision.")
    ] = None,
    delta: Annotated[float, option("P", "Error probability; 0.05 means 95% intervals.")] = 0.05,
    details: Annotated[bool, flag("Also show unequal sizes and guaranteed bounds.", "--details")] = False,
    as_json: AsJson = False,
) -> None:
    """Calculate the number of rows needed to estimate the accuracy without labels."""
    from uulearn.theory.planning import plan_rows

    found = plan_rows(set_priors, target_prior, accuracy=accuracy, half_width=half_width, sizes=sizes, delta=delta)
    text = json.dumps(_to_json(found), indent=2) if as_json else render(found, given=sizes is not None, details=details)
    typer.echo(text)


def render(plan: RowPlan, *, given: bool, details: bool) -> str:
    """Format the plan as text; ``given`` is True if the user passed sizes."""
    theta, theta_prime = map(_percent, plan.set_priors)
    assumed = [
        f"class priors: set 0 {theta}, set 1 {theta_prime}, population {_percent(plan.target_prior)}; "
        f"expected accuracy {_percent(plan.accuracy)} on each class"
    ]
    blocks = [
        assumed,
        _precision_block(plan) if given else [],
        _rows_block(plan, details),
        _distance_block(plan),
        _guarantee_block(plan, plan.precision) if details else [],
        _fit_lines(plan, given),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _precision_block(plan: RowPlan) -> list[str]:
    p = plan.precision
    low, high = p.interval
    lines = [
        f"Precision of the accuracy estimate with {_sizes(p)} held-out rows",
        _line("standard error", _points(p.standard_error)),
        _line(
            f"{_level(plan)} interval", f"±{_points(p.half_width)}: {low:.3f} to {high:.3f} around {plan.accuracy:g}"
        ),
        _line("for any accuracy", f"±{_points(p.worst_half_width)}, as precise as {p.labeled_rows:,.0f} labeled rows"),
    ]
    wanted = f"for ±{_points(plan.half_width)}"
    if p.half_width <= plan.half_width:
        return [*lines, _line(wanted, "enough")]
    for which, other, needed in ((0, 1, p.set0_needed), (1, 0, p.set1_needed)):
        rows = (
            f"{needed:,} rows of set {which}" if needed is not None else f"no number of rows of set {which} is enough"
        )
        lines.append(_line(wanted, f"{rows}, with set {other} unchanged"))
    return lines


def _rows_block(plan: RowPlan, details: bool) -> list[str]:
    heading = f"Held-out rows to estimate the accuracy within ±{_points(plan.half_width)} ({_level(plan)} interval)"
    if not details:
        return [heading, _line("sets of equal size", f"{plan.equal.set0:,} rows per set")]
    lines = [
        heading,
        _line("set 0 : set 1", f"{'set 0':>14}{'set 1':>14}{'total':>14}{'against best':>15}"),
    ]
    # The small constant makes equal costs round to the same digits.
    rows = [(split.name, split.rows, f"{split.cost + 1e-9:.2f}") for split in plan.splits]
    rows += [("equal, any accuracy", plan.worst, ""), ("equal, by Hoeffding", plan.guaranteed, "")]
    return lines + [_line(name, f"{n:>14,}{m:>14,}{n + m:>14,}{cost:>15}").rstrip() for name, (n, m), cost in rows]


def _distance_block(plan: RowPlan) -> list[str]:
    from uulearn.theory.planning import PRIOR_ERROR

    effect = f"effect of an error of {PRIOR_ERROR:g} in one prior"
    lines = [
        "Closer priors need more rows (equal sizes), and a wrong prior has a larger effect",
        _line("priors", f"{'rows per set':>14}{effect:>46}"),
    ]
    for distance in plan.distances:
        yours = " (yours)" if distance.set_priors == plan.set_priors else ""
        name = "{:.4g}, {:.4g}".format(*distance.set_priors) + yours
        lines.append(_line(name, f"{distance.rows_each:>14,}{_points(distance.prior_error):>46}"))
    return lines


def _guarantee_block(plan: RowPlan, p: PlannedPrecision) -> list[str]:
    sharper = f"; ±{_points(p.corrected_sharp)} with a sharper bias bound" if p.corrected_sharp < 1 else ""
    return [
        f"Precision guaranteed with probability {1 - plan.delta:g} for {_sizes(p)} rows not used in training",
        _line("unbiased estimate", _guarantee(p.guaranteed_half_width, "Hoeffding")),
        _line("corrected estimate", _guarantee(p.corrected_half_width, "Theorem 3") + sharper),
    ]


def _guarantee(half_width: float, source: str) -> str:
    if half_width < 1:
        return f"±{_points(half_width)} ({source})"
    return f"no guarantee ({source}: the bound, ±{_points(half_width)}, is wider than the range from 0 to 1)"


def _fit_lines(plan: RowPlan, given: bool) -> list[str]:
    """Describe what ``uulearn fit`` needs, and the next step."""
    from uulearn.metrics.out_of_fold import SELECTION_ERROR_SCALE

    reached, wide = plan.precision.half_width, SELECTION_ERROR_SCALE * plan.precision.half_width
    held_out, needed = plan.equal.set0, math.ceil(SELECTION_ERROR_SCALE**2 * plan.equal.set0)
    lines = [
        f"The models of uulearn fit for tables ({', '.join(AUTO_MODELS)}) hold out no rows: each row is",
        "scored by models that were not trained on it. Early stopping also uses these rows, so",
        f"the interval is {SELECTION_ERROR_SCALE:g} times as wide (for the same width: "
        f"{SELECTION_ERROR_SCALE**2:.3g} times as many rows).",
    ]
    if given:
        lines.append(f"Your rows give ±{_points(reached)} if held out, and ±{_points(wide)} with uulearn fit.")
    if given and wide <= plan.half_width:
        return [*lines, "next: these rows are enough"]
    if given and reached <= plan.half_width:
        return [*lines, f"next: these rows are enough to hold out; for uulearn fit, collect {needed:,} rows per set"]
    return [*lines, f"next: collect {held_out:,} rows per set to hold out, or {needed:,} for uulearn fit"]


def _to_json(plan: RowPlan) -> dict[str, object]:
    """Return the plan as a dict with named fields; the json module would convert named tuples to lists."""
    return {
        **dataclasses.asdict(plan),
        "splits": {s.name: {**s.rows._asdict(), "total": s.rows.total, "cost": s.cost} for s in plan.splits},
        "worst": plan.worst._asdict(),
        "guaranteed": plan.guaranteed._asdict(),
        "precision": dataclasses.asdict(plan.precision) | {"sizes": plan.precision.sizes._asdict()},
    }


def _line(label: str, text: str) -> str:
    return f"  {label:<24}{text}"


def _sizes(precision: PlannedPrecision) -> str:
    return f"{precision.sizes.set0:,} + {precision.sizes.set1:,}"


def _points(fraction: float) -> str:
    """Format a fraction as percentage points, with about two digits."""
    points = 100 * fraction
    digits = 0 if points >= 9.95 else 1 if points >= 0.095 else 2
    return f"{points:,.{digits}f} points"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.4g}%"


def _level(plan: RowPlan) -> str:
    return f"{100 * (1 - plan.delta):.6g}%"
