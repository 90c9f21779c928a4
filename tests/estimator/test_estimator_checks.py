"""scikit-learn's own estimator checks.

With set_priors = (0, 1) set 1 holds the positives and set 0 the negatives, so the labels of the checks are valid sets.
"""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers.plain import plain_classifier
from uulearn import UUClassifier

NOT_CALLED_Y = "the second argument of fit and score is called sets, because it holds no labels"
OTHER_SETS = "the check numbers its two classes otherwise than 0 and 1; sets are 0 and 1, never anything else"

EXPECTED_FAILURES = {
    "check_fit_score_takes_y": NOT_CALLED_Y,
    "check_n_features_in_after_fitting": f"{NOT_CALLED_Y}; the check passes y by name to score (see test_inputs.py)",
    "check_estimators_dtypes": OTHER_SETS,
    "check_classifier_data_not_an_array": OTHER_SETS,
    "check_classifiers_classes": OTHER_SETS,
    "check_fit2d_1feature": OTHER_SETS,
}


@pytest.mark.filterwarnings("ignore::uulearn.exceptions.UUWarning")  # some checks fit on noise
@parametrize_with_checks(
    [
        plain_classifier((0.0, 1.0), 0.5, model_params={"hidden": (16,)}, epochs=20, lr=0.05, random_state=0),
        UUClassifier((0.0, 1.0), 0.5, model="linear", epochs=15, lr=0.2, random_state=0),  # with the values of "auto"
    ],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_passes_scikit_learn_checks(estimator, check):
    check(estimator)
