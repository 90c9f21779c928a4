"""Records of training runs."""

from uulearn.reproduction.store import RECORD_FORMAT


def configuration(seed=0, **changes):
    return {
        "dataset": "mnist", "model": "mlp", "method": "leaky_relu", "slope": -0.1, "set_priors": [0.8, 0.2],
        "lr": 5e-5, "l2": 5e-3, "epochs": 200, "seed": seed,
    } | changes  # fmt: skip


def record(seed=0, *, accuracy=0.9, epochs=5, **changes):
    curve = [round(accuracy + 0.001 * epoch, 6) for epoch in range(epochs)]
    return {
        "format": RECORD_FORMAT,
        "configuration": configuration(seed, **changes),
        "facts": {"overlap": 508},
        "environment": {"device": "cpu"},
        "seconds": 1.5,
        "stop_reason": "all 200 epochs done",
        "curves": {"test_accuracy": curve, "unbiased": [-value for value in curve]},
    }
