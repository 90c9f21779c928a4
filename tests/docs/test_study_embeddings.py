"""The study of embeddings: encoders of images, quick run, stored results, and the tables of the page."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "study"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "building"))

import embeddings
import image_encoders
import records

from uulearn.reproduction.store import key

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def threads():
    """Restore the number of threads, which a study sets to one."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def stored():
    return records.read([embeddings.STORE]).fits


@pytest.fixture(scope="module")
def shown():
    path = ROOT / "docs" / "building" / "facts" / "embeddings.py"
    spec = importlib.util.spec_from_file_location("facts_embeddings", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.facts()


def test_the_stored_study_is_the_planned_one(stored):
    planned = [one for part in ("choice", "paper") for one in embeddings.planned(part)]
    assert stored.keys() == {key(one) for one in planned}


def test_choices_use_other_tasks_and_seeds_than_the_results():
    choice, paper = map(embeddings.planned, ("choice", "paper"))
    assert {one["seed"] for one in choice}.isdisjoint(one["seed"] for one in paper)
    for dataset, positive in embeddings.OTHER.items():
        assert {*positive} != {*embeddings.SOURCES[dataset].positive_classes}


@pytest.mark.parametrize("part", ["choice", "paper"])
def test_a_quick_run_stores_its_fits_once(tmp_path, capsys, part):
    out = tmp_path / "embeddings.jsonl"
    for left in (2, 0):
        embeddings.main([str(tmp_path), "--part", part, "--quick", "--out", str(out)])
        assert f"{left} fits to run" in capsys.readouterr().out
    found = [json.loads(line) for line in out.read_text().splitlines()]
    fits = [one for one in found if "configuration" in one]
    assert len(fits) == 2
    assert all(("risk" in one) == (part == "choice") for one in fits)
    assert all(0 < one["n_features"] <= 64 for one in fits)


def images(n, shape=(12, 12)):
    """Images of vertical or horizontal stripes."""
    rng = np.random.default_rng(0)
    waves = np.sin(np.arange(shape[-1]) * 1.5 + rng.uniform(0, 6, n)[:, None])
    pixels = 100 * np.broadcast_to(waves[:, None], (n, shape[-1], shape[-1])) + rng.normal(128, 9, (n, *shape))
    vertical = rng.random(n) < 0.5
    pixels = np.where(vertical[:, None, None], pixels, pixels.transpose(0, 2, 1))
    return pixels.clip(0, 255).astype(np.uint8), vertical


@pytest.mark.parametrize("kind", image_encoders.KINDS)
def test_features_do_not_depend_on_the_other_images(kind):
    pixels, _ = images(40)
    encoder = image_encoders.fit_encoder(pixels, kind, k=8, patches=500)
    found = encoder(pixels)
    assert found.shape == (40, 32)
    assert found.dtype == np.float16
    np.testing.assert_allclose(encoder(pixels[7:8]), found[7:8], rtol=0.01, atol=0.01)
    again = image_encoders.fit_encoder(pixels, kind, k=8, patches=500)
    np.testing.assert_array_equal(again(pixels), found)


@pytest.mark.parametrize("kind", image_encoders.KINDS)
def test_features_separate_the_directions_of_stripes(kind):
    pixels, vertical = images(200)
    found = image_encoders.fit_encoder(pixels, kind, k=8, patches=2000)(pixels).astype(np.float32)
    design = np.column_stack([found, np.ones(200)])
    weights = np.linalg.lstsq(design[:100], 2.0 * vertical[:100] - 1, rcond=None)[0]
    assert ((design[100:] @ weights > 0) == vertical[100:]).mean() > 0.95


def test_color_images_and_brightness_are_handled():
    pixels, _ = images(20)
    color = np.stack([pixels, pixels, pixels], axis=1)
    encoder = image_encoders.fit_encoder(color, "kmeans", k=4, patches=300)
    assert encoder(color).shape == (20, 16)
    constant = np.full((1, 3, 12, 12), 77, np.uint8)
    np.testing.assert_array_equal(encoder(constant), encoder(constant + 100))


def test_tables_of_the_page_equal_the_records(stored, shown):
    def accuracies(**wanted):
        return [
            100 * one["accuracy"]
            for one in stored.values()
            if {"part": "paper", **wanted}.items() <= one["configuration"].items()
        ]

    line = next(row for row in shown["middle"].splitlines() if row.startswith("| MNIST |"))
    found = [cell.strip() for cell in line.strip("|").split("|")]
    own = accuracies(dataset="mnist", encoder="kmeans", rows=1000, set_priors=[0.7, 0.3], setting="mlp")
    assert found[2] == f"{np.mean(own):.1f} ({np.std(own, ddof=1):.1f})"
    cifar = accuracies(dataset="cifar10", encoder="pixels", rows=1000, set_priors=[0.8, 0.2])
    line = next(row for row in shown["small"].splitlines() if row.startswith("| CIFAR-10 |"))
    assert f"| CIFAR-10 | {np.mean(cifar):.1f} ({np.std(cifar, ddof=1):.1f}) |" in line
