"""Baseline: learning with noisy labels, where the label of a row is the set that it comes from.

The method is DivideMix (Li, Socher and Hoi, "DivideMix: Learning with Noisy Labels as Semi-supervised Learning", ICLR
2020). Rows of the set with the higher class prior are labeled positive. Two networks are trained:

1. During warm-up, each minimizes the cross-entropy of these labels.
2. Before every later epoch, a mixture of two normal distributions is fitted to the losses of all rows under each
   network, averaged over the last epochs. The probability of the component with the smaller mean says how likely the
   label of a row is correct.
3. Each network is trained on the division of the rows by the *other* network. Rows that are more likely correct than
   not keep their label, averaged with the network's own prediction. The other rows get the average prediction of both
   networks as label. Labels are sharpened, and rows are mixed with random other rows (MixUp).

The views are those of `consistency_settings.py`. Labels are guessed from weak views. Rows that keep their label are
weak views, and the other rows are strong views. (With strong views of all rows, the networks predicted too many
positives for rows without augmentation.) The class prior of both sets together and the target prior are assumed to be
known: test rows are classified after a correction for the difference of these priors. Labels of test rows are used only
to measure the accuracy, of the average of both networks in the last epoch.

Each fit trains the paper's MLP. On a CUDA device, data stay on the device, each step is replayed as a CUDA graph, and
an epoch does not wait for the device. Finished fits are stored and are not repeated.

    python benchmarks/study/noisy_labels.py --device cuda [--dataset mnist …] [--seeds 5] [--minutes 8] [--data-dir DIR]
    python benchmarks/study/noisy_labels.py --quick --device cpu
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from consistency_settings import AFFINE, SHAPE
from finals import FIRST_SEED, PRIORS
from records import Record
from resuming import STUDY, add_options, complete, out_of
from torch import Tensor
from torch.nn import functional as F

from uulearn.data.augmentation import build_augmentation
from uulearn.datasets import BinaryTask, load_task, make_sets
from uulearn.models import build_model
from uulearn.reproduction.store import normalized
from uulearn.training.cuda_graphs import GraphedFunction, snapshot_tensors
from uulearn.training.options import kernel_parameters

STORE = STUDY / "noisy_labels.jsonl"
DATASETS = ("mnist", "fashion_mnist", "kmnist")
NETWORKS = 2
EM_STEPS = 50
"""Number of steps of the EM algorithm for the mixture of the losses."""
ADDED_VARIANCE = 5e-4
"""Variance that is added to each component of the mixture, as ``reg_covar`` of scikit-learn."""

BASE: dict[str, Any] = {
    "rows": 30_000, "epochs": 200, "warm_up": 10, "batch_size": 1500, "lr": 1e-3, "l2": 5e-4,
    "late_lr": 0.1,  # factor of the learning rate in the second half of the epochs
    "views": 2,  # weak views from which a label is guessed
    "temperature": 0.5,  # exponent 1/T that sharpens guessed labels
    "alpha": 4.0,  # both parameters of the beta distribution of MixUp
    "threshold": 0.5,  # probability of a correct label from which a row keeps its label
    "unlabeled_weight": 25.0, "ramp": 16,  # weight of the rows without label, and the epochs in which it rises
    "prior_weight": 1.0,  # weight of the penalty for a mean prediction that differs from the class prior
    "averaged_epochs": 5,  # number of epochs over which losses are averaged before the mixture is fitted
    "weak": AFFINE["augment"], "strong": AFFINE["strong"],
}  # fmt: skip
QUICK: dict[str, Any] = {"rows": 300, "epochs": 4, "warm_up": 2, "batch_size": 100, "ramp": 2}


def clean_probability(losses: Tensor) -> Tensor:
    """Return the probability that each loss comes from the component with the smaller mean, for losses (…, n).

    >>> torch.manual_seed(0)
    <torch._C.Generator object at ...>
    >>> losses = torch.cat([0.1 * torch.rand(50), 0.8 + 0.1 * torch.rand(50)])
    >>> found = clean_probability(losses)
    >>> bool(found[:50].min() > 0.99), bool(found[50:].max() < 0.01)
    (True, True)
    """
    low, high = losses.amin(-1, keepdim=True), losses.amax(-1, keepdim=True)
    x = ((losses - low) / (high - low).clamp(min=1e-12))[..., None]
    start = torch.tensor([0.0, 1.0], device=x.device)
    share = (x - start).square().neg().div(0.1).softmax(-1)
    for _ in range(EM_STEPS):
        size = share.sum(-2, keepdim=True).clamp(min=1e-6)
        mean = (share * x).sum(-2, keepdim=True) / size
        variance = ((share * (x - mean).square()).sum(-2, keepdim=True) / size) + ADDED_VARIANCE
        log_density = size.log() - 0.5 * variance.log() - 0.5 * (x - mean).square() / variance
        share = log_density.softmax(-1)
    first_is_smaller = mean[..., 0] <= mean[..., 1]
    return torch.where(first_is_smaller, share[..., 0], share[..., 1])


def sharpen(probability: Tensor, temperature: float) -> Tensor:
    """Return a probability of the positive class that is closer to 0 or 1.

    >>> sharpen(torch.tensor([0.5, 0.8]), 0.5).tolist()
    [0.5, 0.9411764740943909]
    """
    positive, negative = probability ** (1 / temperature), (1 - probability) ** (1 / temperature)
    return positive / (positive + negative)


class DivideMix:
    """Two networks on the rows (n, d) of both sets with noisy labels (n,), which are 0 or 1, on one device."""

    def __init__(self, rows: Tensor, labels: Tensor, prior: float, one: Record, device: torch.device) -> None:
        self.one, self.device, self.prior = one, device, prior
        self.rows, self.labels = rows.to(device), labels.float().to(device)
        n, self.half = len(rows), one["batch_size"] // 2
        torch.manual_seed(one["seed"])
        seeds = [NETWORKS * one["seed"] + place for place in range(NETWORKS)]
        self.models = [build_model("mlp", (rows.shape[1],), None, seed).to(device) for seed in seeds]
        self.lr = torch.full((), one["lr"], device=device)
        capturable = device.type == "cuda"
        self.optimizers = [
            torch.optim.Adam(model.parameters(), lr=self.lr, capturable=capturable) for model in self.models
        ]
        few = self._scaled(self.rows[:2])
        self.weak, self.strong = (build_augmentation(one[name], few, SHAPE) for name in ("weak", "strong"))
        self.steps = math.ceil(n / one["batch_size"])
        # Static tensors that a step reads, because it may be a CUDA graph: the order of the rows of each network, the
        # number of rows that keep their label, the probability of a correct label, and the weights of MixUp.
        self.order = torch.zeros(NETWORKS, n, dtype=torch.int64, device=device)
        self.labeled = torch.full((NETWORKS,), n, dtype=torch.int64, device=device)
        self.clean = torch.ones(NETWORKS, n, device=device)
        self.mixing = torch.ones(NETWORKS, self.steps, device=device)
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.unlabeled_weight = torch.zeros((), device=device)
        self.losses = torch.zeros(one["averaged_epochs"], NETWORKS, n, device=device)
        self._places = torch.arange(self.half, device=device)
        self._warm_up = GraphedFunction(self._warm_up_step, device, self._snapshot)
        self._mixed = GraphedFunction(self._mixed_step, device, self._snapshot)

    # ------------------------------------------------------------------------------------------------------- epochs

    def run(self, tell: Callable[[int], None] = lambda epoch: None) -> None:
        """Train both networks for all epochs."""
        rng = np.random.default_rng(self.one["seed"])
        for epoch in range(1, self.one["epochs"] + 1):
            warm = epoch <= self.one["warm_up"]
            self._start_epoch(epoch, warm, rng)
            for _ in range(self.steps):
                for network in range(NETWORKS):
                    (self._warm_up if warm else self._mixed)(network)
                self.step += 1
            self.losses[epoch % len(self.losses)] = self._all_losses()
            tell(epoch)
        self._warm_up.clear()
        self._mixed.clear()

    @torch.no_grad()
    def _start_epoch(self, epoch: int, warm: bool, rng: np.random.Generator) -> None:
        """Divide the rows, and shuffle the rows with a label and, after them, the rows without."""
        self.step.zero_()
        late = 2 * epoch > self.one["epochs"]
        self.lr.fill_(self.one["lr"] * (self.one["late_lr"] if late else 1.0))
        keys = torch.rand(self.order.shape, device=self.device)
        if not warm:
            done = min(epoch - 1, len(self.losses))
            latest = [(epoch - 1 - back) % len(self.losses) for back in range(done)]
            # The network with the number k is trained on the division by the other network.
            self.clean.copy_(clean_probability(self.losses[latest].mean(0)).flip(0))
            keep = self.clean > self.one["threshold"]
            self.labeled.copy_(keep.sum(1))
            keys += (~keep).float()
            drawn = rng.beta(self.one["alpha"], self.one["alpha"], self.mixing.shape)
            self.mixing.copy_(torch.from_numpy(np.maximum(drawn, 1 - drawn)).float(), non_blocking=True)
            past = min(1.0, (epoch - self.one["warm_up"]) / self.one["ramp"])
            self.unlabeled_weight.fill_(self.one["unlabeled_weight"] * past)
        self.order.copy_(keys.argsort(1))

    @torch.no_grad()
    def _all_losses(self) -> Tensor:
        """Return the cross-entropy of the noisy label of each row under each network, of shape (2, n)."""
        return torch.stack(
            [F.binary_cross_entropy_with_logits(self.scores(self.rows, model), self.labels, reduction="none")
             for model in self.models]
        )  # fmt: skip

    @torch.no_grad()
    def scores(self, rows: Tensor, model: torch.nn.Module) -> Tensor:
        """Return the scores of rows without augmentation."""
        model.eval()
        with self._autocast():
            parts = [model(self._scaled(part)) for part in torch.split(rows, 20_000)]
        return torch.cat(parts)

    @torch.no_grad()
    def predict(self, rows: Tensor) -> Tensor:
        """Return the average probability of both networks."""
        return torch.stack([self.scores(rows, model).sigmoid() for model in self.models]).mean(0)

    # -------------------------------------------------------------------------------------------------------- steps

    def _warm_up_step(self, network: int) -> None:
        """Minimize the cross-entropy of the noisy labels on weak views."""
        n = len(self.rows)
        places = torch.cat([self._places, self._places + self.half]) + 2 * self.half * self.step
        index = self.order[network][places % n]
        scores = self._train_scores(network, self.weak(self._scaled(self.rows[index])))
        self._update(network, F.binary_cross_entropy_with_logits(scores, self.labels[index]))

    def _mixed_step(self, network: int) -> None:
        """Guess labels, mix rows, and minimize the loss of half a batch of rows with a label and half without."""
        one, order, count = self.one, self.order[network], self.labeled[network]
        own_model = self.models[network]
        places = self._places + self.half * self.step
        n = len(order)
        labeled = order[places % count.clamp(min=1)]
        unlabeled = order[(count + places % (n - count).clamp(min=1)).clamp(max=n - 1)]
        index = torch.cat([labeled, unlabeled])
        with torch.no_grad():
            rows = self._scaled(self.rows[index])
            guesses = torch.stack([self._guess(model, rows, model is own_model) for model in self.models])
            own, both = guesses[network][: self.half], guesses[:, self.half :].mean(0)
            certain = self.clean[network][labeled]
            refined = certain * self.labels[labeled] + (1 - certain) * own
            target = sharpen(torch.cat([refined, both]), one["temperature"])
            views = torch.cat([self.weak(rows[: self.half]), self.strong(rows[self.half :])])
            other = torch.rand(len(index), device=self.device).argsort()
            weight = self.mixing[network].index_select(0, self.step.view(1))
            views = torch.lerp(views[other], views, weight)
            target = torch.lerp(target[other], target, weight)
        restore_statistics = snapshot_tensors([buffer.detach() for buffer in own_model.buffers()])
        scores = self._train_scores(network, views)
        probability = scores.sigmoid()
        with_label = F.binary_cross_entropy_with_logits(scores[: self.half], target[: self.half])
        without = (probability[self.half :] - target[self.half :]).square().mean()
        mean = probability.mean().clamp(1e-6, 1 - 1e-6)
        penalty = sum(p * torch.log(p / q) for p, q in ((self.prior, mean), (1 - self.prior, 1 - mean)))
        self._update(network, with_label + self.unlabeled_weight * without + one["prior_weight"] * penalty)
        restore_statistics()

    def _guess(self, model: torch.nn.Module, rows: Tensor, train: bool) -> Tensor:
        """Return the mean probability over weak views, which pass through the network together.

        The views update the statistics of batch normalization of the network that is trained. Mixed rows do not update
        them, because their statistics differ from those of test rows.
        """
        views = torch.cat([self.weak(rows) for _ in range(self.one["views"])])
        model.train(train)
        with self._autocast():
            scores: Tensor = model(views)
        return scores.sigmoid().view(self.one["views"], -1).mean(0)

    def _train_scores(self, network: int, rows: Tensor) -> Tensor:
        model = self.models[network].train()
        with self._autocast():
            scores: Tensor = model(rows)
        return scores

    def _update(self, network: int, loss: Tensor) -> None:
        """Add the L2 penalty, and step the optimizer."""
        optimizer, kernels = self.optimizers[network], kernel_parameters(self.models[network])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        for kernel in kernels:
            assert kernel.grad is not None
            kernel.grad.add_(kernel.detach(), alpha=2 * self.one["l2"])
        optimizer.step()

    def _snapshot(self) -> Callable[[], None]:
        """Copy all tensors that a step changes; return a function that restores them."""
        tensors = [tensor.detach() for model in self.models for tensor in (*model.parameters(), *model.buffers())]
        restores = [snapshot_tensors(tensors), *(snapshot_tensors([], optimizer) for optimizer in self.optimizers)]

        def restore() -> None:
            for own in restores:
                own()

        return restore

    def _scaled(self, rows: Tensor) -> Tensor:
        return rows.float() / 255

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda")


def shifted(probability: Tensor, prior: float, target_prior: float) -> Tensor:
    """Return log-odds at the target prior, from probabilities for rows with another class prior.

    >>> shifted(torch.tensor([0.5, 0.95]), 0.5, 0.1)
    tensor([-2.1972,  0.7472])
    """
    shift = math.log(target_prior / (1 - target_prior)) - math.log(prior / (1 - prior))
    return probability.clamp(1e-6, 1 - 1e-6).logit() + shift


@functools.cache
def load(name: str, data_dir: Path | None) -> BinaryTask:
    """Return a task of the paper with one row of pixels per image."""
    return load_task(name, data_dir=data_dir).flat()


def fit(data_dir: Path | None, device: str, one: Record) -> Record:
    """Draw the sets, train both networks, and measure the accuracy on labeled test rows."""
    task, (first, second) = load(one["dataset"], data_dir), one["set_priors"]
    drawn = make_sets(
        np.arange(len(task.y_train))[:, None], task.y_train, (first, second), 2 * (one["rows"],),
        random_state=one["seed"],
    )  # fmt: skip
    index = np.concatenate(drawn.indices)
    from_higher = np.repeat([first > second, second > first], one["rows"])
    prior = (first + second) / 2
    rows, test = torch.from_numpy(task.X_train[index]), torch.from_numpy(task.X_test).to(device)
    training = DivideMix(rows, torch.from_numpy(from_higher), prior, one, torch.device(device))
    curve: dict[int, Tensor] = {}
    truth = torch.from_numpy(task.y_test).to(device) == 1

    def measure(epoch: int) -> None:
        if epoch in (one["warm_up"], one["epochs"]) or epoch % 20 == 0:
            curve[epoch] = ((shifted(training.predict(test), prior, task.prior) > 0) == truth).float().mean()

    started = time.perf_counter()
    training.run(measure)
    seconds = time.perf_counter() - started
    probability = training.predict(test)
    kept = [round(int(count) / len(rows), 4) for count in training.labeled.tolist()]
    correct = torch.from_numpy(task.y_train[index] == from_higher).to(device)
    keep = training.clean > one["threshold"]
    right = [round(float(correct[own].float().mean()), 4) if bool(own.any()) else None for own in keep]
    return {
        "accuracy": round(float(curve[one["epochs"]]), 5),
        "accuracy_without_shift": round(float(((probability > 0.5) == truth).float().mean()), 5),
        "curve": {str(epoch): round(float(value), 5) for epoch, value in curve.items()},
        "kept": kept,
        "correct_of_kept": right,
        "seconds_per_epoch": round(seconds / one["epochs"], 4),
        "device": torch.cuda.get_device_name() if training.device.type == "cuda" else "cpu",
    }


def tell(record: Record) -> str:
    """Return a progress line."""
    one = record["configuration"]
    said = f"{one['dataset']} {one['set_priors']} seed {one['seed']}: accuracy {record['accuracy']:.4f}"
    return f"{said}, {record['kept']} of the rows kept their label, {record['seconds_per_epoch']:.3f} s an epoch"


def planned(datasets: list[str], seeds: int, quick: bool) -> list[Record]:
    """Return the configurations, in order."""
    found: list[Record] = [
        normalized({"dataset": dataset, "set_priors": priors, "seed": FIRST_SEED + seed,
                    **BASE, **(QUICK if quick else {})})
        for seed in range(seeds)
        for dataset in datasets
        for priors in PRIORS
    ]  # fmt: skip
    return found


def main() -> None:
    """Run the missing fits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, STORE)
    parser.add_argument("--dataset", choices=DATASETS, action="append", help="default: all")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = parser.parse_args()
    wanted = planned(asked.dataset or list(DATASETS), asked.seeds, asked.quick)
    complete(
        wanted, functools.partial(fit, asked.data_dir, asked.device), tell, out_of(asked, STORE), minutes=asked.minutes
    )


if __name__ == "__main__":
    main()
