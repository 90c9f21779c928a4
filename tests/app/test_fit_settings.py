"""Settings of a fit as TOML: complete, unchanged by a round trip, and validated."""

import math
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uulearn.app.settings import FitSettings, read_settings

text = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
fractions = st.floats(0, 1)
names = st.lists(text, max_size=3).map(tuple)
classifiers = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["mlp", "linear"]),
        "epochs": st.integers(1, 10**6),
        "lr": st.floats(1e-9, 1e3),
        "model_params": st.dictionaries(text, st.lists(st.integers(), max_size=3).map(tuple), max_size=2),
        "calibrated": st.booleans(),
    },
)


@given(
    settings=st.builds(
        FitSettings,
        first=text,
        second=text,
        set_priors=st.one_of(st.just("auto"), st.tuples(fractions, fractions)),
        target_prior=fractions,
        drop=names,
        ids=names,
        only=names,
        images=st.one_of(st.none(), text),
        image_size=st.one_of(st.none(), st.integers(1, 100)),
        hold_out=st.floats(0.01, 0.49),
        allow_leakage=st.booleans(),
        sensitivity=st.one_of(st.none(), st.booleans()),
        seed=st.integers(0, 2**31),
        classifier=classifiers,
    )
)
def test_toml_round_trip_keeps_every_setting(settings, tmp_path_factory):
    path = tmp_path_factory.mktemp("toml") / "config.toml"
    path.write_text(settings.to_toml(), encoding="utf-8")
    read = read_settings(path)
    read["classifier"] = {name: _tuples(value) for name, value in read["classifier"].items()}
    assert FitSettings(**read) == settings


def _tuples(value):
    return {key: tuple(one) for key, one in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("first = ", "cannot be read as TOML"),
        ("color = 1", "'color', which is not a setting of fit"),
        ("first = 1", "first must be a string, got 1"),
        ("drop = 'age'", "drop must be a list, got 'age'"),
        ("set_priors = [0.8]", r"set_priors must be a list of 2, got \[0.8\]"),
        ("set_priors = [true, false]", r"set_priors\[0\] must be a number, got True"),
        ("target_prior = 'half'", "target_prior must be a number, got 'half'"),
        ("seed = true", "seed must be a whole number, got True"),
        ("sensitivity = 1", "sensitivity must be true or false, got 1"),
        ("classifier = 3", "classifier must be an object, got 3"),
    ],
)
def test_rejects_a_wrong_file_with_one_sentence(tmp_path, content, message):
    path = tmp_path / "config.toml"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_settings(path)


def test_rejects_a_missing_or_binary_file(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        read_settings(tmp_path / "config.toml")
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="cannot be read as TOML"):
        read_settings(tmp_path / "config.toml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"set_priors": "guess"}, "'auto', got 'guess'"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"hold_out": 0.0}, "hold_out must be above 0 and below 0.5, got 0.0"),
        ({"classifier": {"color": 1}}, "color is not a parameter that can be set there"),
        ({"classifier": {"random_state": 1}}, "random_state is not a parameter that can be set there"),
    ],
)
def test_rejects_wrong_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        FitSettings(**{"first": "a", "second": "b", "set_priors": (0.8, 0.2)} | changes)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_toml_round_trip_keeps_numbers_that_are_not_finite(number, tmp_path):
    path = tmp_path / "config.toml"
    params = {"seconds": number, "models": ["linear", "mlp"]}
    path.write_text(FitSettings("a", "b", (0.8, 0.2), classifier={"model_params": params}).to_toml(), encoding="utf-8")
    found = read_settings(path)["classifier"]["model_params"]
    assert found["seconds"] == pytest.approx(number, nan_ok=True)
    assert found["models"] == params["models"]


def test_rejects_values_that_toml_cannot_store():
    settings = FitSettings("a", "b", (0.8, 0.2), classifier={"loss": print})
    with pytest.raises(ValueError, match="cannot be written as TOML"):
        settings.to_toml()
    assert "set_priors = [0.8, 0.2]" in FitSettings("a", "b", (0.8, 0.2)).to_toml()
    tomllib.loads(FitSettings("a", "b", "auto").to_toml())
