"""`uulearn` commands on folders of photographs with a network of torchvision."""

import json
import sys
import tomllib

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from helpers.command_line import assert_one_sentence, run
from uulearn import UUClassifier
from uulearn.app.fitting import make_classifier
from uulearn.app.model import TableModel
from uulearn.app.settings import FitSettings
from uulearn.cli.options import TORCHVISION
from uulearn.estimator import resolve_defaults
from uulearn.models import IMAGE_MODELS, is_image_model
from uulearn.models.torchvision_networks import PREFIX

PRIORS = ("--set-priors", "0.85", "0.15")
NETWORK = "torchvision:squeezenet1_1"
OPTIONS = (*PRIORS, "--model", NETWORK, "--image-size", 32, "--batch-size", 20, "--epochs", 2, "--no-sensitivity")


pytest.importorskip("torchvision", reason="needs the extra vision")


def write_photos(folder, n, share, seed):
    """Photographs of different sizes, in subfolders; positive ones are bright."""
    draw = np.random.default_rng(seed)
    labels = draw.random(n) < share
    for number, positive in enumerate(labels):
        path = folder / ("more" if number % 2 else ".") / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 100, (*draw.integers(30, 60, 2), 3)) + 150 * positive
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return labels


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    write_photos(folder / "north", 50, 0.85, 0)
    write_photos(folder / "south", 50, 0.15, 1)
    labels = write_photos(folder / "new", 30, 0.5, 2)
    paths = [f"new/{'more/' if number % 2 else ''}{number:03d}.png" for number in range(30)]
    pd.DataFrame({"path": paths, "bright": labels.astype(int)}).to_csv(folder / "truth.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def fitted(photos):
    ended = run("fit", photos / "north", photos / "south", *OPTIONS, "--augment", "flip", "--out", photos / "model")
    assert ended.code == 0, ended.said
    return photos / "model"


def test_default_batches_of_photographs_are_small(photos):
    settings = {"first": photos / "north", "second": photos / "south", "set_priors": (0.85, 0.15)}
    sizes = {}
    for model in (NETWORK, "resnet32"):
        of_files = make_classifier(FitSettings.merge({}, {**settings, "model": model}), None)
        in_python = UUClassifier((0.85, 0.15), model=model)
        of_both = {resolve_defaults(own.get_params(), (90, 80))["batch_size"] for own in (of_files, in_python)}
        (sizes[model],) = of_both
    assert sizes == {NETWORK: 256, "resnet32": 3000}


def test_model_is_stored_as_a_name_and_weights(fitted):
    assert {path.suffix for path in fitted.iterdir()} == {".json", ".safetensors", ".toml", ".md"}
    parameters = json.loads((fitted / "model.json").read_text())["parameters"]
    assert (parameters["model"], parameters["training__augment"], parameters["batch_size"]) == (NETWORK, "flip", 20)
    written = tomllib.loads((fitted / "config.toml").read_text())["classifier"]
    assert (written["model"], written["training__augment"], written["batch_size"]) == (NETWORK, "flip", 20)
    model = TableModel.load(fitted)
    assert model.schema.row_shape == (3, 32, 32)
    (note,) = model.facts.notes
    assert note == (
        "images are resized and cropped to their center to 32 × 32 pixels; choose another size with --image-size"
    )


def test_commands_take_the_model(fitted, photos, tmp_path):
    ended = run("predict", fitted, photos / "new", "--out", tmp_path / "scored.csv")
    assert ended.code == 0, ended.said
    scored = pd.read_csv(tmp_path / "scored.csv")
    assert len(scored) == 30
    assert scored["probability"].between(0, 1).all()
    single = run("predict", fitted, photos / "new" / "000.png", "--out", tmp_path / "scored.csv")
    assert_one_sentence(single, "000.png is an image; pass the folder that contains the images.")
    ended = run("evaluate", fitted, photos / "truth.csv", "--labels", "bright", "--json")
    assert ended.code == 0, ended.said
    assert run("report", fitted, "--out", tmp_path / "report.html").code == 0
    assert NETWORK in (tmp_path / "report.html").read_text()
    ended = run("export", fitted, "--out", tmp_path / "model.onnx")
    assert ended.code == 0, ended.said
    assert "from X uint8 (n, 3, 32, 32) to score" in ended.out


def test_boosting_takes_pixels(photos, tmp_path):
    pytest.importorskip("lightgbm")
    options = (*PRIORS, "--model", "boosting", "--image-size", 8, "--epochs", 3, "--out", tmp_path / "m")
    ended = run("fit", photos / "north", photos / "south", *options)
    assert ended.code == 0, ended.said
    assert f"next       uulearn predict {tmp_path / 'm'} new_images/ --out scored.csv" in ended.out


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ("--model", "torchvision:resnt18"),
            "no classification network 'resnt18'; similar names: 'torchvision:resnet18'",
        ),
        (("--model", NETWORK, "--weights", "V9"), "must be None or one of 'DEFAULT', 'IMAGENET1K_V1', got 'V9'."),
        (("--weights", "DEFAULT"), "--weights DEFAULT needs a network of torchvision, but the model is resnet32; add"),
        (
            ("--model", "torchvision:alexnet", "--image-size", 40),
            "needs images of at least 63 × 63 pixels, got 40 × 40;",
        ),
        (("--model", "resnet18"), "resnet32, allconvnet or torchvision:NAME, got 'resnet18'."),
        (("--augment", "blur"), "--augment must be one of 'flip', 'shift', "),
        (("--augment", "shift:0.5"), "or several of them joined by '+', got 'shift:0.5'."),
    ],
)
def test_wrong_options_are_refused_before_the_images_are_read(options, text, photos, tmp_path, monkeypatch):
    monkeypatch.setattr("uulearn.tabular.matrices.load_images", lambda *_: pytest.fail("images were read"))
    ended = run("fit", photos / "north", photos / "south", *PRIORS, *options, "--out", tmp_path / "m")
    assert ended.code == 2
    assert text in " ".join(ended.said)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ("--model", NETWORK),
            f"--model {NETWORK} needs images, but north.csv and south.csv are not folders of images;",
        ),
        (("--model", "resnet32"), "--model resnet32 needs images, "),
        (("--model", "allconvnet"), "; choose another --model, or pass --images COLUMN if a column contains paths"),
        (
            ("--augment", "shift"),
            "--augment shift needs images, but north.csv and south.csv are not folders of images;",
        ),
        (("--augment", "flip+cutout"), "; remove --augment, or pass --images COLUMN if a column contains paths of im"),
    ],
)
def test_options_for_images_are_refused_before_tables_are_read(options, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, value in (("north", 1), ("south", 2)):
        pd.DataFrame({"x": [value, 2, 3]}).to_csv(f"{name}.csv", index=False)
    monkeypatch.setattr("uulearn.app.fitting.prepare", lambda *_, **__: pytest.fail("the files were read"))
    assert_one_sentence(run("fit", "north.csv", "south.csv", *PRIORS, *options), text)


def test_tables_of_pixels_are_augmented_if_the_shape_is_set(tmp_path):
    draw = np.random.default_rng(0)
    for name in ("north", "south"):
        pd.DataFrame(draw.integers(0, 256, (40, 16))).to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "shape.toml").write_text("[classifier]\ntraining__image_shape = [1, 4, 4]\n")
    options = (*PRIORS, "--model", "linear", "--augment", "shift:1", "--epochs", 1, "--n-estimators", 1)
    config = ("--config", tmp_path / "shape.toml", "--out", tmp_path / "m", "--no-sensitivity")
    ended = run("fit", tmp_path / "north.csv", tmp_path / "south.csv", *options, *config)
    assert ended.code == 0, ended.said


def test_help_states_the_number_of_models():
    assert "Default: 5 (1 for image models)" in " ".join(run("fit", "--help").out.replace("│", " ").split())
    for model in (*IMAGE_MODELS, NETWORK, "linear", "mlp"):
        of_model = resolve_defaults(UUClassifier((0.85, 0.15), model=model).get_params(), (90, 80))
        assert of_model["n_estimators"] == (1 if is_image_model(model) else 5)


def test_missing_torchvision_is_named(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    ended = run("fit", photos / "north", photos / "south", *OPTIONS, "--out", tmp_path / "m")
    assert ended.code == 2
    assert ended.said == [
        "error: networks of torchvision need torchvision; install it with pip install 'uulearn[vision]'."
    ]


def test_weights_option_is_a_model_parameter(photos, tmp_path, monkeypatch):
    built = []

    def download(network, name, weights, shape):
        built.append((name, weights.name, shape))

    monkeypatch.setattr("uulearn.models.torchvision_networks._copy_weights", download)
    ended = run("fit", photos / "north", photos / "south", *OPTIONS, "--weights", "DEFAULT", "--out", tmp_path / "m")
    assert ended.code == 0, ended.said
    assert set(built) == {("squeezenet1_1", "IMAGENET1K_V1", (3, 32, 32))}
    assert tomllib.loads((tmp_path / "m" / "config.toml").read_text())["classifier"]["model_params"] == {
        "weights": "DEFAULT"
    }
    n_built = len(built)
    assert run("predict", tmp_path / "m", photos / "new", "--out", tmp_path / "scored.csv").code == 0
    assert len(built) == n_built  # loading a model downloads nothing


def test_prefix_is_that_of_the_library():
    assert TORCHVISION == PREFIX
