"""Augmentation: its effect on images, the rows it applies to, and reproducible and resumable runs."""

import functools
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import map_coordinates
from sklearn.base import clone
from torch import nn

from helpers.plain import plain_classifier
from uulearn import UUClassifier, UURisk
from uulearn.data import DenseRows, TwoSets
from uulearn.data.augmentation import (
    AUGMENTATIONS,
    add_noise,
    affine,
    build_augmentation,
    build_strong_view,
    color,
    cutout,
    flip,
    get_augmentation,
    shift,
    swap_cells,
)
from uulearn.exceptions import CheckpointError, ModelFormatError
from uulearn.selection import UUClassifierCV
from uulearn.training import RunOptions, Trainer
from uulearn.training.batched import BatchedTrainer, Run
from uulearn.training.batched.out_of_fold import can_be_batched

half_trained = pytest.mark.filterwarnings("ignore::uulearn.exceptions.OneSidedPredictionsWarning")
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5))

# ----------------------------------------------------------------------------------------------------- effect on images


def moved(image, down, right):
    """The image shifted pixel by pixel, as a reference."""
    out = np.zeros_like(image)
    channels, height, width = image.shape
    for c, y, x in itertools.product(range(channels), range(height), range(width)):
        if 0 <= y - down < height and 0 <= x - right < width:
            out[c, y, x] = image[c, y - down, x - right]
    return out


def mirrored(image):
    out = np.zeros_like(image)
    width = image.shape[2]
    for x in range(width):
        out[:, :, width - 1 - x] = image[:, :, x]
    return out


def places(image, pixels):
    steps = range(-pixels, pixels + 1)
    return [moved(image, down, right) for down, right in itertools.product(steps, steps)]


def images(n, shape, seed=0):
    """Images with distinct values, none of them zero."""
    values = torch.randperm(n * int(np.prod(shape)), generator=torch.Generator().manual_seed(seed))
    return (values + 1.0).reshape(n, *shape)


@given(shape=SHAPES, n=st.integers(1, 6), seed=st.integers(0, 99))
def test_each_image_is_flipped_or_unchanged(shape, n, seed):
    x = images(n, shape)
    before = x.clone()
    torch.manual_seed(seed)
    for image, out in zip(x.numpy(), flip(x).numpy(), strict=True):
        assert any(np.array_equal(out, allowed) for allowed in (image, mirrored(image)))
    assert torch.equal(x, before)


@given(shape=SHAPES, n=st.integers(1, 6), pixels=st.integers(0, 6), seed=st.integers(0, 99))
def test_each_image_is_shifted_by_an_allowed_amount(shape, n, pixels, seed):
    x = images(n, shape)
    before = x.clone()
    torch.manual_seed(seed)
    for image, out in zip(x.numpy(), shift(x, pixels).numpy(), strict=True):
        assert any(np.array_equal(out, allowed) for allowed in places(image, pixels))
    assert torch.equal(x, before)


def counts(out, allowed):
    """The number of occurrences of each allowed result; there are no other results."""
    return [int((out == torch.from_numpy(image)).flatten(1).all(1).sum()) for image in allowed]


def test_half_of_the_images_are_flipped():
    image = images(1, (2, 3, 3))
    left, turned = counts(flip(image.expand(4000, 2, 3, 3)), [image[0].numpy(), mirrored(image[0].numpy())])
    assert left + turned == 4000
    assert abs(left - 2000) < 4 * np.sqrt(1000)


def test_all_shifts_are_equally_likely():
    image = images(1, (2, 4, 4))
    found = counts(shift(image.expand(10_000, 2, 4, 4), 2), places(image[0].numpy(), 2))
    assert sum(found) == 10_000
    assert len(found) == 25
    chi_square = sum((count - 400) ** 2 / 400 for count in found)
    assert chi_square < 51  # the 99.9% quantile at 24 degrees of freedom


def test_default_shift_is_up_to_four_pixels():
    image = images(1, (1, 9, 9))
    found = counts(shift(image.expand(3000, 1, 9, 9)), places(image[0].numpy(), 4))
    assert sum(found) == 3000
    assert min(found) > 0


@given(shape=SHAPES, side=st.sampled_from([0.2, 0.5, 1.0]), seed=st.integers(0, 99))
def test_cutout_hides_a_part_of_a_square(shape, side, seed):
    x = images(6, shape)
    torch.manual_seed(seed)
    out = cutout(x, side)
    length = max(1, round(side * min(shape[1:])))
    for image, changed in zip(x, out, strict=True):
        hidden = (changed == 0).all(0)
        assert torch.equal(changed[:, ~hidden], image[:, ~hidden])
        down, right = hidden.any(1).nonzero().flatten(), hidden.any(0).nonzero().flatten()
        assert 1 <= len(down) <= length
        assert 1 <= len(right) <= length
        assert hidden[down[0] : down[-1] + 1, right[0] : right[-1] + 1].all()


def test_cutout_can_hide_every_pixel():
    share_hidden = (cutout(torch.ones(4000, 1, 6, 6)) == 0).double().mean(0)[0]
    assert share_hidden.min() > 0.05  # in the corners, where most squares are cut off
    assert share_hidden.max() < 0.4


@given(shape=SHAPES, strength=st.floats(0, 0.9), seed=st.integers(0, 99))
def test_color_changes_brightness_contrast_and_saturation(shape, strength, seed):
    x = images(4, shape) / 100
    torch.manual_seed(seed)
    out = color(x, strength)
    torch.manual_seed(seed)
    factors = 1 + strength * (2 * torch.rand(3, 4) - 1)
    for image, found, (brightness, contrast, saturation) in zip(x, out, factors.T.tolist(), strict=True):
        assert all(1 - strength <= factor <= 1 + strength for factor in (brightness, contrast, saturation))
        expected = image * brightness
        expected = expected.mean() + contrast * (expected - expected.mean())
        gray = expected.mean(0, keepdim=True)
        torch.testing.assert_close(found, gray + saturation * (expected - gray) if shape[0] > 1 else expected)


@given(
    sets=st.lists(st.integers(0, 1), min_size=1, max_size=12),
    shape=st.sampled_from([(3,), (2, 2)]),
    probability=st.sampled_from([0.1, 0.5, 1.0]),
    seed=st.integers(0, 99),
)
def test_swapped_cells_come_from_other_rows_of_the_same_set(sets, shape, probability, seed):
    sets, x = torch.tensor(sets), images(len(sets), shape)
    torch.manual_seed(seed)
    out = swap_cells(x, sets, probability)
    for row, which in enumerate(sets):
        others = x[(sets == which) & (torch.arange(len(sets)) != row)]
        for place in itertools.product(*map(range, shape)):
            allowed = {x[row][place].item()} if probability < 1 or not len(others) else set()
            assert out[row][place].item() in allowed | set(others[(slice(None), *place)].tolist())


def test_all_other_rows_are_equally_likely():
    sets, x = torch.tensor([0, 1, 0, 1, 0, 1, 1]), torch.arange(7.0)[:, None].expand(7, 20_000)
    out = swap_cells(x, sets, 0.3)
    for row, which in enumerate(sets):
        found = torch.bincount(out[row].long(), minlength=7) / 20_000
        n_others = int((sets == which).sum()) - 1
        expected = torch.where(sets == which, 0.3 / n_others, 0.0)
        expected[row] = 0.7
        torch.testing.assert_close(found, expected, rtol=0, atol=0.015)


def test_noise_has_the_scale_of_the_column():
    x = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([0.0, 1.0, 50.0])
    torch.testing.assert_close((add_noise(x, 0.2) - x).std(0), 0.2 * x.std(0), rtol=0.03, atol=0)
    assert add_noise(torch.ones(1, 2)).tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("augment", ["shift", "flip+cutout", lambda x: x.flip(2)])
def test_flattened_images_are_augmented_like_images(augment):
    x = images(20, (2, 4, 3))
    torch.manual_seed(0)
    expected = build_augmentation(augment, x[:2])(x)
    torch.manual_seed(0)
    found = build_augmentation(augment, x[:2].flatten(1), (2, 4, 3))(x.flatten(1))
    assert torch.equal(found, expected.flatten(1))


@pytest.mark.parametrize(
    ("strong", "weak", "shape", "image_shape", "expected"),
    [
        ("auto", "shift", (3, 8, 8), None, ["shift", "color", "cutout"]),
        ("auto", None, (1, 8, 8), None, ["cutout"]),
        ("auto", "flip", (192,), (3, 8, 8), ["flip", "color", "cutout"]),
        ("auto", None, (5,), None, ["swap"]),
        ("auto", None, (5, 2), None, ["swap"]),
        ("shift+swap", "flip", (1, 8, 8), None, ["shift", "swap"]),
        ("swap+noise", None, (5,), None, ["swap", "noise"]),
        (torch.neg, None, (5,), None, ["neg"]),
    ],
)
def test_strong_view_applies_its_parts_in_order(strong, weak, shape, image_shape, expected):
    x, sets = images(12, shape), torch.arange(12) % 2
    view = build_strong_view(strong, weak, x[:2], image_shape, swap=0.4, noise=0.3)
    known = AUGMENTATIONS | {"neg": torch.neg, "noise": functools.partial(add_noise, scale=0.3)}
    torch.manual_seed(0)
    found = view(x, sets)
    torch.manual_seed(0)
    for name in expected:
        if name == "swap":
            x = swap_cells(x, sets, 0.4)
        elif image_shape is not None:
            x = known[name](x.view(12, *image_shape)).flatten(1)
        else:
            x = known[name](x)
    assert torch.equal(found, x)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: build_augmentation("flip", torch.zeros(2, 10), (1, 3, 3)),
            r"expects rows of 9 numbers, got .*\(10,\)",
        ),
        (lambda: build_augmentation("flip", torch.zeros(2, 1, 3, 3), (1, 3, 3)), "image_shape=None if the rows are"),
        (
            lambda: build_strong_view("cutout", None, torch.zeros(2, 9)),
            "^strong='cutout' expects images, .* set image_",
        ),
        (lambda: build_strong_view(lambda x: x[:1], None, torch.zeros(2, 9)), "^strong=.*<lambda> must return a batch"),
    ],
)
def test_rejects_rows_of_another_shape(call, said):
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize("name", ["flip", "shift", "shift+flip", "color", "cutout", "affine:0.2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_preserves_type_shape_and_memory_format(name, dtype):
    x = images(7, (3, 5, 6)).to(dtype)
    for memory_format in (torch.contiguous_format, torch.channels_last):
        out = get_augmentation(name)(x.contiguous(memory_format=memory_format))
        assert (out.dtype, out.shape) == (dtype, x.shape)
        assert out.is_contiguous(memory_format=memory_format)
        torch.manual_seed(5)
        plain = get_augmentation(name)(x)
        torch.manual_seed(5)
        again = get_augmentation(name)(x.contiguous(memory_format=memory_format))
        if name in ("color", "affine:0.2"):  # sums over pixels are rounded
            torch.testing.assert_close(again, plain)
        else:
            assert torch.equal(again, plain)


def test_values_are_copied_exactly():
    """No value is multiplied or interpolated, including tiny values, infinities and NaN."""
    values = torch.tensor([1e-44, -0.0, float("inf"), float("nan"), 3e38, 1 / 3])
    x = values.reshape(1, 1, 1, 6).expand(300, 1, 1, 6)
    bits = {*values.view(torch.int32).tolist(), 0}
    assert set(get_augmentation("shift+flip")(x).contiguous().view(torch.int32).unique().tolist()) == bits


def test_affine_equals_interpolation_by_scipy():
    """Each image is sampled at the positions that the random matrix assigns to its pixels."""
    x = images(6, (2, 9, 7)).double()
    torch.manual_seed(3)
    found = affine(x, 0.3)
    torch.manual_seed(3)
    matrices = torch.eye(2) + 0.3 * (2 * torch.rand(6, 2, 2) - 1)
    height, width = np.meshgrid(np.arange(9), np.arange(7), indexing="ij")
    across, down = (2 * width + 1) / 7 - 1, (2 * height + 1) / 9 - 1  # pixel centers in [-1, 1]
    for image, own, matrix in zip(x.numpy(), found.numpy(), matrices.numpy(), strict=True):
        right, below = (row[0] * across + row[1] * down for row in matrix)
        positions = [((below + 1) * 9 - 1) / 2, ((right + 1) * 7 - 1) / 2]
        for channel, expected in zip(own, image, strict=True):
            sampled = map_coordinates(expected, positions, order=1, mode="grid-constant")
            np.testing.assert_allclose(channel, sampled, rtol=1e-5, atol=1e-3)


def test_strength_after_the_name_is_used():
    x = images(40, (1, 8, 8))
    for name, expected in [("shift:2", lambda: shift(x, 2)), ("cutout:0.25", lambda: cutout(x, 0.25)),
                           ("color:0.1", lambda: color(x, 0.1)), ("affine:0.3", lambda: affine(x, 0.3))]:  # fmt: skip
        torch.manual_seed(1)
        found = get_augmentation(name)(x)
        torch.manual_seed(1)
        assert torch.equal(found, expected()), name


@pytest.mark.parametrize("pixels", [-1, 1.5, True, "2"])
def test_rejects_invalid_pixels(pixels):
    with pytest.raises(ValueError, match=rf"^pixels must be an integer of at least 0, got {pixels!r}\.$"):
        shift(torch.zeros(2, 1, 4, 4), pixels)


# --------------------------------------------------------------------------------------------------------- names


def test_joined_names_are_applied_left_to_right():
    x = images(50, (2, 5, 5))
    for name in ("shift+flip", "flip+shift"):
        torch.manual_seed(1)
        found = get_augmentation(name)(x)
        torch.manual_seed(1)
        expected = x
        for part in name.split("+"):
            expected = AUGMENTATIONS[part](expected)
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "name",
    [
        "rotate",
        "",
        "flip+",
        "+shift",
        "flip shift",
        "shift+rotate",
        "flip:1",
        "shift:",
        "shift:0.5",
        "cutout:1",
        "color:x",
        3,
    ],
)
def test_rejects_unknown_names(name):
    with pytest.raises(
        ValueError,
        match=r"^augment must be one of 'flip', 'shift', 'affine', 'color', 'cutout', with a strength as in 'shift:2'",
    ):
        get_augmentation(name)


# ---------------------------------------------------------------------------------------------- rows that are augmented


class Flat(nn.Module):
    """A linear model of images that flattens with ``view``, which works for one memory layout only."""

    def __init__(self, shape=(2, 4, 4)):
        super().__init__()
        self.output = nn.Linear(int(np.prod(shape)), 1)

    def forward(self, x):
        return self.output(x.view(len(x), -1))


def pictures(n=40, seed=0):
    """Images as uint8, brighter on the left in set 0, and the set of each."""
    rng = np.random.default_rng(seed)
    sets = np.arange(n) % 2
    X = rng.integers(0, 200, size=(n, 2, 4, 4))
    X[sets == 0, :, :, :2] += 55
    return X.astype(np.uint8), sets


def trainer(augment, **changes):
    X, sets = (torch.from_numpy(part) for part in pictures())
    settings = {"epochs": 3, "batch_size": 16, "lr": 0.01, "ema": None, "input_scale": 1 / 255, "progress": False}
    held_out = {
        "validation": (DenseRows(X[:10]), sets[:10]),
        "test": (DenseRows(X[5:25]), sets[5:25]),
    }
    torch.manual_seed(0)
    return Trainer(
        Flat(),
        TwoSets.from_membership(DenseRows(X), sets),
        UURisk((0.8, 0.2), 0.5),
        RunOptions(**settings | {"augment": augment} | changes),
        **held_out,
    )


def records(history):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in history]


def weights(run):
    return run.final_model.state_dict()["output.weight"]


def test_gets_scaled_batches_and_its_result_is_trained_on():
    seen = []

    def halved(x):
        seen.append(x.clone())
        return x * 0.5

    run = trainer(halved, epochs=1)
    assert len(seen) == 1  # tested on two rows before training
    run.run()
    batches = seen[1:]
    X = torch.from_numpy(pictures()[0])
    assert len(batches) == run.plan.n_batches > 1
    assert sorted(map(len, batches)) == sorted(sum(run.plan.counts(i)) for i in range(len(batches)))
    assert torch.equal(torch.cat(batches).flatten(1).unique(dim=0), (X.float() * (1 / 255)).flatten(1).unique(dim=0))
    plain = trainer(None, epochs=1, input_scale=0.5 / 255)
    plain.run()
    torch.testing.assert_close(weights(run), weights(plain))


def test_validation_rows_are_not_augmented():
    """With constant weights and all training images set to zero, the validation metrics do not change."""
    still = {"lr": 1e-30, "epochs": 2}
    dark, plain = trainer(torch.zeros_like, **still).run(), trainer(None, **still).run()
    evaluated = [name for name in plain[0] if name.startswith(("validation_", "test_"))]
    assert len(evaluated) == 7
    for one, other in zip(dark, plain, strict=True):
        assert [one[name] for name in evaluated] == [other[name] for name in evaluated]
        assert abs(one["objective"] - other["objective"]) > 1e-3


@half_trained
def test_predicted_rows_are_not_augmented():
    X, sets = pictures()
    classifier = plain_classifier(
        (0.8, 0.2), model=Flat, epochs=3, lr=0.05, input_scale=1 / 255, augment=lambda x: x * 0, random_state=0
    )
    classifier.fit(X, sets)
    with torch.no_grad():
        expected = classifier.model_(torch.from_numpy(X).float() * (1 / 255)).flatten()
    np.testing.assert_allclose(classifier.decision_function(X), expected, rtol=1e-5)
    assert len(np.unique(classifier.decision_function(X))) == len(X)


def test_runs_without_gradient_and_accepts_any_memory_layout():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return (x * self.factor).transpose(2, 3)

    turned = Turned()
    run = trainer(turned)
    run.run()
    assert turned.factor.grad is None
    by_hand = trainer(lambda x: x.transpose(2, 3).contiguous())
    by_hand.run()
    assert torch.equal(weights(run), weights(by_hand))


def test_batch_may_be_changed_in_place():
    run, other = trainer(lambda x: x.mul_(0.5)), trainer(lambda x: x * 0.5)
    assert records(run.run()) == records(other.run())


def test_flips_teach_the_mirrored_side():
    X, sets = pictures(400)
    arguments = {"model": Flat, "epochs": 100, "lr": 0.02, "ema": None, "input_scale": 1 / 255, "random_state": 0}
    sides = []
    for augment in (None, "flip"):
        classifier = plain_classifier((0.9, 0.1), augment=augment, **arguments).fit(X, sets)
        weight = classifier.model_.state_dict()["output.weight"].reshape(2, 4, 4)
        sides.append((weight[:, :, :2].mean().item(), weight[:, :, 2:].mean().item()))
    (left, right), (left_flipped, right_flipped) = sides
    assert left > 0.5 > -0.5 > right  # bright on the left, against the right
    assert left_flipped + right_flipped > 0.1
    assert abs(left_flipped - right_flipped) < 0.1 * (left - right)


# ------------------------------------------------------------------------------------ reproduced, resumed, rejected


def test_draws_depend_on_the_seed_and_preserve_the_global_generator():
    state = torch.get_rng_state()
    first = trainer("shift+flip")
    torch.set_rng_state(state)
    again, other = trainer("shift+flip"), trainer("shift+flip", seed=1)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    runs = [records(run.run()) for run in (first, again, other)]
    assert torch.equal(torch.get_rng_state(), before)
    assert runs[0] == runs[1] != runs[2]
    assert torch.equal(weights(first), weights(again))
    assert runs[0] != records(trainer(None).run())


def test_build_preserves_the_global_generator():
    before = torch.get_rng_state()
    build_augmentation("shift+flip", torch.zeros(2, 1, 4, 4))
    assert torch.equal(torch.get_rng_state(), before)


def test_every_epoch_has_new_draws():
    """With constant weights and one batch per epoch, the objective depends only on the draws."""
    still = {"lr": 1e-30, "epochs": 6, "batch_size": 40}
    assert len(set(trainer("shift", **still).run().column("objective"))) == 6
    assert np.ptp(trainer(None, **still).run().column("objective")) < 1e-6


@pytest.mark.parametrize("augment", ["shift+flip", functools.partial(shift, pixels=1)])
def test_resumed_run_equals_uninterrupted_run(augment, tmp_path):
    whole = trainer(augment, epochs=6)
    whole.run()
    trainer(augment, epochs=2, checkpoint_dir=tmp_path).run()
    resumed = trainer(augment, epochs=6, checkpoint_dir=tmp_path)
    resumed.run()
    assert resumed.history.resumed_at == [2]
    assert records(resumed.history) == records(whole.history)
    assert torch.equal(weights(resumed), weights(whole))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (None, "flip"),
        ("shift+flip", "flip+shift"),
        (lambda x: x * 2, lambda x: x + 2),
        (functools.partial(shift, pixels=1), functools.partial(shift, pixels=2)),
    ],
)
def test_rejects_checkpoint_with_another_augmentation(first, second, tmp_path):
    trainer(first, epochs=1, checkpoint_dir=tmp_path).run()
    with pytest.raises(CheckpointError, match=r"another run \(different: augment\)"):
        trainer(second, epochs=1, checkpoint_dir=tmp_path).run()


@pytest.mark.parametrize("augment", ["flip", "shift+flip", lambda x: x])
@pytest.mark.parametrize("shape", [(32,), (8, 4)])
def test_rejects_rows_that_are_not_images(augment, shape, monkeypatch):
    X, sets = pictures()
    monkeypatch.setattr(
        "uulearn.data.separability.measure_separability", lambda *_: pytest.fail("training has started")
    )
    classifier = plain_classifier((0.8, 0.2), model=lambda: Flat(), epochs=1, augment=augment, random_state=0)
    name = repr(augment) if isinstance(augment, str) else ".*<lambda>"
    said = rf"^augment={name.replace('+', '[+]')} expects images, got rows of shape \({shape[0]},.*set augment=None\.$"
    with pytest.raises(ValueError, match=said):
        classifier.fit(X.reshape(-1, *shape), sets)
    assert not hasattr(classifier, "model_")


@pytest.mark.parametrize(
    ("augment", "gave"),
    [
        (lambda x: x[..., 1:], r"\(2, 2, 4, 3\) of torch.float32 on cpu"),
        (lambda x: x[:1], r"\(1, 2, 4, 4\) of torch.float32 on cpu"),
        (lambda x: x.double(), r"\(2, 2, 4, 4\) of torch.float64 on cpu"),
        (lambda x: x.numpy(), "a ndarray"),
        (lambda x: None, "a NoneType"),
    ],
)
def test_rejects_invalid_function_before_training(augment, gave, monkeypatch):
    X, sets = pictures()
    monkeypatch.setattr(
        "uulearn.data.separability.measure_separability", lambda *_: pytest.fail("training has started")
    )
    said = rf"^augment=.*<lambda> must return a batch like its input, .*, but returned {gave}; .*\.$"
    with pytest.raises(ValueError, match=said):
        plain_classifier((0.8, 0.2), model=Flat, augment=augment, random_state=0).fit(X, sets)
    with pytest.raises(ValueError, match=said):
        trainer(augment)


def test_rejects_invalid_batch_during_training():
    with pytest.raises(ValueError, match=r"\(1[0-9], 2, 4, 4\) of torch.float32 on cpu, but returned \(5, 2, 4, 4\)"):
        trainer(lambda x: x[:5]).run()


# ------------------------------------------------------------------------------- ensembles, searches, model directories


def images_of_two_sets():
    X, sets = pictures(60)
    arguments = {"model": Flat, "epochs": 3, "lr": 0.02, "input_scale": 1 / 255, "random_state": 0}
    return X, sets, arguments


@half_trained
def test_ensemble_is_trained_with_augmentation():
    X, sets, arguments = images_of_two_sets()
    fitted = [
        plain_classifier((0.8, 0.2), n_estimators=3, augment=augment, **arguments).fit(X, sets)
        for augment in ("shift+flip", "shift+flip", None)
    ]
    scores = [one.decision_function(X) for one in fitted]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert np.abs(scores[0] - scores[2]).max() > 1e-4
    assert len(fitted[0].history_.models) == 3


def test_batched_training_rejects_augmentation():
    rows = DenseRows(torch.zeros(4, 3))
    data = TwoSets((rows, rows))
    for augment in ("flip", lambda x: x):
        assert can_be_batched("mlp", data, RunOptions())
        assert not can_be_batched("mlp", data, RunOptions(augment=augment))
        with pytest.raises(
            ValueError, match=r"^batched training does not support augment; train these runs one by one .*\.$"
        ):
            BatchedTrainer(
                torch.zeros(4, 3), [Run(([0, 1], [2, 3]), (0.8, 0.2), 0.5)], options=RunOptions(augment=augment)
            )


def test_search_compares_augmentations():
    X, sets, arguments = images_of_two_sets()
    base = plain_classifier((0.8, 0.2), n_estimators=2, **arguments | {"epochs": 60})
    search = UUClassifierCV(base, {"training__augment": [torch.zeros_like, None, "flip"]}).fit(X, sets)
    assert search.best_params_ == {"training__augment": None}  # the side matters here
    assert search.best_estimator_.training.augment is None
    assert len({one.evaluation.accuracy.value for one in search.candidates_}) == 3


def test_search_rejects_invalid_augmentation_before_training(monkeypatch):
    X, sets, arguments = images_of_two_sets()
    monkeypatch.setattr("uulearn.training.loop.Trainer.run", lambda *_, **__: pytest.fail("training has started"))
    search = UUClassifierCV(plain_classifier((0.8, 0.2), **arguments), {"training__augment": [None, lambda x: x[:1]]})
    with pytest.raises(ValueError, match="must return a batch like its input"):
        search.fit(X, sets)


@half_trained
def test_name_is_saved_and_loaded(tmp_path):
    X, sets, arguments = images_of_two_sets()
    del arguments["model"]
    arguments |= {"model": "allconvnet", "model_params": {"momentum": 0.5}, "epochs": 1, "ema": None}
    classifier = plain_classifier((0.8, 0.2), augment="shift+flip", **arguments).fit(X, sets)
    assert clone(classifier).training.augment == "shift+flip"
    classifier.save(tmp_path)
    loaded = UUClassifier.load(tmp_path)
    assert loaded.training.augment == "shift+flip"
    np.testing.assert_array_equal(loaded.decision_function(X), classifier.decision_function(X))


@half_trained
def test_function_is_not_saved_and_must_be_passed_again(tmp_path):
    X, sets, arguments = images_of_two_sets()
    gently = functools.partial(shift, pixels=1)
    classifier = plain_classifier((0.8, 0.2), augment=gently, **arguments).fit(X, sets)
    classifier.save(tmp_path)
    with pytest.raises(
        ModelFormatError,
        match=r"trained with training__augment=partial, which is code .* training__augment=\.\.\.\)\.$",
    ):
        UUClassifier.load(tmp_path, model=Flat)
    for again in (gently, "flip", None):
        loaded = UUClassifier.load(tmp_path, model=Flat, training__augment=again)
        assert loaded.training.augment is again
        np.testing.assert_array_equal(loaded.decision_function(X), classifier.decision_function(X))


# -------------------------------------------------------------------------------------------- transforms of torchvision


def transforms():
    return pytest.importorskip("torchvision.transforms.v2", reason="needs the extra vision")


@pytest.mark.parametrize("kind", ["v2", "composed", "sequential", "v1", "subclass"])
def test_transforms_of_torchvision_draw_for_each_image(kind):
    v2 = transforms()
    old = pytest.importorskip("torchvision.transforms")

    class Own(v2.RandomHorizontalFlip):
        pass

    transform = {
        "v2": v2.RandomHorizontalFlip(),
        "composed": v2.Compose([v2.RandomCrop(2), v2.RandomHorizontalFlip()]),
        "sequential": nn.Sequential(v2.RandomHorizontalFlip(), nn.Identity()),
        "v1": old.Compose([old.RandomHorizontalFlip()]),
        "subclass": Own(),
    }[kind]
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).expand(60, 1, 2, 2)
    found = build_augmentation(transform, x)(x)[:, 0, 0].unique(dim=0)
    assert found.tolist() == [[1.0, 2.0], [2.0, 1.0]]


def test_transforms_of_torchvision_are_refused_if_they_do_not_fit():
    v2, x = transforms(), torch.zeros(2, 3, 8, 8)
    with pytest.raises(ValueError, match="^augment=RandomResizedCrop must return a batch like its input"):
        build_augmentation(v2.RandomResizedCrop(4), x)
    for transform in (v2.MixUp(num_classes=2), v2.Normalize([0.5] * 4, [0.5] * 4), v2.ElasticTransform()):
        said = (
            f"^{type(transform).__name__} cannot augment single images .*, without labels: .*[^.]; remove it from aug"
        )
        with pytest.raises(ValueError, match=said):
            build_augmentation(transform, x)


@pytest.mark.parametrize("name", ["RandomChoice", "RandomOrder"])
def test_transforms_that_draw_from_python_are_rejected(name):
    """With these transforms, the seed would not determine the model."""
    v2, old = transforms(), pytest.importorskip("torchvision.transforms")
    flips = [old.RandomHorizontalFlip(0.3), old.RandomVerticalFlip(0.3)]
    drawing = getattr(old, name)(flips)
    for transform in (
        drawing,
        type("Mine", (getattr(old, name),), {})(flips),
        old.Compose([flips[0], drawing]),
        old.Compose([old.Compose([drawing])]),
        old.RandomApply([drawing]),
        v2.Compose([v2.RandomHorizontalFlip(), drawing]),
        v2.RandomApply([v2.RandomChoice([v2.Identity(), drawing])]),
        nn.Sequential(v2.Compose([drawing])),
    ):
        with pytest.raises(ValueError, match=rf"^({name}|Mine) of torchvision.transforms draws .*; use the .*\.v2\.$"):
            build_augmentation(transform, torch.rand(2, 3, 4, 4))
    x = torch.rand(8, 3, 4, 4)
    allowed = v2.Compose([getattr(v2, name)([v2.RandomHorizontalFlip(), v2.RandomVerticalFlip()])])
    augment = build_augmentation(old.Compose([allowed, *flips]), x)
    first, second = (torch.manual_seed(0) and augment(x) for _ in range(2))
    assert torch.equal(first, second)


def test_resumed_run_with_transforms_equals_uninterrupted_run(tmp_path):
    """Checkpoints contain torch's random state, from which the transforms draw."""
    v2 = transforms()
    transform = v2.Compose([v2.RandomCrop(4, padding=1), v2.RandomErasing(), v2.RandomHorizontalFlip()])
    whole, again = trainer(transform, epochs=4), trainer(transform, epochs=4)
    whole.run()
    again.run()
    trainer(transform, epochs=2, checkpoint_dir=tmp_path).run()
    resumed = trainer(transform, epochs=4, checkpoint_dir=tmp_path)
    resumed.run()
    assert resumed.history.resumed_at == [2]
    assert records(resumed.history) == records(whole.history) == records(again.history)
    assert torch.equal(weights(resumed), weights(whole))
    with pytest.raises(CheckpointError, match=r"another run \(different: augment\)"):
        trainer(v2.RandomHorizontalFlip(0.4), epochs=4, checkpoint_dir=tmp_path).run()


@half_trained
def test_consistency_training_takes_transforms_of_torchvision():
    v2 = transforms()
    X, sets = pictures()
    classifier = plain_classifier(
        (0.9, 0.1), model="resnet32", epochs=2, batch_size=40, random_state=0, augment=v2.RandomHorizontalFlip(),
        ema=0.5, consistency={"ramp": (0.0, 0.1), "strong": v2.Compose([v2.RandomAffine(10), v2.RandomErasing()])},
    )  # fmt: skip
    assert np.isfinite(classifier.fit(X, sets).history_[-1]["consistency_loss"])
