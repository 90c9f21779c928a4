"""`UUClassifier` on pandas, polars and Arrow tables, which it encodes by default."""

import json
import pickle
import subprocess
import sys
from typing import ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from helpers.plain import plain_classifier
from uulearn import UUClassifier
from uulearn.estimator.parameters import check_parameters
from uulearn.estimator.reading import is_table
from uulearn.exceptions import (
    BeyondPriorsWarning,
    ColumnWarning,
    LeakingColumnWarning,
    ModelFormatError,
    TableError,
    UnreadableCellsWarning,
)
from uulearn.export import export_onnx
from uulearn.selection import SetKFold, UUClassifierCV, UUScorer, prior_sensitivity
from uulearn.streaming import RowStream
from uulearn.tabular import TableEncoder


def patients(n, prior, seed):
    """Return a table with a number, a skewed number, a category, a boolean and missing values, and its labels."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < prior
    frame = pd.DataFrame(
        {
            "age": rng.normal(50 + 20 * y, 8),
            "dose": np.exp(4 * rng.normal(size=n) + 4 * y),
            "color": np.where(rng.random(n) < 0.2 + 0.5 * y, "red", "blue"),
            "smokes": rng.random(n) < 0.3 + 0.3 * y,
        }
    )
    for name in ("age", "color"):
        frame[name] = frame[name].where(rng.random(n) > 0.1)
    return frame, y.astype(int)


@pytest.fixture(scope="module")
def tables():
    return patients(200, 0.8, 0)[0], patients(150, 0.2, 1)[0]


@pytest.fixture(scope="module")
def joint(tables):
    return pd.concat(tables, ignore_index=True), np.repeat([0, 1], [200, 150])


@pytest.fixture(scope="module")
def new():
    return patients(300, 0.5, 2)


def quick(**parameters):
    return UUClassifier((0.8, 0.2), **{"model": "linear", "epochs": 20, "lr": 0.1, "random_state": 0} | parameters)


@pytest.fixture(scope="module")
def fitted(tables):
    return quick().fit_sets(*tables)


def test_tables_are_encoded_by_default(fitted, tables, new):
    frame, y = new
    assert isinstance(fitted.encoder_, TableEncoder)
    assert fitted.feature_names_in_.tolist() == ["age", "dose", "color", "smokes"]
    assert fitted.n_features_in_ == 4
    assert fitted.row_shape_ == (7,)
    assert (fitted.predict(frame) == y).mean() > 0.75
    encoder = TableEncoder().fit_sets(*tables)
    by_hand = quick().fit_sets(*map(encoder.transform, tables))
    assert by_hand.encoder_ is None
    np.testing.assert_array_equal(fitted.decision_function(frame), by_hand.decision_function(encoder.transform(frame)))


def test_every_method_takes_tables_with_columns_in_any_order(fitted, joint, new):
    (X, sets), (frame, y) = joint, new
    turned = frame[frame.columns[::-1]].assign(extra="unused").set_axis(range(7, 307))
    for method in ("decision_function", "predict", "predict_proba"):
        np.testing.assert_array_equal(getattr(fitted, method)(turned), getattr(fitted, method)(frame))
        arrow = pa.Table.from_pandas(turned, preserve_index=False)
        np.testing.assert_array_equal(getattr(fitted, method)(arrow), getattr(fitted, method)(frame))
    assert fitted.evaluate(turned, labels=y).accuracy.value > 0.75
    assert 0.5 < fitted.score(X, sets) <= 1
    assert fitted.evaluate(X, sets=sets).accuracy.value > 0.5
    other = fitted.with_priors((0.7, 0.3), 0.4, X, sets)
    assert other.predict(turned).shape == (300,)
    assert fitted.with_target_prior(0.1).predict(turned).mean() < fitted.predict(turned).mean()
    np.testing.assert_array_equal(fitted.submodel(0).predict(turned), fitted.submodel(0).predict(frame))
    assert fitted.with_encoder(None).predict(fitted.encoder_.transform(turned)).shape == (300,)
    assert "200 rows" in fitted.summary()


def test_tables_of_numbers_are_encoded_too():
    rng = np.random.default_rng(0)
    X = [pd.DataFrame(np.exp(rng.normal(mean, 2, (60, 2))), columns=["a", "b"]) for mean in (1, 0)]
    scores = [quick(encoder=given).fit_sets(*X).decision_function(X[0]) for given in ("auto", None)]
    assert not np.allclose(*scores)
    logs = [np.log(table) for table in X]  # ranks do not change
    np.testing.assert_allclose(quick().fit_sets(*logs).decision_function(logs[0]), scores[0], atol=1e-5)


def test_encoder_none_needs_numbers(tables):
    with pytest.raises(ValueError, match="X0 contains text in column 'color': 'red'.*OneHotEncoder"):
        quick(encoder=None).fit_sets(*(table.dropna() for table in tables))


def test_own_encoder_is_cloned_and_chooses_columns(tables, new):
    own = TableEncoder(drop=["dose"])
    classifier = quick(encoder=own).fit_sets(*tables)
    assert not hasattr(own, "schema_")
    assert classifier.feature_names_in_.tolist() == ["age", "color", "smokes"]
    assert classifier.get_params()["encoder__drop"] == ["dose"]
    again = clone(classifier).set_params(encoder__drop=["age"]).fit_sets(*tables)
    assert again.feature_names_in_.tolist() == ["dose", "color", "smokes"]
    arrays = [np.random.default_rng(k).normal(k, 1, (40, 3)) for k in (1, 0)]
    encoded = quick(encoder=TableEncoder()).fit_sets(*arrays)
    assert encoded.feature_names_in_.tolist() == ["0", "1", "2"]
    assert encoded.predict(arrays[0]).shape == (40,)


def test_held_out_rows_are_encoded(tables, joint, new):
    classifier = quick(n_estimators=1).fit_sets(*tables, validation_data=joint, test_data=new)
    assert classifier.held_out_sizes_ == (200, 150)
    assert classifier.history_[-1]["test_accuracy"] > 0.7
    with pytest.raises(TableError, match="validation_data lacks the column 'age'"):
        quick(n_estimators=1).fit_sets(*tables, validation_data=(joint[0].drop(columns="age"), joint[1]))


def test_rejects_rows_that_do_not_fit(fitted, tables, new):
    frame, _ = new
    with pytest.raises(TableError, match="X lacks the column 'dose'; it must have all columns"):
        fitted.predict(frame.drop(columns="dose"))
    with pytest.raises(TableError, match="X has 'high' in row 1, column 'dose', which is not a number"):
        fitted.predict(frame.assign(dose="high"))
    with pytest.raises(TableError, match="X has no column names, but the encoder was fitted to the columns 'age', 'd"):
        fitted.predict(fitted.encoder_.transform(frame))
    with pytest.raises(TableError, match="only set 1 has the column 'dose'; both sets need the same columns"):
        quick().fit_sets(tables[0].drop(columns="dose"), tables[1])
    with pytest.raises(TableError, match="set 0 has 1 rows; each set needs at least two"):
        quick().fit_sets(tables[0][:1], tables[1])
    with pytest.raises(ValueError, match="X has 200 rows, but sets has 3"):
        quick().fit(tables[0], [0, 1, 1])
    with pytest.raises(ValueError, match="no rows from set 1"):
        quick().fit(tables[0], np.zeros(200))
    with pytest.raises(ValueError, match="requires y to be passed"):
        quick().fit(tables[0], None)


@pytest.mark.parametrize("convert", [lambda frame: frame, pa.Table.from_pandas, "polars"])
def test_unreadable_cells_of_new_rows_are_missing_values(fitted, new, convert):
    if convert == "polars":
        convert = pytest.importorskip("polars").from_pandas
    frame, y = new
    odd, empty = frame.astype({"age": object, "smokes": object}), frame.astype({"age": object, "smokes": object})
    odd.loc[4:6, "age"], odd.loc[[0, 299], "smokes"] = ["90+", "?", "unknown"], "unsure"
    empty.loc[4:6, "age"] = empty.loc[[0, 299], "smokes"] = None
    odd, empty = (table.where(table.isna(), table.astype(str)) for table in (odd, empty))  # Arrow needs one type
    odd, empty = (convert(table.where(table.notna(), None)) for table in (odd, empty))
    known = frame["age"].notna().sum() + frame.loc[4:6, "age"].isna().sum()
    message = (
        rf"^X: column 'age': 3 of {known} values are not numbers \(for example '90\+'\); column 'smokes': 2 of 300 "
        r"values are not yes or no \(for example 'unsure'\)\. They are treated as missing values\.$"
    )
    for method in ("decision_function", "predict", "predict_proba", "check_rows"):
        with pytest.warns(UnreadableCellsWarning, match=message) as caught:
            found = getattr(fitted, method)(odd)
        assert [each.filename for each in caught] == [__file__]
        np.testing.assert_array_equal(found, getattr(fitted, method)(empty))
    with pytest.warns(UnreadableCellsWarning, match=message) as caught:
        assert fitted.evaluate(odd, labels=y) == fitted.evaluate(empty, labels=y)
    assert caught[0].filename == __file__


def test_a_single_row_has_the_same_score_as_in_a_table(fitted, new):
    odd = new[0].astype({"age": object})
    odd.loc[[5, 8], "age"] = "unknown"
    with pytest.warns(UnreadableCellsWarning):
        scores = fitted.decision_function(odd)
    with pytest.warns(UnreadableCellsWarning, match="'age': 1 of 1 values is not a number"):
        np.testing.assert_allclose(fitted.decision_function(odd[5:6]), scores[5:6], rtol=1e-5)


def test_rows_for_training_must_be_readable(tables, joint, new):
    odd = new[0].astype({"age": object})
    odd.loc[5, "age"] = "unknown"
    sets = np.arange(300) % 2
    for held_out in ({"validation_data": (odd, sets)}, {"test_data": (odd, sets)}):
        with pytest.raises(TableError, match="has 'unknown' in row 6, column 'age', which is not a number; write"):
            quick(n_estimators=1).fit_sets(*tables, **held_out)


def test_rejects_encoder_for_streams(tables):
    class Stream(RowStream):
        row_shape, piece_sizes = (2,), (10,)

        def read(self, piece):
            return np.zeros((10, 2), np.float32)

        def describe(self):
            return "zeros"

    with pytest.raises(ValueError, match="encoder encodes tables in memory, but the sets are streams; .*transform"):
        quick(encoder=TableEncoder()).fit_sets(Stream(), Stream())
    with pytest.raises(ValueError, match="encoder must be 'auto', None or a uulearn.tabular.TableEncoder .*Pipeline"):
        check_parameters(quick(encoder=StandardScaler()).get_params(deep=False))


def test_warns_about_columns_and_leakage(tables):
    first, second = tables
    numbered = [
        table.assign(patient=[f"{name}{row}" for row in range(len(table))])
        for name, table in zip("ab", tables, strict=True)
    ]
    with pytest.warns(ColumnWarning, match="Column 'patient' is dropped: every row has a different") as caught:
        classifier = quick().fit_sets(*numbered)
    assert caught[0].filename == __file__
    assert "patient" not in classifier.feature_names_in_
    with (
        pytest.warns(LeakingColumnWarning, match=r"Column 'site' identifies the set .*TableEncoder\(drop=\['site'\]\)"),
        pytest.warns(BeyondPriorsWarning, match=r"differ by more than the class priors allow.* which is impossible"),
    ):
        quick().fit_sets(first.assign(site="Ulm"), second.assign(site="Bonn"))
    label = [table.assign(sick=np.arange(len(table)) % 5 < count) for table, count in zip(tables, (4, 1), strict=True)]
    with pytest.warns(LeakingColumnWarning, match="Column 'sick' is probably the label") as caught:
        quick().fit(pd.concat(label), np.repeat([0, 1], [200, 150]))
    assert caught[0].filename == __file__


def test_unknown_priors_warn_only_about_constant_columns(tables):
    ranking = UUClassifier(None, method="biased", model="linear", epochs=2, random_state=0).fit_sets(*tables)
    assert ranking.decision_function(tables[0]).shape == (200,)


# ------------------------------------------------------------------------------------------------------------ storage


def test_saved_classifier_keeps_its_encoder(fitted, tables, new, tmp_path):
    own = quick(encoder=TableEncoder(kinds={"smokes": "category"}, drop=["dose"])).fit_sets(*tables)
    for classifier in (fitted, own):
        classifier.save(tmp_path / "model")
        names = sorted(path.name.split("-")[0] for path in (tmp_path / "model").iterdir())
        assert names == ["encoder", "history", "model.json", "reference", "schema", "weights"]
        loaded = UUClassifier.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.decision_function(new[0]), classifier.decision_function(new[0]))
        assert loaded.encoder_.schema_ == classifier.encoder_.schema_
        assert loaded.n_features_in_ == classifier.n_features_in_
        assert str(loaded.get_params()) == str(classifier.get_params())
        loaded.fit_sets(*tables)  # a loaded model is a full estimator
        np.testing.assert_array_equal(loaded.decision_function(new[0]), classifier.decision_function(new[0]))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(new[0]), fitted.predict(new[0]))
    fitted.with_encoder(None).save(tmp_path / "model")
    assert UUClassifier.load(tmp_path / "model").encoder_ is None


def test_rejects_damaged_encoder(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    (schema,) = (tmp_path / "model").glob("schema-*.json")
    text = schema.read_text()
    schema.write_text(text.replace("number", "numbre"))
    with pytest.raises(ModelFormatError, match="was altered after it was saved"):
        UUClassifier.load(tmp_path / "model")
    encoder = fitted.encoder_
    with pytest.raises(ModelFormatError, match="the schema cannot be read .*numbre"):
        TableEncoder.from_bytes(text.replace("number", "numbre").encode(), encoder.to_bytes()[1])
    fewer = {**json.loads(text), "columns": json.loads(text)["columns"][:2]}
    with pytest.raises(ModelFormatError, match="does not match its schema or is damaged"):
        TableEncoder.from_bytes(json.dumps(fewer).encode(), encoder.to_bytes()[1])


# --------------------------------------------------------------------------------------------- search, export, pipeline


def test_search_and_cross_validation_take_tables(tables, joint, new):
    search = UUClassifierCV(quick(), {"lr": [1e-6, 0.05]}).fit_sets(*tables)
    assert search.best_params_ == {"lr": 0.05}
    assert search.feature_names_in_.tolist() == ["age", "dose", "color", "smokes"]
    assert search.predict(new[0]).shape == (300,)
    same = UUClassifierCV(quick(), {"lr": [1e-6, 0.05]}).fit(*joint)
    np.testing.assert_array_equal(same.decision_function(new[0]), search.decision_function(new[0]))
    with pytest.raises(ValueError, match="param_grid cannot contain 'encoder__drop'"):
        UUClassifierCV(quick(encoder=TableEncoder()), {"encoder__drop": [[], ["age"]]}).fit(*joint)
    folds = SetKFold(3, random_state=0)
    for estimator in (quick(n_estimators=1), make_pipeline(TableEncoder(), quick(n_estimators=1))):
        assert cross_val_score(estimator, *joint, cv=folds, scoring=UUScorer()).mean() > 0.6


def test_sensitivity_takes_tables(joint):
    found = prior_sensitivity(quick(), *joint, errors=(0.05,))
    assert found.baseline.shown.value > 0.5


class TestDefaultModel:
    """The model None is "auto" on tables if models can be compared, and an MLP otherwise."""

    SMALL: ClassVar = {"model": None, "model_params": {"hidden": (4,)}, "epochs": 3}

    def test_compares_models(self, tables):
        classifier = quick(model=None, model_params={"models": ["linear"]}).fit_sets(*tables)
        assert [entry.model for entry in classifier.comparison_] == ["linear"]
        with pytest.raises(ValueError, match="'hidden' is not an option of model='auto', .* or set model='mlp'"):
            quick(**self.SMALL).fit_sets(*tables)

    def test_ranks_rows_without_priors(self, tables, new):
        parameters = self.SMALL | {"set_priors": None, "method": "biased", "random_state": 0}
        classifier = UUClassifier(**parameters).fit_sets(*tables)
        assert classifier.fitted_params()["model"] == "mlp"
        assert classifier.decision_function(new[0]).shape == (300,)

    def test_searches_parameters_of_an_mlp(self, tables):
        search = UUClassifierCV(quick(**self.SMALL), {"lr": [1e-6, 0.05]}).fit_sets(*tables)
        assert search.best_estimator_.model == "mlp"

    def test_trains_one_mlp_per_wrong_prior(self, joint):
        assert len(prior_sensitivity(quick(**self.SMALL), *joint, errors=(0.05,)).rows) == 4

    def test_export_names_models_that_can_be_exported(self, tables, tmp_path):
        classifier = quick(model=None, model_params={"models": ["linear"]}).fit_sets(*tables)
        with pytest.raises(TypeError, match="got a model of kind 'auto'; fit a classifier with the model 'mlp'"):
            export_onnx(classifier, tmp_path / "model.onnx")


def test_export_includes_the_encoder(fitted, tables, new, tmp_path):
    exported = export_onnx(fitted, tmp_path / "model.onnx")
    assert [str(port) for port in exported.inputs] == ["X float64 (n, 3)", "categories string (n, 1)"]
    assert exported.largest_difference < 1e-5
    pipeline = make_pipeline(TableEncoder(), quick()).fit(pd.concat(tables), np.repeat([0, 1], [200, 150]))
    assert export_onnx(pipeline, tmp_path / "pipeline.onnx").inputs == exported.inputs
    longer = make_pipeline(TableEncoder(), StandardScaler(), quick())
    with pytest.raises(ValueError, match="encodes the columns 'color' and 'smokes' and is not the only step"):
        export_onnx(longer.fit(pd.concat(tables), np.repeat([0, 1], [200, 150])), tmp_path / "longer.onnx")
    with pytest.raises(ValueError, match="the classifier encodes the output of the pipeline, which cannot be exported"):
        export_onnx(fitted, tmp_path / "model.onnx", pipeline=StandardScaler().fit([[1.0], [2.0]]))
    dated = [table.assign(seen=pd.Timestamp("2024-01-01") + pd.to_timedelta(table.index % 9, "D")) for table in tables]
    with pytest.raises(ValueError, match="encodes the columns 'seen', which are dates or text"):
        export_onnx(quick().fit_sets(*dated), tmp_path / "model.onnx")


def test_pipeline_with_frames_between_steps(joint, new):
    scaler = StandardScaler().set_output(transform="pandas")
    X = joint[0][["dose"]].assign(age=joint[0]["age"].fillna(50))
    pipeline = make_pipeline(scaler, quick()).fit(X, joint[1])
    assert pipeline[-1].encoder_ is not None
    assert pipeline.predict(X).shape == (350,)


def test_polars_tables(tables, joint, fitted, new):
    pl = pytest.importorskip("polars")
    classifier = quick().fit(pl.from_pandas(joint[0]), joint[1])
    np.testing.assert_array_equal(
        classifier.decision_function(pl.from_pandas(new[0])), fitted.decision_function(new[0])
    )
    with pytest.raises(ValueError, match="set 0 is a DataFrame and set 1 is a ndarray"):
        quick().fit_sets(pl.from_pandas(tables[0]), np.zeros((5, 4)))


@pytest.mark.parametrize(
    ("X", "expected"),
    [
        (pd.DataFrame({"a": [1]}), True),
        (pa.table({"a": [1]}), True),
        (pd.Series([1]), False),
        (np.zeros((2, 2)), False),
        ([[1, 2]], False),
        (None, False),
    ],
)
def test_recognizes_tables(X, expected):
    assert is_table(X) is expected


def test_arrays_do_not_import_pandas():
    code = (
        "import sys, numpy as np; from uulearn.estimator.reading import is_table; is_table(np.zeros((2, 2)));"
        "sys.exit('uulearn.tabular.encoder' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_plain_models_on_tables(joint):
    classifier = plain_classifier((0.8, 0.2), model_params={"hidden": (4,)}, epochs=2, random_state=0).fit(*joint)
    assert classifier.row_shape_ == (7,)
