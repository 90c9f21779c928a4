"""Define the paper's experiments: the configuration of each run in each table and figure.

A configuration is a plain dict that defines one run and identifies it in `uulearn.reproduction.store`. The settings are
from Appendices C (tables), B (Figure 1) and D (Figure 3). Comments explain settings that the paper does not specify.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Configuration = dict[str, Any]

DATASET_NAMES = {
    "mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "kmnist": "Kuzushiji-MNIST", "cifar10": "CIFAR-10",
}  # fmt: skip
DATASETS = tuple(DATASET_NAMES)
PAPER_TARGET_PRIORS = {"mnist": 0.4926, "fashion_mnist": 0.4, "kmnist": 0.3, "cifar10": 0.6}
"""Class prior π of the test data of each dataset; it is checked before training."""
PAPER_SET_PRIORS = ((0.8, 0.2), (0.7, 0.3), (0.6, 0.4))
"""Set priors (θ, θ′) in Tables 2 and 3. Section 4 also mentions (0.9, 0.1), but neither table contains it."""

BASELINES = ("biased", "unbiased")
RELU, ABS = 0.0, -1.0
"""Slope λ of UU-ReLU and UU-ABS, which are special cases of the generalized leaky ReLU."""
PAPER_SLOPES = (-0.01, -0.03, -0.1, -0.3)
"""Values of λ for the leaky ReLU. The paper's "from −0.01 to 1" must mean |λ|: λ > 0 leaves negative risks negative."""
FIXED_SLOPE = -0.1
"""Default λ."""
QUICK_SLOPES = (-0.01, FIXED_SLOPE)
SELECTION_HOLD_OUT = 0.09
"""Fraction of each set that is held out to choose λ; see `uulearn.reproduction.sampling.hold_out`."""

PAPER_TRIALS, PAPER_EPOCHS, MOMENTUM = 5, 200, 0.9
APPENDIX_C: Configuration = {
    "sizes": [30_000, 30_000], "batch_size": 3_000, "epochs": PAPER_EPOCHS, "loss": "logistic", "optimizer": "adam",
    "lr_decay": 0.0, "dropout": 0.0, "held_out": 0.0,
}  # fmt: skip
MODEL_NAMES = {"linear": "linear", "mlp": "MLP", "allconvnet": "AllConvNet", "resnet32": "ResNet-32"}
CONVOLUTIONAL = ("allconvnet", "resnet32")
CONVOLUTIONAL_TRIALS = QUICK_TRIALS = 2
QUICK_DENSE = {"sizes": [600, 600], "batch_size": 200, "epochs": 10, "test_rows": 1_000}
QUICK_CONVOLUTIONAL = {"sizes": [20, 20], "batch_size": 20, "epochs": 2, "test_rows": 100}
"""Configuration entries that replace the paper's settings in the quick version."""

RESNET_LR = 3e-5
"""Learning rate of ResNet-32 in Table 3: Appendix C says 5e-3, but Appendix B says 3e-5 for this network."""
LR_AND_L2 = {  # learning rate and L2 regularization from Appendix C
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
FIGURE3_DROPOUTS, FIGURE3_DECAYS = (0.0, 0.2, 0.4, 0.6, 0.8), (5e-4, 5e-3, 5e-2, 5e-1, 5.0)


@dataclass(frozen=True)
class Request:
    """Selection of the experiments to run.

    The default is 5 trials (seeds) of 200 epochs, as in the paper. Convolutional networks and the quick version have 2
    trials. With ``selection``, λ is chosen without labels, which requires additional runs; otherwise, λ is −0.1.
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
        """Return the number of trials per table cell for a model."""
        default = CONVOLUTIONAL_TRIALS if model in CONVOLUTIONAL else PAPER_TRIALS
        return self.trials or (QUICK_TRIALS if self.quick else default)

    @property
    def is_the_papers(self) -> bool:
        """Whether the runs use the paper's setting, so that their results are comparable with the paper."""
        return not self.quick and self.epochs in (None, PAPER_EPOCHS)


def method_of(slope: float) -> tuple[str, float | None]:
    """Return the name of the method with slope λ, and the value of ``slope`` in its configuration.

    >>> method_of(0), method_of(-0.1), method_of(-1)
    (('relu', None), ('leaky_relu', -0.1), ('abs', None))
    """
    return {RELU: ("relu", None), ABS: ("abs", None)}.get(slope, ("leaky_relu", slope))


def configuration(
    request: Request,
    dataset: str,
    model: str,
    method: tuple[str, float | None],
    set_priors: tuple[float, float],
    seed: int,
    **settings: Any,
) -> Configuration:
    """Return the configuration of one run; ``settings`` contains ``lr``, ``l2`` and overrides of Appendix C."""
    own = {"dataset": dataset, "model": model, "method": method[0], "slope": method[1], "seed": seed}
    priors = {"set_priors": list(set_priors), "target_prior": PAPER_TARGET_PRIORS[dataset]}
    run: Configuration = APPENDIX_C | own | priors | settings
    run["momentum"] = MOMENTUM if run["optimizer"] == "sgd" else None
    if request.quick:
        run |= QUICK_CONVOLUTIONAL if model in CONVOLUTIONAL else QUICK_DENSE
    return run | ({"epochs": request.epochs} if request.epochs else {})


@dataclass(frozen=True)
class ResultRow:
    """A table row: a dataset and the class priors of its two unlabeled sets."""

    dataset: str
    set_priors: tuple[float, float]

    @property
    def dataset_label(self) -> str:
        """Display name of the dataset."""
        return DATASET_NAMES.get(self.dataset, self.dataset)

    @property
    def priors_label(self) -> str:
        """The two set priors as text, such as ``0.8, 0.2``."""
        return f"{self.set_priors[0]:g}, {self.set_priors[1]:g}"

    @property
    def label(self) -> str:
        """Dataset and set priors as text, such as ``MNIST (0.8, 0.2)``."""
        return f"{self.dataset_label} ({self.priors_label})"


@dataclass(frozen=True)
class TableRow(ResultRow):
    """A row of Table 2 or Table 3, and the configurations of all its runs."""

    table: str
    request: Request = field(repr=False)

    @property
    def model(self) -> str:
        """Name of the model that is trained for this row."""
        return TABLE_MODELS[self.table][self.dataset]

    @property
    def seeds(self) -> range:
        """Seeds of the trials."""
        return range(self.request.trials_of(self.model))

    @property
    def slopes(self) -> tuple[float, ...]:
        """Values of λ to run. Convolutional networks train slowly, so they use only ReLU, ABS and one other λ."""
        dense = QUICK_SLOPES if self.request.quick else PAPER_SLOPES
        return (RELU, *((FIXED_SLOPE,) if self.model in CONVOLUTIONAL else dense), ABS)

    @property
    def candidates(self) -> tuple[float, ...]:
        """Candidate values of λ if λ is chosen without labels; empty if λ is fixed."""
        return self.slopes[1:] if self.request.selection and self.model not in CONVOLUTIONAL else ()

    def run(self, method: str | float, seed: int, held_out: float = 0.0) -> Configuration:
        """Return the configuration of one run; ``method`` is the name of the method or its λ."""
        named = (method, None) if isinstance(method, str) else method_of(method)
        lr, l2 = LR_AND_L2[self.model, self.dataset]
        return configuration(
            self.request, self.dataset, self.model, named, self.set_priors, seed, lr=lr, l2=l2, held_out=held_out
        )

    def trial(self, seed: int) -> list[Configuration]:
        """Return the configurations of one trial: one per method, and one with held-out rows per candidate λ."""
        methods: list[str | float] = [*BASELINES, *self.slopes]
        full = [self.run(method, seed) for method in methods]
        return full + [self.run(slope, seed, SELECTION_HOLD_OUT) for slope in self.candidates]


def table_rows(table: str, request: Request) -> list[TableRow]:
    """Return the rows of a table in the same order as in the paper."""
    return [TableRow(dataset, priors, table, request) for dataset in request.datasets for priors in PAPER_SET_PRIORS]


def figure1_panels(request: Request) -> dict[str, Configuration]:
    """Return the configuration for each panel of Figure 1, keyed by the name of the panel."""
    return {
        f"{dataset}-{model}-{loss}": configuration(
            request, dataset, model, ("unbiased", None), FIGURE_SET_PRIORS, 0, loss=loss, **settings
        )
        for (dataset, model), settings in FIGURE1_MODELS.items()
        for loss in FIGURE1_LOSSES
    }


def figure3_curves(request: Request) -> tuple[list[Configuration], list[Configuration]]:
    """Return the configurations for Figure 3: one per dropout rate (top panel), one per weight decay (bottom panel)."""
    shared = request, "mnist", "mlp", ("unbiased", None), FIGURE_SET_PRIORS, 0
    left = [configuration(*shared, lr=1e-3, optimizer="sgd", dropout=rate, l2=1e-4) for rate in FIGURE3_DROPOUTS]
    right = [configuration(*shared, lr=1e-3, optimizer="sgd", dropout=0.2, l2=l2) for l2 in FIGURE3_DECAYS]
    return left, right


VARIANTS: dict[str, Callable[[Configuration], Configuration]] = {
    "as printed": lambda run: {},
    "decay": lambda run: {"lr_decay": 5e-5 if run["set_priors"] == [0.8, 0.2] else 5e-4},
    "lr / 3": lambda run: {"lr": run["lr"] / 3},
    "lr × 3": lambda run: {"lr": run["lr"] * 3},
    "lr 5e-3": lambda run: {"lr": 5e-3},
    "shortened": lambda run: {"sampling": "shortened"},
    "independent": lambda run: {"sampling": "independent"},
    "batch 1500": lambda run: {"batch_size": run["batch_size"] // 2},
    "batch 500": lambda run: {"batch_size": run["batch_size"] // 6},
    "no L2": lambda run: {"l2": 0.0},
    "Glorot": lambda run: {"initialiser": "glorot_uniform"},  # spelling of the stored records; vocabulary: ok
    "normalization": lambda run: {"norm_momentum": 0.1},
}
"""Other interpretations of the paper's settings. Each function returns the configuration entries that the variant
changes. The template ``variants.md.jinja`` explains the variants."""
VARIANT_METHODS: tuple[str | float, ...] = ("unbiased", ABS, RELU, -0.01, FIXED_SLOPE)
SHORT_OF_ROWS = ("kmnist", "cifar10")
"""Datasets with a class that has fewer rows than one set requires."""
VARIANT_TRIALS = 3
ONLY_RESNET = ("lr 5e-3", "batch 500", "normalization")
RESNET_VARIANTS: dict[str, dict[tuple[float, float], tuple[str | float, ...]]] = {
    "as printed": {(0.7, 0.3): ("unbiased", ABS), (0.6, 0.4): ("unbiased", ABS, FIXED_SLOPE)},
    "lr / 3": {(0.7, 0.3): (ABS,), (0.6, 0.4): ("unbiased", ABS, FIXED_SLOPE)},
    "lr × 3": {(0.7, 0.3): (ABS,), (0.6, 0.4): ("unbiased", ABS, FIXED_SLOPE)},
    "lr 5e-3": {(0.6, 0.4): ("unbiased", ABS)},
    "batch 500": {(0.6, 0.4): ("unbiased",)},
    "no L2": {(0.7, 0.3): ("unbiased", ABS), (0.6, 0.4): ("unbiased", FIXED_SLOPE)},
    "normalization": {(0.6, 0.4): (FIXED_SLOPE,)},
}
"""ResNet-32 methods to run per variant. Runs are slow, so only cells that disagree with the paper are included."""


def variant_run(row: TableRow, variant: str, method: str | float, seed: int) -> Configuration:
    """Return the configuration of a method for one of the `VARIANTS`; "as printed" changes nothing."""
    run = row.run(method, seed)
    return run | VARIANTS[variant](run)


def variant_methods(variant: str, row: TableRow) -> tuple[str | float, ...]:
    """Return the methods to run for a variant and a table row; empty if the variant does not apply to the row."""
    if row.model in CONVOLUTIONAL:
        return RESNET_VARIANTS.get(variant, {}).get(row.set_priors, ())
    special = {"shortened": row.dataset in SHORT_OF_ROWS, "Glorot": row.model == "mlp"}
    return VARIANT_METHODS if special.get(variant, variant not in ONLY_RESNET) else ()


def variant_rows(variant: str, request: Request) -> list[TableRow]:
    """Return the rows to which a variant applies: rows of Table 3, and CIFAR-10 rows of Table 2."""
    rows = table_rows("table3", request) + [row for row in table_rows("table2", request) if row.dataset == "cifar10"]
    return [row for row in rows if variant_methods(variant, row)]


def variant_seeds(variant: str, row: TableRow) -> range:
    """Return the seeds to run for a variant and a table row."""
    once = row.model in CONVOLUTIONAL and variant != "as printed"
    return row.seeds[: 1 if once else VARIANT_TRIALS]


def _table_runs(table: str, request: Request) -> list[Configuration]:
    return [run for row in table_rows(table, request) for seed in row.seeds for run in row.trial(seed)]


def _variant_runs(request: Request) -> list[Configuration]:
    return [
        variant_run(row, variant, method, seed)
        for variant in VARIANTS
        for row in variant_rows(variant, request)
        for seed in variant_seeds(variant, row)
        for method in variant_methods(variant, row)
    ]


EXPERIMENTS: dict[str, Callable[[Request], list[Configuration]]] = {
    "table2": lambda request: _table_runs("table2", request),
    "table3": lambda request: _table_runs("table3", request),
    "figure1": lambda request: [r for r in figure1_panels(request).values() if r["dataset"] in request.datasets],
    "figure2": lambda request: [],
    "figure3": lambda request: [r for c in figure3_curves(request) for r in c if r["dataset"] in request.datasets],
    "variants": _variant_runs,
}
"""Function that returns the configurations of each target. Figure 2 shows correction functions and needs no runs."""
TARGETS = tuple(EXPERIMENTS)
STUDIES = ("variants",)
"""Additional targets that do not appear in the paper."""


def runs_of(targets: Sequence[str], request: Request) -> list[Configuration]:
    """Return the configurations of several targets; a run shared by two targets occurs twice."""
    return [configuration for target in targets for configuration in EXPERIMENTS[target](request)]
