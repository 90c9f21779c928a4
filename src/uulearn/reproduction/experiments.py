"""The paper's experiments as data: the configuration of every run of every table and figure.

A configuration is a plain dict that determines one run; `uulearn.reproduction.store` stores the run under it. Settings
are those of Appendix C (tables), B (Figure 1) and D (Figure 3). Comments say how open points are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Configuration = dict[str, Any]

DATASETS = ("mnist", "fashion_mnist", "kmnist", "cifar10")
TARGET_PRIORS = {"mnist": 0.4926, "fashion_mnist": 0.4, "kmnist": 0.3, "cifar10": 0.6}
"""π of each dataset: the class prior of its test data, checked when it is loaded."""
SET_PRIORS = ((0.8, 0.2), (0.7, 0.3), (0.6, 0.4))
"""(θ, θ′) of the rows of both tables. Section 4 also names (0.9, 0.1), which the tables do not use."""

BASELINES = ("biased", "unbiased")
RELU, ABS = 0.0, -1.0
"""Slopes λ with a name of their own."""
PAPER_SLOPES = (-0.01, -0.03, -0.1, -0.3)
"""λ of the generalized leaky ReLU. The paper's "from −0.01 to 1" must mean magnitudes: λ > 0 corrects nothing."""
FIXED_SLOPE = -0.1
"""λ if none is chosen."""
QUICK_SLOPES = (-0.01, FIXED_SLOPE)
SELECTION_HOLD_OUT = 0.09
"""Fraction of each set held out of the runs that choose λ; see `uulearn.reproduction.sampling.hold_out`."""

TRIALS, EPOCHS, SIZE, BATCH = 5, 200, 30_000, 3_000
MOMENTUM = 0.9
CONVOLUTIONAL = ("allconvnet", "resnet32")
CONVOLUTIONAL_TRIALS = 2

RESNET_LR = 3e-5
"""Learning rate of ResNet-32 in Table 3: Appendix C says 5e-3, but Appendix B says 3e-5 for this network."""
LR_AND_L2 = {  # learning rate and L2 of Appendix C
    ("linear", "mnist"): (1e-3, 1e-4),
    ("linear", "fashion_mnist"): (5e-3, 1e-4),
    ("linear", "kmnist"): (1e-3, 1e-4),
    ("linear", "cifar10"): (5e-3, 5e-3),
    ("mlp", "mnist"): (5e-5, 5e-3),
    ("mlp", "fashion_mnist"): (3e-5, 5e-3),
    ("mlp", "kmnist"): (3e-5, 5e-3),
    ("resnet32", "cifar10"): (RESNET_LR, 5e-3),
}
TABLE_MODELS = {
    "table2": dict.fromkeys(DATASETS, "linear"),
    "table3": {"mnist": "mlp", "fashion_mnist": "mlp", "kmnist": "mlp", "cifar10": "resnet32"},
}

FIGURE_SET_PRIORS = (0.6, 0.4)
FIGURE1_MODELS: dict[tuple[str, str], dict[str, Any]] = {
    # The paper does not give L2 for MNIST: 1e-4, as for the linear model in the table and for dropout in Figure 3.
    ("mnist", "linear"): {"optimizer": "sgd", "batch_size": 1_000, "lr": 5e-2, "l2": 1e-4},
    ("mnist", "mlp"): {"optimizer": "sgd", "batch_size": 3_000, "lr": 1e-3, "l2": 1e-4},
    ("cifar10", "allconvnet"): {"optimizer": "adam", "batch_size": 500, "lr": 1e-5, "l2": 5e-3},
    ("cifar10", "resnet32"): {"optimizer": "adam", "batch_size": 3_000, "lr": 3e-5, "l2": 5e-3},
}
FIGURE1_LOSSES = ("sigmoid", "logistic")
FIGURE3_DROPOUTS, FIGURE3_DROPOUT_L2 = (0.0, 0.2, 0.4, 0.6, 0.8), 1e-4
FIGURE3_DECAYS, FIGURE3_DECAY_DROPOUT = (5e-4, 5e-3, 5e-2, 5e-1, 5.0), 0.2


@dataclass(frozen=True)
class QuickSizes:
    """Numbers that replace the paper's in the quick version."""

    size: int
    batch_size: int
    epochs: int
    test_rows: int
    trials: int = 2


QUICK_DENSE = QuickSizes(size=600, batch_size=200, epochs=10, test_rows=1_000)
QUICK_CONVOLUTIONAL = QuickSizes(size=20, batch_size=20, epochs=2, test_rows=100)


@dataclass(frozen=True)
class Request:
    """Which part of the experiments to run.

    Parameters
    ----------
    datasets : sequence of str
        Some of `DATASETS`.
    trials, epochs : int, optional
        Number of seeds and of epochs. Defaults: the paper's 5 and 200, but 2 trials for convolutional networks, and
        fewer of both in the quick version.
    quick : bool
        The quick version.
    selection : bool
        Whether to choose λ without labels, which needs more runs; otherwise λ is −0.1.

    Examples
    --------
    >>> Request().trials_of("mlp"), Request().trials_of("resnet32"), Request(trials=3).trials_of("resnet32")
    (5, 2, 3)
    >>> Request(datasets=["cifar"])
    Traceback (most recent call last):
    ValueError: dataset must be one of mnist, fashion_mnist, kmnist, cifar10, got 'cifar'.
    """

    datasets: Sequence[str] = DATASETS
    trials: int | None = None
    epochs: int | None = None
    quick: bool = False
    selection: bool = True

    def __post_init__(self) -> None:
        names = [name.replace("-", "_") for name in self.datasets]
        for name in names:
            if name not in DATASETS:
                raise ValueError(f"dataset must be one of {', '.join(DATASETS)}, got {name!r}.")
        object.__setattr__(self, "datasets", tuple(name for name in DATASETS if name in names))

    def trials_of(self, model: str) -> int:
        """Number of trials of each cell with this model."""
        if self.trials is not None:
            return self.trials
        if self.quick:
            return QUICK_DENSE.trials
        return CONVOLUTIONAL_TRIALS if model in CONVOLUTIONAL else TRIALS

    @property
    def is_the_papers(self) -> bool:
        """Whether the runs have the paper's setting, so that its numbers can be compared."""
        return not self.quick and self.epochs in (None, EPOCHS)

    @property
    def slopes(self) -> tuple[float, ...]:
        """The values of λ for dense models."""
        return QUICK_SLOPES if self.quick else PAPER_SLOPES

    def candidates(self, model: str) -> tuple[float, ...]:
        """The values of λ to choose from without labels; empty if λ is fixed."""
        return (*self.slopes, ABS) if self.selection and model not in CONVOLUTIONAL else ()


def method_of(slope: float) -> tuple[str, float | None]:
    """The method with this slope λ, and the entry ``slope`` of its configuration.

    Examples
    --------
    >>> method_of(0), method_of(-0.1), method_of(-1)
    (('relu', None), ('leaky_relu', -0.1), ('abs', None))
    """
    if slope == RELU:
        return "relu", None
    return ("abs", None) if slope == ABS else ("leaky_relu", slope)


def configuration(
    request: Request,
    dataset: str,
    model: str,
    method: tuple[str, float | None],
    set_priors: tuple[float, float],
    seed: int,
    *,
    lr: float,
    l2: float,
    batch_size: int = BATCH,
    optimizer: str = "adam",
    loss: str = "logistic",
    dropout: float = 0.0,
    held_out: float = 0.0,
) -> Configuration:
    """The configuration of one run."""
    size, epochs, small = SIZE, EPOCHS, {}
    if request.quick:
        quick = QUICK_CONVOLUTIONAL if model in CONVOLUTIONAL else QUICK_DENSE
        size, epochs, batch_size = quick.size, quick.epochs, quick.batch_size
        small = {"test_rows": quick.test_rows}
    return {
        "dataset": dataset,
        "model": model,
        "method": method[0],
        "slope": method[1],
        "set_priors": list(set_priors),
        "target_prior": TARGET_PRIORS[dataset],
        "sizes": [size, size],
        "loss": loss,
        "optimizer": optimizer,
        "momentum": MOMENTUM if optimizer == "sgd" else None,
        "lr": lr,
        "lr_decay": 0.0,
        "l2": l2,
        "dropout": dropout,
        "batch_size": batch_size,
        "epochs": request.epochs or epochs,
        "seed": seed,
        "held_out": held_out,
        **small,
    }


# Tables


@dataclass(frozen=True)
class TableRow:
    """One row of Table 2 or 3: a dataset and its priors, with the configurations of every method and trial."""

    table: str
    dataset: str
    set_priors: tuple[float, float]
    request: Request = field(repr=False)

    @property
    def model(self) -> str:
        """The model of the row."""
        return TABLE_MODELS[self.table][self.dataset]

    @property
    def seeds(self) -> range:
        """One seed per trial."""
        return range(self.request.trials_of(self.model))

    @property
    def slopes(self) -> tuple[float, ...]:
        """All values of λ that are run; convolutional networks, whose runs are long, have one besides ReLU and ABS."""
        return (RELU, *((FIXED_SLOPE,) if self.model in CONVOLUTIONAL else self.request.slopes), ABS)

    @property
    def candidates(self) -> tuple[float, ...]:
        """The values of λ to choose from without labels; empty if λ is fixed."""
        return self.request.candidates(self.model)

    def run(self, method: str | float, seed: int, held_out: float = 0.0) -> Configuration:
        """The run of a method, given by its name or its λ."""
        named = (method, None) if isinstance(method, str) else method_of(method)
        lr, l2 = LR_AND_L2[self.model, self.dataset]
        return configuration(
            self.request, self.dataset, self.model, named, self.set_priors, seed, lr=lr, l2=l2, held_out=held_out
        )

    def trial(self, seed: int) -> list[Configuration]:
        """The runs of one trial: all methods and, to choose λ, runs with held-out rows."""
        methods: list[str | float] = [*BASELINES, *self.slopes]
        full = [self.run(method, seed) for method in methods]
        return full + [self.run(slope, seed, SELECTION_HOLD_OUT) for slope in self.candidates]


def table_rows(table: str, request: Request) -> list[TableRow]:
    """The rows of a table in the paper's order."""
    return [TableRow(table, dataset, priors, request) for dataset in request.datasets for priors in SET_PRIORS]


def _table_runs(table: str) -> Callable[[Request], list[Configuration]]:
    return lambda request: [run for row in table_rows(table, request) for seed in row.seeds for run in row.trial(seed)]


# Figures


def figure1_panels(request: Request) -> dict[str, Configuration]:
    """The run of each panel of Figure 1, by the name of the panel."""
    return {
        f"{dataset}-{model}-{loss}": configuration(
            request, dataset, model, ("unbiased", None), FIGURE_SET_PRIORS, 0, loss=loss, **settings
        )
        for (dataset, model), settings in FIGURE1_MODELS.items()
        for loss in FIGURE1_LOSSES
    }


def figure3_curves(request: Request) -> tuple[list[Configuration], list[Configuration]]:
    """The runs of Figure 3: the left panel by dropout, the right panel by weight decay."""

    def run(dropout: float, l2: float) -> Configuration:
        return configuration(
            request, "mnist", "mlp", ("unbiased", None), FIGURE_SET_PRIORS, 0,
            lr=1e-3, l2=l2, optimizer="sgd", dropout=dropout,
        )  # fmt: skip

    return (
        [run(dropout, FIGURE3_DROPOUT_L2) for dropout in FIGURE3_DROPOUTS],
        [run(FIGURE3_DECAY_DROPOUT, l2) for l2 in FIGURE3_DECAYS],
    )


# Variants


class PaperVariant(NamedTuple):
    """A reading of the paper: its meaning, and the entries of a configuration that it changes."""

    meaning: str
    changes: Callable[[Configuration], Configuration]


VARIANTS = {
    "as printed": PaperVariant(
        "the settings of Appendix C, for ResNet-32 with the learning rate of Appendix B", lambda run: {}
    ),
    "decay": PaperVariant(
        "learning rate lr/(1 + k·t) at step t, k = 5e-5 for (0.8, 0.2) and 5e-4 for closer priors, as in the authors' "
        "earlier public code",
        lambda run: {"lr_decay": 5e-5 if run["set_priors"] == [0.8, 0.2] else 5e-4},
    ),
    "lr / 3": PaperVariant("a third of the learning rate", lambda run: {"lr": run["lr"] / 3}),
    "lr × 3": PaperVariant("three times the learning rate", lambda run: {"lr": run["lr"] * 3}),
    "lr 5e-3": PaperVariant("the learning rate that Appendix C gives for CIFAR-10", lambda run: {"lr": 5e-3}),
    "shortened": PaperVariant(
        "sets as in the authors' earlier public code: a class that runs out of rows shortens the set, and the loss "
        "still uses the intended prior",
        lambda run: {"sampling": "shortened"},
    ),
    "independent": PaperVariant(
        "every row of a set drawn independently, with replacement", lambda run: {"sampling": "independent"}
    ),
    "batch 1500": PaperVariant("batches of 1,500 rows", lambda run: {"batch_size": run["batch_size"] // 2}),
    "batch 500": PaperVariant(
        "batches of 500 rows, as in Appendix B for the other network on CIFAR-10",
        lambda run: {"batch_size": run["batch_size"] // 6},
    ),
    "no L2": PaperVariant("no penalty on the kernels", lambda run: {"l2": 0.0}),
    "Glorot": PaperVariant(
        "Glorot-uniform kernels, Keras's default, instead of LeCun-normal ones",
        lambda run: {"initialiser": "glorot_uniform"},
    ),
    "normalization": PaperVariant(
        "batch normalization that keeps 0.9 of its statistics per step instead of Keras's 0.99",
        lambda run: {"norm_momentum": 0.1},
    ),
}
"""Readings of the paper that the tables might be based on; each changes one entry."""
VARIANT_METHODS: tuple[str | float, ...] = ("unbiased", ABS, RELU, -0.01, FIXED_SLOPE)
SHORT_OF_ROWS = ("kmnist", "cifar10")
"""Datasets with a class that has fewer rows than one set needs."""
VARIANT_TRIALS = 3
ONLY_RESNET = ("lr 5e-3", "batch 500", "normalization")
CLOSE, CLOSER = SET_PRIORS[1:]
RESNET_VARIANTS: dict[str, dict[tuple[float, float], tuple[str | float, ...]]] = {
    "as printed": {CLOSE: ("unbiased", ABS), CLOSER: ("unbiased", ABS, FIXED_SLOPE)},
    "lr / 3": {CLOSE: (ABS,), CLOSER: ("unbiased", ABS, FIXED_SLOPE)},
    "lr × 3": {CLOSE: (ABS,), CLOSER: ("unbiased", ABS, FIXED_SLOPE)},
    "lr 5e-3": {CLOSER: ("unbiased", ABS)},
    "batch 500": {CLOSER: ("unbiased",)},
    "no L2": {CLOSE: ("unbiased", ABS), CLOSER: ("unbiased", FIXED_SLOPE)},
    "normalization": {CLOSER: (FIXED_SLOPE,)},
}
"""For ResNet-32 only the cells that disagree, one trial each: a run takes more than a minute."""


def variant_run(row: TableRow, variant: str, method: str | float, seed: int) -> Configuration:
    """The run of a method under one of the `VARIANTS`; as printed, it is the run of the table."""
    run = row.run(method, seed)
    return run | VARIANTS[variant].changes(run)


def variant_methods(variant: str, row: TableRow) -> tuple[str | float, ...]:
    """The methods for which a variant is run in a row; empty if it does not apply."""
    if row.model in CONVOLUTIONAL:
        return RESNET_VARIANTS.get(variant, {}).get(row.set_priors, ())
    applies = variant not in ONLY_RESNET
    if variant == "shortened":
        applies = row.dataset in SHORT_OF_ROWS
    elif variant == "Glorot":
        applies = row.model == "mlp"
    return VARIANT_METHODS if applies else ()


def variant_rows(variant: str, request: Request) -> list[TableRow]:
    """The rows of Table 3, and of Table 2 on CIFAR-10, to which a variant applies; the other rows agree as printed."""
    rows = table_rows("table3", request) + [row for row in table_rows("table2", request) if row.dataset == "cifar10"]
    return [row for row in rows if variant_methods(variant, row)]


def variant_seeds(variant: str, row: TableRow) -> range:
    """The seeds of the trials of a variant."""
    once = row.model in CONVOLUTIONAL and variant != "as printed"
    return row.seeds[: 1 if once else VARIANT_TRIALS]


def _variant_runs(request: Request) -> list[Configuration]:
    return [
        variant_run(row, variant, method, seed)
        for variant in VARIANTS
        for row in variant_rows(variant, request)
        for seed in variant_seeds(variant, row)
        for method in variant_methods(variant, row)
    ]


def _figure1_runs(request: Request) -> list[Configuration]:
    return [run for run in figure1_panels(request).values() if run["dataset"] in request.datasets]


def _figure3_runs(request: Request) -> list[Configuration]:
    return [run for curves in figure3_curves(request) for run in curves if run["dataset"] in request.datasets]


EXPERIMENTS: dict[str, Callable[[Request], list[Configuration]]] = {
    "table2": _table_runs("table2"),
    "table3": _table_runs("table3"),
    "figure1": _figure1_runs,
    "figure2": lambda request: [],
    "figure3": _figure3_runs,
    "variants": _variant_runs,
}
"""The runs of each target; Figure 2 shows functions and needs none."""
TARGETS = tuple(EXPERIMENTS)
STUDIES = ("variants",)
"""Targets that are not in the paper."""


def runs_of(targets: Sequence[str], request: Request) -> list[Configuration]:
    """The configurations of some targets; a run shared by two targets occurs twice.

    Examples
    --------
    >>> len(runs_of(["table2"], Request())), len(runs_of(["figure1", "figure3"], Request()))
    (780, 18)
    """
    return [configuration for target in targets for configuration in EXPERIMENTS[target](request)]
