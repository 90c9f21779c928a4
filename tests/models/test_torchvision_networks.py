"""Networks of torchvision: one score per image, supported sizes, downloaded weights, saved models."""

import hashlib
import math
import re
import shutil
import sys
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from safetensors.torch import save as save_tensors

from helpers.manifests import put, rewrite
from helpers.plain import plain_classifier
from uulearn import UUClassifier
from uulearn.estimator import learners
from uulearn.exceptions import ModelFormatError
from uulearn.models import build_model
from uulearn.models.torchvision_networks import MEAN, STD, import_models

models = pytest.importorskip("torchvision", reason="needs the extra vision").models

SMALL = "torchvision:squeezenet1_1"
# The networks are trained for one epoch only.
pytestmark = pytest.mark.filterwarnings("ignore::uulearn.exceptions.OneSidedPredictionsWarning")


@pytest.fixture(autouse=True)
def no_downloads(monkeypatch, tmp_path):
    """The cache of torch is empty, and downloads fail."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))

    def fail(url, *_, **__):
        raise URLError("no connection")

    monkeypatch.setattr("torch.hub.download_url_to_file", fail)


@pytest.fixture
def cache(monkeypatch):
    """Return a function that stores an object as if torch had downloaded it as the weights of a network."""

    def put_into_cache(name, content):
        folder = Path(torch.hub.get_dir(), "checkpoints")
        folder.mkdir(parents=True)
        torch.save(content, folder / "new")
        digest = hashlib.sha256((folder / "new").read_bytes()).hexdigest()
        file = (folder / "new").rename(folder / f"{name}-{digest[:8]}.pth")
        weights = models.get_model_weights(name)["DEFAULT"].value
        monkeypatch.setattr(weights, "url", f"https://download.pytorch.org/models/{file.name}")
        return file

    return put_into_cache


def random_weights(name):
    torch.manual_seed(1)
    return models.get_model(name, weights=None, **({"init_weights": True} if name == "googlenet" else {})).state_dict()


@pytest.fixture(scope="module")
def images():
    """Two sets of gray 32 × 32 images, as bytes: positive images are brighter."""
    rng = np.random.default_rng(0)
    sets = np.repeat([0, 1], 40)
    is_positive = rng.random(80) < np.where(sets == 0, 0.9, 0.1)
    X = rng.integers(0, 150, (80, 1, 32, 32)) + 100 * is_positive[:, None, None, None]
    return X.astype(np.uint8), sets


def classifier_of(model=SMALL, **changes):
    return plain_classifier(
        (0.9, 0.1), 0.5, model=model, epochs=1, batch_size=40, input_scale=1 / 255, ema=0.5, random_state=0,
        **changes,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ networks


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("resnet18", 32), ("vgg11_bn", 32), ("alexnet", 63), ("densenet121", 29), ("efficientnet_b0", 32),
        ("mobilenet_v3_small", 32), ("shufflenet_v2_x0_5", 32), ("squeezenet1_1", 32), ("swin_t", 32), ("vit_b_16", 64),
        ("maxvit_t", 224), ("convnext_tiny", 32), ("mnasnet0_5", 32), ("googlenet", 32), ("inception_v3", 75),
    ],
)  # fmt: skip
def test_networks_return_one_score_per_image_in_training(name, side):
    """GoogLeNet and Inception return tuples in training, unless their auxiliary outputs are turned off."""
    with torch.device("meta"):
        network = build_model(f"torchvision:{name}", (3, side, side)).train()
        assert network(torch.zeros(4, 3, side, side)).shape == (4, 1)


@pytest.mark.parametrize("side", [448, 672, 896])
def test_maxvit_accepts_large_images(side):
    """Its constructor needs the size of the images; the weights have the same shapes for all sizes."""
    with torch.device("meta"):
        small = build_model("torchvision:maxvit_t", (3, 224, 224)).state_dict()
        network = build_model("torchvision:maxvit_t", (3, side, side))
        assert network(torch.zeros(2, 3, side, side)).shape == (2, 1)
    weights = network.state_dict()
    assert {key: value.shape for key, value in weights.items()} == {key: value.shape for key, value in small.items()}


@pytest.mark.parametrize("name", ["regnet_x_400mf", "regnet_y_400mf"])
def test_regnet_has_the_same_layers_without_memory(name):
    """Its constructor computes the widths of the layers with tensors, which have no values on the device "meta"."""
    with torch.device("meta"):
        network = build_model(f"torchvision:{name}", (3, 32, 32), download=False).state_dict()
    assert {value.device.type for value in network.values()} == {"meta"}
    built = build_model(f"torchvision:{name}", (3, 32, 32)).state_dict()
    assert {key: value.shape for key, value in network.items()} == {key: value.shape for key, value in built.items()}
    assert {value.device.type for value in built.values()} == {"cpu"}


@pytest.mark.parametrize("name", ["regnet_y_128gf", "vit_h_14", "convnext_large", "wide_resnet101_2", "maxvit_t"])
def test_networks_are_described_without_memory(name):
    """The size of a network is known before memory is allocated, also for the buffers."""
    with torch.device("meta"):
        network = build_model(f"torchvision:{name}", (3, 224, 224), download=False)
    assert {value.device.type for value in (*network.parameters(), *network.buffers())} == {"meta"}


def test_gray_images_are_repeated_and_colors_are_normalized():
    network = build_model(SMALL, (1, 32, 32), seed=0).eval()
    gray = torch.rand(2, 1, 32, 32)
    wanted = network.network((gray.expand(-1, 3, -1, -1) - torch.tensor(MEAN)[:, None, None])
                             / torch.tensor(STD)[:, None, None])  # fmt: skip
    torch.testing.assert_close(network(gray), wanted)
    torch.testing.assert_close(network(gray.expand(-1, 3, -1, -1)), wanted)


def test_initial_weights_depend_on_the_seed_only():
    first, again, other = (build_model(SMALL, (3, 32, 32), seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["network.features.0.weight"], other["network.features.0.weight"])


@pytest.mark.parametrize(
    ("name", "shape", "text"),
    [
        ("inception_v3", (3, 32, 32), r"needs images of at least 75 × 75 pixels, got 32 × 32; resize"),
        ("alexnet", (1, 63, 40), r"needs images of at least 63 × 63 pixels, got 63 × 40; resize"),
        ("vit_b_16", (3, 40, 40), r"needs square images whose sides are a multiple of 16 pixels, got 40 × 40"),
        ("vit_b_32", (3, 64, 96), r"needs square images whose sides are a multiple of 32 pixels, got 64 × 96"),
        ("maxvit_t", (3, 64, 64), r"needs square images whose sides are a multiple of 224 pixels, got 64 × 64"),
        ("maxvit_t", (3, 224, 448), r"needs square images whose sides are a multiple of 224 pixels, got 224 × 448"),
        (
            "resnet18",
            (3, 16, 16),
            r"needs images of at least 17 × 17 pixels, got 16 × 16; resize .*, or use resnet32\.$",
        ),
        ("resnet18", (4, 32, 32), r"expects images with 1 or 3 channels, got 4"),
        ("resnet18", (64,), r"expects images, got rows of shape \(64,\)"),
    ],
)
def test_unsupported_images_are_refused_with_the_size(name, shape, text):
    with pytest.raises(ValueError, match=text):
        build_model(f"torchvision:{name}", shape)


@pytest.mark.parametrize(
    ("name", "params", "reason"),
    [
        ("vit_b_16", {"image_size": 31}, "image_size must be the size of the images, 32"),
        ("vit_b_16", {"image_size": 32.0}, ".+"),
        ("vgg11", {"dropout": 5}, "dropout probability has to be between 0 and 1, but got 5"),
        ("mobilenet_v2", {"round_nearest": 0}, ".*by zero"),
        ("resnet18", {"groups": 2}, "BasicBlock only supports groups=1 and base_width=64"),
        ("resnet18", {"shape": 9}, ".*unexpected keyword argument 'shape'"),
    ],
)
def test_unsupported_parameters_are_refused_without_the_arguments_of_uulearn(name, params, reason):
    model = f"torchvision:{name}"
    said = rf"^model {model} cannot be built with {re.escape(str(params))}: {reason}; correct model_params\.$"
    with pytest.raises(ValueError, match=said):
        build_model(model, (3, 32, 32), params)


def test_errors_of_torchvision_are_explained(monkeypatch):
    def fail(*_, **__):
        raise AssertionError("Input shape indivisible by patch size!")

    monkeypatch.setattr(models, "get_model", fail)
    with pytest.raises(
        ValueError, match=r"cannot be built with {}: Input shape indivisible by patch size; correct mod"
    ):
        build_model("torchvision:vit_b_16", (3, 32, 32))


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
@pytest.mark.parametrize("key", ["aux_logits", "transform_input"])
def test_auxiliary_outputs_cannot_be_turned_on(name, key, images):
    said = rf"^model_params\['{key}'\]=True is not supported, because .* 'torchvision:{name}' .*; remove it\.$"
    with pytest.raises(ValueError, match=said):
        classifier_of(f"torchvision:{name}", model_params={key: True}).fit(*images)


@pytest.mark.parametrize(
    ("name", "similar"),
    [("resnt18", "torchvision:resnet18"), ("ViT", "torchvision:resnet50"), ("efficientnetb0", "efficientnet_b0")],
)
def test_unknown_names_are_refused_with_similar_names(name, similar, images):
    with pytest.raises(ValueError, match=f"^torchvision has no classification network '{name}'; .*{similar}"):
        classifier_of(f"torchvision:{name}").fit(*images)


@pytest.mark.parametrize(
    "name",
    ["fasterrcnn_resnet50_fpn", "quantized_resnet18", "raft_small", "r3d_18", "get_model", "os.system", "", "resnet"],
)
def test_only_classification_networks_can_be_named(name):
    with pytest.raises(ValueError, match="torchvision has no classification network"):
        build_model(f"torchvision:{name}", (3, 64, 64))


def test_unscaled_pixels_are_refused(images):
    with pytest.raises(ValueError, match=r"expects pixel values from 0 to 1, got values up to 2\d\d; set training="):
        classifier_of().set_params(training__input_scale=1.0).fit(*images)


def test_missing_torchvision_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ImportError, match=r"install it with pip install 'uulearn\[vision\]'"):
        import_models()


def test_torchvision_of_another_build_says_how_to_replace_it(monkeypatch, tmp_path):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(
        "raise RuntimeError('operator torchvision::nms does not exist')"
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"cannot be loaded \(operator .* does not exist\); install torch and torchv"):
        import_models()


# ------------------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("name", ["squeezenet1_1", "googlenet", "mnasnet0_5"])
def test_weights_are_copied_except_for_the_output_layer(name, cache, monkeypatch):
    stored = random_weights(name)
    cache(name, stored)
    built = []
    monkeypatch.setattr(models, "get_model", lambda *a, get=models.get_model, **k: built.append(a) or get(*a, **k))
    network = build_model(f"torchvision:{name}", (3, 64, 64), {"weights": "DEFAULT"}, seed=0)
    own = network.network.state_dict()
    output = {key for key in own if not torch.equal(own[key], stored[key])}
    expected = {"squeezenet1_1": "classifier.1", "mnasnet0_5": "classifier.1", "googlenet": "fc"}[name]
    assert {key.rpartition(".")[0] for key in output} == {expected}
    assert built == [(name,)]  # no other network is built for the weights
    assert all(len(own[key]) == 1 for key in output)
    mean = (0.5, 0.5, 0.5) if name == "googlenet" else MEAN  # torchvision normalizes twice for GoogLeNet
    torch.testing.assert_close(network.mean.flatten(), torch.tensor(mean))
    assert network.train()(torch.rand(2, 3, 64, 64)).shape == (2, 1)


@pytest.mark.parametrize(
    ("name", "own", "side", "old", "counts"),
    [
        ("densenet121", r"(denselayer\d+\.(?:norm|relu|conv))([12])\.", 32, r"\1.\2.", True),
        ("vit_b_16", r"mlp\.([03])\.", 224, lambda found: f"mlp.linear_{int(found[1]) // 3 + 1}.", False),
        ("resnet18", "^", 32, "", True),
    ],
)
def test_weights_of_old_versions_are_copied(name, own, side, old, counts, cache):
    """The files that torchvision offers for these networks have other names, or no counters of batches."""
    stored = random_weights(name)
    names = {key: re.sub(own, old, key) for key in stored if not key.endswith("num_batches_tracked")}
    assert (len(names) < len(stored)) == counts
    cache(name, {names[key]: stored[key] for key in names})
    network = build_model(f"torchvision:{name}", (3, side, side), {"weights": "DEFAULT"}, seed=0).network.state_dict()
    other = {key for key in names if not torch.equal(network[key], stored[key])}
    assert {key.rpartition(".")[0] for key in other} == {
        {"densenet121": "classifier", "resnet18": "fc"}.get(name, "heads.head")
    }


class Evil:
    """An object whose pickle runs code."""

    def __reduce__(self):
        return pytest.fail, ("code of the file was run",)


def test_no_code_of_a_file_of_weights_is_run(cache):
    cache("squeezenet1_1", {"features.0.weight": Evil()})
    with pytest.raises(ValueError, match=r"\.pth is not a file of weights \(Weights only load failed.*; delete it to"):
        build_model(SMALL, (3, 64, 64), {"weights": "DEFAULT"})


def test_changed_copy_of_a_file_of_weights_is_refused(cache):
    file = cache("squeezenet1_1", random_weights("squeezenet1_1"))
    torch.save({"features.0.weight": torch.zeros(3)}, file)
    with pytest.raises(
        ValueError, match=rf"SHA-256 hash should start with {file.stem[-8:]} but is .*; delete the file"
    ):
        build_model(SMALL, (3, 64, 64), {"weights": "DEFAULT"})


def test_every_file_of_weights_has_a_hash_in_its_name():
    for name in models.list_models(module=models):
        for weights in models.get_model_weights(name):
            assert re.search(r"/[\w.-]+-[0-9a-f]{8,}\.pth$", weights.url)


def test_weights_normalize_like_torchvision(cache):
    """The whole path for GoogLeNet, whose torchvision version normalizes in the transform and in the network."""
    cache("googlenet", random_weights("googlenet"))
    weights = models.GoogLeNet_Weights.DEFAULT
    image = torch.rand(1, 3, 224, 224)
    reference = models.get_model("googlenet", weights=weights).eval()
    network = build_model("torchvision:googlenet", (3, 224, 224), {"weights": "DEFAULT"}).eval()
    network.network.fc = reference.fc
    mean, std = (
        torch.tensor(values)[:, None, None] for values in (weights.transforms().mean, weights.transforms().std)
    )
    torch.testing.assert_close(network(image), reference((image - mean) / std), rtol=1e-3, atol=1e-3)


def test_weights_that_do_not_fit_name_the_size(cache):
    cache("vit_b_32", random_weights("vit_b_32"))
    with pytest.raises(ValueError, match=r"do not fit to this network for images of 64 × 64 pixels; .* 224 × 224"):
        build_model("torchvision:vit_b_32", (3, 64, 64), {"weights": "DEFAULT"})


def test_failed_download_is_one_sentence():
    with pytest.raises(
        ValueError, match=r"^the weights IMAGENET1K_V1 of .* cannot be downloaded from https://.*no conn"
    ):
        build_model(SMALL, (3, 64, 64), {"weights": "DEFAULT"})


@pytest.mark.parametrize("weights", ["IMAGENET21K", 3, models.SqueezeNet1_1_Weights.DEFAULT])
def test_unknown_weights_are_refused_before_training(weights, images):
    with pytest.raises(
        ValueError, match="^weights of torchvision:squeezenet1_1 must be None or one of 'DEFAULT', 'IMAGENET1K_V1', "
    ):
        classifier_of(model_params={"weights": weights}).fit(*images)


# ---------------------------------------------------------------------------------------------------- in the estimator


@pytest.mark.parametrize(
    "changes", [{}, {"n_estimators": 2}, {"consistency": {"ramp": (0.0, 0.5)}, "augment": "shift"}]
)
def test_network_is_trained_saved_and_loaded(changes, images, tmp_path):
    X, sets = images
    classifier = classifier_of(**changes).fit(X, sets)
    scores = classifier.decision_function(X)
    assert np.isfinite(scores).all()
    assert np.ptp(scores) > 0
    classifier.save(tmp_path / "m")
    assert {path.suffix for path in (tmp_path / "m").iterdir()} == {".json", ".safetensors"}
    np.testing.assert_array_equal(UUClassifier.load(tmp_path / "m").decision_function(X), scores)


def test_mnasnet_is_saved_loaded_and_resumed(images, tmp_path):
    """It rejects weights without a version, and model directories and checkpoints contain only tensors."""
    X, sets = images
    whole, half = (classifier_of("torchvision:mnasnet0_5").set_params(epochs=epochs) for epochs in (2, 1))
    half.set_params(training__checkpoint_dir=tmp_path / "c", training__checkpoint_every=1).fit(X, sets)
    resumed = half.set_params(epochs=2).fit(X, sets)
    assert resumed.history_.resumed_at == [1]
    scores = whole.fit(X, sets).decision_function(X)
    np.testing.assert_array_equal(resumed.decision_function(X), scores)
    resumed.save(tmp_path / "m")
    np.testing.assert_array_equal(UUClassifier.load(tmp_path / "m").decision_function(X), scores)


def test_networks_are_not_trained_in_a_batch_of_models(images):
    """On a GPU, the models of an ensemble are then trained one after the other, as on a CPU."""
    X, sets = images
    plan = classifier_of(n_estimators=2).plan_sets(X[sets == 0], X[sets == 1])
    assert not plan.learner.can_be_batched(plan.data)


def test_loading_never_downloads_weights(images, tmp_path, monkeypatch, cache):
    X, sets = images
    cache("squeezenet1_1", random_weights("squeezenet1_1"))
    classifier = classifier_of(model_params={"weights": "DEFAULT"}).fit(X, sets)
    classifier.save(tmp_path / "m")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "empty"))
    loaded = UUClassifier.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.decision_function(X), classifier.decision_function(X))
    assert not (tmp_path / "empty").exists()
    with pytest.raises(ValueError, match="cannot be downloaded"):  # a new fit uses the weights again
        loaded.fit(X, sets)


@pytest.fixture(scope="module")
def saved(images, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "m"
    classifier_of("torchvision:mobilenet_v2").fit(*images).save(folder)
    return folder


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (put("parameters", "model", "torchvision:os.system"), "has no classification network 'os.system'"),
        (put("parameters", "model", "torchvision:fasterrcnn_resnet50_fpn"), "has no classification network"),
        (put("parameters", "model", "torchvision:resnet18"), "the stored weights do not match the model"),
        (put("parameters", "model_params", {"dict": {"width_mult": 1e9}}), "cannot be loaded|do not match"),
        (put("parameters", "model_params", {"dict": {"width_mult": math.inf}}), "cannot be loaded"),
        (put("parameters", "model_params", {"dict": {"width_mult": math.nan}}), "cannot be loaded"),
        (put("parameters", "model_params", {"dict": {"round_nearest": 0}}), "cannot be loaded"),
        (
            put("parameters", "model_params",
                {"dict": {"inverted_residual_setting": {"list": [{"list": [1, 16, 10**9, 1]}]}}}),
            r"model_params\['inverted_residual_setting'\]=.* is not supported",
        ),
        (put("parameters", "model_params", {"dict": {"num_classes": 10**9}}), "cannot be built with"),
        (
            lambda manifest: manifest["parameters"].update(
                {"model": "torchvision:vit_b_16", "model_params": {"dict": {"image_size": 31}}}
            ),
            r"model torchvision:vit_b_16 cannot be built with {'image_size': 31}: .*; correct model_params\); save it",
        ),
        (put("parameters", "model_params", {"dict": {"weights": "file:///etc/passwd"}}), "weights of .* must be"),
    ],
)  # fmt: skip
def test_hostile_manifests_are_refused(change, text, saved, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(saved, folder)
    rewrite(folder, change)
    with pytest.raises(ModelFormatError, match=text):
        UUClassifier.load(folder)


def saved_with_tensors(folder, model, n_models, names):
    """Change a model directory: another network, a number of models, and weights of these names with one number."""
    tensors = {name: torch.zeros(1) for name in names} | {"scales": torch.ones(n_models)}
    content = save_tensors(tensors)
    name = f"weights-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"
    (folder / name).write_bytes(content)

    def change(manifest):
        entry = {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        manifest["files"]["weights"] = entry
        manifest["parameters"] |= {"model": model, "model_params": None}
        manifest["learner"]["config"] = {"n_models": n_models, "precision": "float32"}

    rewrite(folder, change)


@pytest.mark.parametrize("n_models", [2, 40])
@pytest.mark.parametrize("complete", [False, True])
def test_ensemble_without_its_weights_is_refused_before_it_is_built(n_models, complete, saved, tmp_path, monkeypatch):
    """A small file that describes many large networks must not use memory, even if it names all weights."""
    folder, model = tmp_path / "m", "torchvision:regnet_y_400mf"
    shutil.copytree(saved, folder)
    with torch.device("meta"):
        own = build_model(model, (1, 32, 32), download=False).state_dict()
    names = (
        [f"models.{number}.{name}" for number in range(n_models) for name in own] if complete else map(str, range(99))
    )
    saved_with_tensors(folder, model, n_models, names)
    built = []
    monkeypatch.setattr(learners, "Ensemble", lambda *_: pytest.fail("the copies were built"))
    monkeypatch.setattr(learners, "build_model", lambda *a, **k: built.append(build_model(*a, **k)) or built[-1])
    with pytest.raises(ModelFormatError, match="the stored weights do not match the model"):
        UUClassifier.load(folder)
    assert len(built) == 1
    assert {value.device.type for value in built[0].state_dict().values()} == {"meta"}
