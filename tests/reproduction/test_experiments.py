"""The paper's experiments as data, which runs are trained together, and what is trained for a configuration."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from helpers.plain import plain_classifier
from uulearn.datasets import BinaryTask, make_sets
from uulearn.reproduction.experiments import (
    CONVOLUTIONAL,
    EXPERIMENTS,
    PAPER_SLOPES,
    PAPER_TARGET_PRIORS,
    RESNET_LR,
    SELECTION_HOLD_OUT,
    Request,
    TableRow,
    configuration,
    figure1_panels,
    figure3_curves,
    method_of,
    runs_of,
    table_rows,
)
from uulearn.reproduction.figures import PANELS
from uulearn.reproduction.jobs import SAME_SETS, SHARED_ENTRIES, ExperimentJob, Reporter, halves, plan_jobs
from uulearn.reproduction.reference import paper_table
from uulearn.reproduction.runner import JobTrainer, choose_device, reproduce
from uulearn.reproduction.sampling import hold_out
from uulearn.reproduction.store import RunStore, key
from uulearn.risk.corrections import get_method

EVERYTHING = ("table2", "table3", "figure1", "figure2", "figure3")
MNIST_ROW = TableRow("mnist", (0.8, 0.2), "table3", Request())


# --- The definitions -------------------------------------------------------------------------------------------------


def test_number_of_runs_per_target():
    runs = EXPERIMENTS["table2"](Request())
    assert len([run for run in runs if not run["held_out"]]) == 4 * 3 * (4 + 4) * 5
    assert len([run for run in runs if run["held_out"]]) == 4 * 3 * 5 * 5
    deep = EXPERIMENTS["table3"](Request())
    assert len(deep) == 3 * 3 * (8 + 5) * 5 + 3 * (4 + 1) * 2
    assert len(EXPERIMENTS["table3"](Request(["cifar10"], trials=5))) == 3 * (4 + 1) * 5
    assert len(EXPERIMENTS["table2"](Request(selection=False))) == 480
    assert len(EXPERIMENTS["table2"](Request(["mnist"], trials=7))) == 3 * 13 * 7
    assert EXPERIMENTS["figure2"](Request()) == []


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("target", EVERYTHING)
def test_runs_of_a_target_have_different_keys(target, quick):
    runs = EXPERIMENTS[target](Request(quick=quick))
    assert len({key(run) for run in runs}) == len(runs)


def test_runs_shared_by_targets_are_trained_once():
    assert RESNET_LR == 3e-5  # the shared panel below depends on it
    shared = Counter(key(run) for run in runs_of(EVERYTHING, Request()))
    twice = {name for name, count in shared.items() if count > 1}
    panels = figure1_panels(Request())
    assert twice == {key(panels["cifar10-resnet32-logistic"]), key(panels["mnist-mlp-logistic"])}


def test_quick_runs_have_other_keys_than_full_runs():
    full, quick = ({key(run) for run in runs_of(EVERYTHING, Request(quick=q))} for q in (False, True))
    assert not full & quick


def test_slopes_and_methods_match():
    for run in runs_of(EVERYTHING, Request()):
        assert (run["slope"] is not None) == (run["method"] == "leaky_relu")
        assert get_method(run["method"], -0.1 if run["slope"] is None else run["slope"]).name == run["method"]
        assert (run["momentum"] is not None) == (run["optimizer"] == "sgd")
        assert run["target_prior"] == PAPER_TARGET_PRIORS[run["dataset"]]
    x = torch.tensor([-2.0, 3.0])
    for slope in (0.0, *PAPER_SLOPES, -1.0):
        method, entry = method_of(slope)
        f = get_method(method, -0.1 if entry is None else entry).corrections[0]
        assert torch.equal(f(x), torch.tensor([-2.0 * slope, 3.0]))


def test_rows_match_the_paper():
    for table in ("table2", "table3"):
        assert [(row.dataset, row.set_priors) for row in table_rows(table, Request())] == list(paper_table(table))
    assert set(figure1_panels(Request())) == set(PANELS)


def test_settings_match_the_appendix():
    common = {
        "method": "relu", "slope": None, "set_priors": [0.8, 0.2], "sizes": [30000, 30000], "loss": "logistic",
        "optimizer": "adam", "momentum": None, "lr_decay": 0.0, "dropout": 0.0, "batch_size": 3000, "epochs": 200,
        "seed": 3, "held_out": 0.0,
    }  # fmt: skip
    linear = TableRow("cifar10", (0.8, 0.2), "table2", Request()).run(0.0, 3)
    own = {"dataset": "cifar10", "model": "linear", "target_prior": 0.6, "lr": 5e-3, "l2": 5e-3}
    assert linear == common | own
    deep = MNIST_ROW.run(0.0, 3)
    assert deep == common | {"dataset": "mnist", "model": "mlp", "target_prior": 0.4926, "lr": 5e-5, "l2": 5e-3}
    panel = figure1_panels(Request())["mnist-linear-sigmoid"]
    assert (panel["lr"], panel["batch_size"], panel["momentum"], panel["loss"]) == (0.05, 1000, 0.9, "sigmoid")
    dropout, decay = figure3_curves(Request())
    assert [(run["dropout"], run["l2"]) for run in dropout] == [(d, 1e-4) for d in (0.0, 0.2, 0.4, 0.6, 0.8)]
    assert [(run["dropout"], run["l2"]) for run in decay] == [(0.2, l2) for l2 in (5e-4, 5e-3, 5e-2, 5e-1, 5.0)]


def test_more_trials_include_the_runs_of_fewer():
    few, more = ({key(run) for run in EXPERIMENTS["table3"](Request(trials=trials))} for trials in (2, 4))
    assert few < more


def test_request_validation_and_defaults():
    assert Request(["cifar10", "mnist"]).datasets == ("mnist", "cifar10")
    assert Request().is_the_papers
    assert Request(epochs=200, trials=1).is_the_papers
    assert not Request(epochs=20).is_the_papers
    assert not Request(quick=True).is_the_papers
    assert EXPERIMENTS["table2"](Request(quick=True, epochs=3))[0]["epochs"] == 3


# --- Which runs are trained together ---------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [None, 1, 7, 40, 150])
def test_jobs_contain_every_run_once_and_share_entries(most):
    runs = runs_of(["table2", "figure1", "figure3"], Request())
    runs = list({key(run): run for run in runs}.values())
    jobs = plan_jobs(runs, most)
    assert Counter(key(run) for job in jobs for run in job.configurations) == Counter(map(key, runs))
    for job in jobs:
        assert len(job.configurations) <= (most or 10)
        assert job.first["model"] not in CONVOLUTIONAL or len(job.configurations) == 1
        for run in job.configurations:
            assert all(run.get(name) == job.first.get(name) for name in SHARED_ENTRIES)
            if most is None:
                assert all(run[name] == job.first[name] for name in SAME_SETS)
    names = [job.first["dataset"] for job in jobs]
    assert len([name for i, name in enumerate(names) if i == 0 or name != names[i - 1]]) == len(set(names))


def test_jobs_are_few_similar_in_size_and_keep_sets_together():
    runs = EXPERIMENTS["table2"](Request(["mnist"], trials=10, selection=False))
    jobs = plan_jobs(runs, 150)
    assert [len(job.configurations) for job in jobs] == [120, 120]
    sets = [{(tuple(run["set_priors"]), run["seed"]) for run in job.configurations} for job in jobs]
    assert not sets[0] & sets[1]
    parts = halves(jobs[0])
    assert [len(part.configurations) for part in parts] == [60, 60]
    assert [len(part.configurations) for part in halves(ExperimentJob(jobs[0].configurations[:2]))] == [1, 1]


def test_convolutional_runs_cost_more():
    jobs = plan_jobs(EXPERIMENTS["figure1"](Request()), None)
    costs = {job.first["model"]: job.cost for job in jobs}
    assert costs["linear"] < costs["mlp"] < costs["resnet32"] < costs["allconvnet"]


# --- What is trained -------------------------------------------------------------------------------------------------


def make_task(name="mnist", shape=(6, 6), n=400):
    """Create a small task with the shape of a dataset and a test part with its π."""
    rng = np.random.default_rng(0)
    n_test = {"mnist": 5000, "cifar10": 60}[name]

    def draw(n, positives):
        y = np.zeros(n, np.int64)
        y[rng.permutation(n)[:positives]] = 1
        means = np.where(y == 1, 150, 100).reshape(-1, *(1 for _ in shape))
        return np.clip(rng.normal(means, 60, (n, *shape)), 0, 255).astype(np.uint8), y

    train, test = draw(n, n // 2), draw(n_test, round(n_test * PAPER_TARGET_PRIORS[name]))
    return BinaryTask(name, *train, *test, positive_classes=())


@pytest.fixture(scope="module")
def mnist():
    return make_task()


@pytest.fixture(scope="module")
def cifar():
    return make_task("cifar10", (3, 32, 32), 200)


def small(model="linear", dataset="mnist", method=("relu", None), seed=0, **settings):
    request = Request(quick=True, epochs=settings.pop("epochs", 3))
    settings = {"lr": 1e-3, "l2": 1e-4, "batch_size": 40} | settings
    own = {"sizes": [100, 60], "batch_size": settings["batch_size"]} if model not in CONVOLUTIONAL else {}
    return configuration(request, dataset, model, method, (0.8, 0.2), seed, **settings) | own


@pytest.mark.filterwarnings("ignore::uulearn.exceptions.OneSidedPredictionsWarning")
@pytest.mark.parametrize(
    ("model", "method", "settings"),
    [
        ("linear", ("leaky_relu", -0.3), {"lr": 0.01}),
        ("linear", ("abs", None), {"optimizer": "sgd", "loss": "sigmoid", "lr": 0.1}),
        ("linear", ("biased", None), {"l2": 5e-3}),
        ("mlp", ("leaky_relu", -0.03), {"l2": 5e-3, "seed": 3}),
        ("mlp", ("unbiased", None), {"optimizer": "sgd", "loss": "sigmoid"}),
    ],
)
def test_run_follows_its_configuration(monkeypatch, tmp_path, mnist, model, method, settings):
    monkeypatch.setattr("uulearn.training.precision.cpu_multiplies_bfloat16", lambda: False)
    run = small(model, method=method, **settings) | {"test_rows": None}
    store = RunStore(tmp_path)
    assert reproduce([run], store, lambda name: mnist, device="cpu") == (1, 0, 0)
    record = store.get(run)
    flat, adam = mnist.flat(), run["optimizer"] == "adam"
    drawn = make_sets(flat.X_train, flat.y_train, (0.8, 0.2), (100, 60), random_state=run["seed"])
    alone = plain_classifier(
        (0.8, 0.2), 0.4926, loss=run["loss"], method=method[0], slope=method[1] or -0.1, model=model,
        model_params={"momentum": 0.01} if model == "mlp" else None, optimizer=run["optimizer"], lr=run["lr"],
        optimizer_params={"eps": 1e-7} if adam else {"momentum": 0.9}, l2=run["l2"], epochs=3, batch_size=40,
        ema=None, input_scale=1 / 255, random_state=run["seed"], progress=False,
    ).fit_sets(drawn.X0, drawn.X1, test_data=(flat.X_test, flat.y_test))  # fmt: skip
    for name in ("positive", "objective", "zero_one", "test_accuracy"):
        np.testing.assert_allclose(record["curves"][name], alone.history_.column(name), atol=2e-3, rtol=2e-3)
    assert record["stop_reason"] == "all 3 epochs done"
    facts = {"realised_priors": [0.8, 0.2], "overlap": 0, "repeats": [0, 0], "trained_sizes": [100, 60]}
    assert record["facts"] == facts | {"held_out_sizes": [0, 0], "n_test": 5000}
    assert record["environment"]["engine"] == "stack of 1"
    assert record["environment"]["precision"] == "float32"
    assert record["environment"]["capability"] == "cpu"
    assert record["seconds"] > 0


def test_batched_runs_follow_their_configurations(tmp_path, mnist):
    runs = [small(method=method, seed=seed, lr=lr, held_out=held_out)
            for method in (("relu", None), ("biased", None)) for seed in (0, 1) for lr in (1e-3, 1e-2)
            for held_out in (0.0, SELECTION_HOLD_OUT)]  # fmt: skip
    together, apart = RunStore(tmp_path / "together"), RunStore(tmp_path / "apart")
    assert reproduce(reversed(runs), together, lambda name: mnist).done == len(runs)
    for run in runs:
        reproduce([run], apart, lambda name: mnist)
        for name, curve in apart.get(run)["curves"].items():
            np.testing.assert_allclose(together.get(run)["curves"][name], curve, atol=1e-4)
    risks = {tuple(together.get(run)["curves"]["test_risk"]) for run in runs}
    assert len(risks) == len(runs)


def test_held_out_rows_come_from_the_sets_and_are_not_trained_on(tmp_path, mnist):
    bench = JobTrainer(mnist, torch.device("cpu"), Reporter())
    full, held = small(seed=4), small(seed=4, held_out=SELECTION_HOLD_OUT)
    sets, nothing = bench._rows(full)
    trained, held_out = bench._rows(held)
    assert nothing is None
    for whole, *parts in zip(sets, trained, held_out, strict=True):
        assert set(torch.cat(parts).tolist()) <= set(whole.tolist())
    assert not set(torch.cat(trained).tolist()) & set(torch.cat(held_out).tolist())
    store = RunStore(tmp_path)
    reproduce([full, held], store, lambda name: mnist)
    assert len(store.get(held)["curves"]["validation_zero_one"]) == 3
    assert "validation_zero_one" not in store.get(full)["curves"]
    facts = store.get(held)["facts"]
    assert facts["held_out_sizes"] == [len(part) for part in held_out] == [9, 5]
    assert facts["trained_sizes"] == [len(part) for part in trained]


@given(
    sizes=st.tuples(st.integers(400, 900), st.integers(400, 900)),
    pool=st.integers(300, 2_000),
    seed=st.integers(0, 1_000),
)
def test_hold_out_keeps_copies_of_a_row_together(sizes, pool, seed):
    """All copies of a row, in one set or in both, go to one side; sizes do not depend on the seed."""
    rng = np.random.default_rng(seed)
    indices = tuple(rng.integers(0, pool, size) for size in sizes)
    try:
        training, held_out = hold_out(indices, 0.09, seed)
    except ValueError:  # few distinct rows with many copies: a random choice may hold out too few
        assume(False)
    assert not np.isin(np.concatenate(training), np.concatenate(held_out)).any()
    for size, index, mine, its in zip(sizes, indices, training, held_out, strict=True):
        assert len(its) == round(0.09 * size)
        assert 0.6 * size < len(mine) < 0.9 * size
        taken, available = (dict(zip(*np.unique(rows, return_counts=True), strict=True)) for rows in (mine, index))
        assert all(count <= available[row] for row, count in taken.items())


@pytest.mark.parametrize("model", CONVOLUTIONAL)
def test_convolutional_runs(tmp_path, cifar, model):
    runs = [small(model, "cifar10", epochs=1), small(model, "cifar10", epochs=1, held_out=SELECTION_HOLD_OUT)]
    store = RunStore(tmp_path)
    assert reproduce(runs, store, lambda name: cifar).done == 2
    full, held = map(store.get, runs)
    assert len(full["curves"]["test_accuracy"]) == len(full["curves"]["test_risk"]) == 1
    assert full["environment"]["engine"] == "single"
    assert full["facts"]["n_test"] == 60
    assert held["facts"]["held_out_sizes"] == [2, 2]
    assert len(held["curves"]["validation_zero_one"]) == 1


def test_learning_rate_decay_matches_keras():
    weight = torch.nn.Parameter(torch.zeros(1))
    bench = JobTrainer(make_task(), torch.device("cpu"), Reporter())
    assert bench._options(small("resnet32", "cifar10")).scheduler is None
    options = bench._options(small("resnet32", "cifar10", lr=0.1) | {"lr_decay": 0.5})
    optimizer = torch.optim.SGD([weight], lr=options.lr)
    schedule = options.scheduler(optimizer)
    for _ in range(4):
        optimizer.step()
        schedule.step()
    assert options.scheduler_interval == "batch"
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / (1 + 0.5 * 4))


def test_quick_test_rows_are_evenly_spread():
    task = make_task()
    order = np.argsort(task.y_test)
    task = dataclasses.replace(task, X_test=task.X_test[order], y_test=task.y_test[order])
    bench = JobTrainer(task, torch.device("cpu"), Reporter())
    images, labels = bench._test(small() | {"test_rows": 1000})
    assert len(images) == len(labels) == 1000
    assert labels.float().mean().item() == pytest.approx(0.4926, abs=0.001)
    assert len(bench._test(small() | {"test_rows": None})[1]) == 5000
    assert len(bench._test(small() | {"test_rows": 9999})[1]) == 5000


@pytest.mark.parametrize(("model", "dataset"), [("linear", "mnist"), ("resnet32", "cifar10")])
def test_non_finite_risk_is_recorded(tmp_path, mnist, cifar, model, dataset):
    bad = small(model, dataset, method=("unbiased", None), lr=1e38, epochs=4, optimizer="sgd")
    good = small(model, dataset, epochs=1 if model == "resnet32" else 4)
    store = RunStore(tmp_path)
    outcome = reproduce([bad, good], store, {"mnist": mnist, "cifar10": cifar}.__getitem__)
    assert outcome == (2, 0, 1)
    assert "not finite" in store.get(bad)["stop_reason"]
    assert len(store.get(bad)["curves"]["test_accuracy"]) < 4
    assert "done" in store.get(good)["stop_reason"]
    assert reproduce([bad, good], store, pytest.fail) == (0, 2, 0)  # it is not repeated, and no data are read


def test_datasets_are_loaded_once_and_checked(tmp_path, mnist):
    read = []
    runs = [small(seed=seed) for seed in range(3)] + [small(dataset="kmnist")]

    def tasks(name):
        read.append(name)
        return mnist

    with pytest.raises(ValueError, match=r"kmnist: expected a class prior of 0.3 in the test data, found 0.4926; use"):
        reproduce(runs, RunStore(tmp_path), tasks)
    assert read == ["mnist", "kmnist"]
    assert len(RunStore(tmp_path)) == 3


class Rival(Reporter):
    """Trains most of the first job itself before it starts."""

    def __init__(self, store, task):
        self.store, self.task, self.seen = store, task, []

    def begin(self, jobs, found):
        reproduce(jobs[0].configurations[1:], self.store, lambda name: self.task)

    def finish(self, job, records, seconds):
        self.seen.append(len(records))


def test_runs_finished_by_another_process_are_skipped(tmp_path, mnist):
    store = RunStore(tmp_path)
    runs = [small(method=method) for method in (("relu", None), ("abs", None), ("unbiased", None))]
    rival = Rival(RunStore(tmp_path), mnist)
    assert reproduce(runs, store, lambda name: mnist, reporter=rival) == (1, 0, 0)
    assert rival.seen == [1]


def test_job_that_does_not_fit_into_memory_is_split(monkeypatch, tmp_path, mnist):
    real, sizes = JobTrainer.train, []

    def train(self, job):
        sizes.append(len(job.configurations))
        if len(job.configurations) > 2:
            raise torch.cuda.OutOfMemoryError("out of memory")
        return real(self, job)

    monkeypatch.setattr(JobTrainer, "train", train)
    runs = [small(method=("leaky_relu", slope)) for slope in (*PAPER_SLOPES, -0.5)]
    assert reproduce(runs, RunStore(tmp_path), lambda name: mnist).done == 5
    assert sizes == [5, 3, 2, 1, 2]


def test_choose_device():
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("gpu0", "meta"):
        with pytest.raises(ValueError, match=f"must be 'auto', 'cpu' or 'cuda', got '{name}'"):
            choose_device(name)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA device is available; use 'auto'"):
            choose_device("cuda")
