"""Models wrapped for several processes (DDP, FSDP, Accelerate, Lightning) equal a single process."""

import importlib.util
from pathlib import Path

import pytest
import torch

from helpers.processes import several
from helpers.wrapper_worker import (
    CASES,
    CLOSE,
    LR,
    SETTINGS,
    STEPS,
    accelerate_page,
    at_once,
    batches,
    flat,
    network,
    trained,
)
from uulearn import UURisk, uu_risk

WORKER = Path(__file__).parents[1] / "helpers" / "wrapper_worker.py"
OTHERS = ("refused", "risk terms", "Accelerate page", "Lightning")


def installed(name):
    package = name.split()[0].lower()
    return package not in ("accelerate", "lightning") or importlib.util.find_spec(package) is not None


def skip_unless_installed(name):
    if not installed(name):
        pytest.importorskip(name.split()[0].lower())


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The results of two processes, started once."""
    out = tmp_path_factory.mktemp("wrapped") / "found"
    for code, _, said in several(2, WORKER, out, *filter(installed, CASES)):
        assert code == 0, said[-3000:]
    return [torch.load(f"{out}{rank}", weights_only=True) for rank in (0, 1)]


def alone(normalized=False, **how):
    model = network(normalized)
    losses = trained(model, lambda *batch: at_once(*batch, **how))
    return {"losses": losses, "weights": flat(model)}


def largest_difference(ours, theirs):
    return {key: (ours[key].double() - theirs[key].double()).abs().max().item() for key in theirs}


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith(OTHERS)])
def test_two_processes_equal_one(together, name):
    skip_unless_installed(name)
    rounded = "float16" in name
    wanted = alone(normalized="normalized" in name)
    for each in together:
        assert len(each[name]["losses"]) == STEPS
        found = largest_difference(each[name], wanted)
        assert max(found.values()) < (5e-3 if rounded else 1e-5), found
        assert not rounded or max(found.values()) > 1e-5  # trained with the other precision


def test_correcting_each_part_separately_gives_another_result():
    """The batches reveal a wrong correction, and the weights change by more than the tolerance."""

    def mean_of_parts(model, x, sets):
        first = torch.arange(len(x)) % 3 > 0
        loss = sum(UURisk(*SETTINGS)(model(x[part]), sets[part]) for part in (first, ~first)) / 2
        loss.backward()
        return loss

    model = network()
    losses = trained(model, mean_of_parts)
    found = largest_difference({"losses": losses, "weights": flat(model)}, alone())
    assert min(found.values()) > 0.02, found
    assert (alone()["weights"] - flat(network())).abs().max() > 0.05


def test_risk_terms_of_bfloat16_scores_are_not_rounded(together):
    scores, sets = (torch.cat([each["risk terms"][key] for each in together]) for key in ("scores", "sets"))
    assert scores.dtype == torch.bfloat16
    wanted = uu_risk(scores.double(), sets, *SETTINGS[:2], loss=SETTINGS[2], method=SETTINGS[3])
    for each in together:
        for ours, theirs in zip(each["risk terms"]["risk terms"], wanted, strict=True):
            assert ours.dtype == torch.float32
            assert ours.item() == pytest.approx(theirs.item(), rel=1e-6)


def test_rejects_unequal_numbers_of_micro_batches(together):
    for each in together:
        assert each["refused"] == [
            f"workers have between 3 and 5 micro-batches, but {kind} communicates in every forward pass; give each "
            "worker the same number of micro-batches."
            for kind in ("FSDPSequential", "FullyShardedDataParallel", "SynchronizedBatchNorm1d")
        ]


def test_accelerate_tutorial_with_two_processes_equals_one(together):
    pytest.importorskip("accelerate")
    wanted = accelerate_page()
    for each in together:
        found = largest_difference(each["Accelerate page"], wanted)
        assert max(found.values()) < 1e-5, found


def plain_loop():
    """A manual version of the Lightning module in the tutorial: the risk terms of every step and the final error."""
    model, logged = network(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for x, sets in batches():
        optimizer.zero_grad()
        parts = uu_risk(model(x), sets, *CLOSE, loss="logistic", method="leaky_relu", slope=-0.1)
        parts.objective.backward()
        optimizer.step()
        logged += [parts.positive.item(), parts.negative.item()]
    x, sets = (torch.cat(parts) for parts in zip(*batches(), strict=True))
    logged.append(uu_risk(model(x), sets, *CLOSE, loss="zero_one", method="unbiased").objective.item())
    return {"losses": torch.tensor(logged), "weights": flat(model)}


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("Lightning")])
def test_lightning_with_two_processes_equals_plain_loop(together, name):
    pytest.importorskip("lightning")
    wanted, rounded = plain_loop(), "bfloat16" in name
    assert wanted["losses"][:-1].min() < -0.01  # the correction acts
    for each in together:
        assert len(each[name]["losses"]) == 2 * STEPS + 1
        if rounded:
            each[name]["losses"][-1] = wanted["losses"][-1]  # a row at the decision boundary may change sides
        found = largest_difference(each[name], wanted)
        assert max(found.values()) < (5e-3 if rounded else 1e-5), found
