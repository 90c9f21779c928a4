"""Errors and warnings of uulearn, with one class per cause; invalid arguments raise ``ValueError`` or ``TypeError``.

Silence a warning with ``warnings.simplefilter("ignore", uulearn.exceptions.ClosePriorsWarning)``, or silence all
warnings with ``UUWarning``. The report shows the ``headline`` above the message and the ``advice`` below the message.
"""

from typing import ClassVar


class UUWarning(UserWarning):
    """Base class of all warnings that uulearn issues."""

    headline: ClassVar[str]
    advice: ClassVar[str]


class ClosePriorsWarning(UUWarning):
    """The two set priors are so close that the risk estimate is very noisy."""

    headline = "The two class priors are nearly equal"
    advice = "Use sets whose class priors differ more, or many more rows; uulearn plan computes the required number."


class IndistinguishableSetsWarning(UUWarning):
    """A classifier could not distinguish the two sets on held-out rows, so there may be nothing to learn."""

    headline = "The rows do not show a difference between the two sets"
    advice = "Check that these are the right files, and that at least one column is related to the class."


class SwappedPriorsWarning(UUWarning):
    """Labeled rows passed for evaluation contradict the order of the set priors."""

    headline = "Labeled rows contradict the order of the class priors"
    advice = "If the class priors are in the wrong order, swap the two values of --set-priors and train again."


class UnevenSetsWarning(UUWarning):
    """One set is so small that larger batches were needed to include rows of both sets."""

    headline = "One set is much smaller than the other"
    advice = "Add rows to the smaller set, because its size limits the accuracy of every estimate."


class OneSidedPredictionsWarning(UUWarning):
    """The trained model predicts the same class for every row, although both classes must be present."""

    headline = "The model predicts the same class for every row"
    advice = "Do not use this model. Check the class priors, then train with more rows or other settings."


class SuspiciousScoreWarning(UUWarning):
    """The accuracy estimated from two sets is far below chance or above 1, so the given priors are probably wrong."""

    headline = "The estimated accuracy is impossible"
    advice = "Check the class priors and their order: the estimate suggests that they are wrong."


class UnidentifiedPriorsWarning(UUWarning):
    """The class priors cannot be estimated from the data, or only with a large error."""

    headline = "The class priors cannot be estimated precisely from the rows"
    advice = "Pass --set-priors if you know the class priors from another source; otherwise, the results are uncertain."


class NotAMixtureWarning(UUWarning):
    """The target rows do not look like a mixture of the two classes in the sets."""

    headline = "The rows to score differ from both sets"
    advice = (
        "The estimated accuracy may be wrong for these rows; check how they were collected, and label some of them to "
        "measure the accuracy. Ignore this warning if the model was trained on these rows."
    )


class BeyondPriorsWarning(UUWarning):
    """The two sets differ in more than their class priors, so estimates from these sets cannot be trusted."""

    headline = "The two sets differ in more than their class priors"
    advice = (
        "Check the class priors, and use --drop for columns that depend on where a row was collected "
        "(distribution shift). Do not trust the accuracy until this is resolved."
    )


class ColumnWarning(UUWarning):
    """Some columns of a table were dropped or may be misread."""

    headline = "Some columns were dropped or may be misread"
    advice = "Check these columns, and drop them or change how they are written if necessary."


class UnreadableCellsWarning(UUWarning):
    """Some cells of new rows cannot be read as the kind of their column, so they are treated as missing values."""

    headline = "Some cells of new rows were treated as missing values"
    advice = "Write these cells as in the training rows, or leave them empty if the value is unknown."


class LeakingColumnWarning(UUWarning):
    """A column differs between the sets by more than their class priors allow."""

    headline = "A column distinguishes the sets better than their class priors allow"
    advice = (
        "Check the class priors first. If they are right, drop the column, unless you know that it depends only on the "
        "class."
    )


class FailedSettingWarning(UUWarning):
    """Some settings of a search failed, for example because training diverged; the other results are valid."""

    headline = "Some settings of the search failed"
    advice = "Use the result if enough settings remain; otherwise lower the learning rate and search again."


class PoorMixingWarning(UUWarning):
    """The blocks of streamed rows are so large that only a few of them fit in the mixing buffer."""

    headline = "Streamed rows are poorly mixed"
    advice = (
        "Write the file once in random order (uulearn.streaming.shuffled), make its blocks (row groups) smaller, or "
        "raise buffer_bytes."
    )


class NonFiniteRiskError(ArithmeticError):
    """Training produced a risk or a weight that is not finite."""


class TimeBudgetError(RuntimeError):
    """A time budget is too short for the least that was asked for."""


class CheckpointError(ValueError):
    """A checkpoint belongs to another run, or cannot be read or written."""


class OtherRunError(CheckpointError):
    """A checkpoint belongs to a run with other settings or rows."""


class ModelFormatError(ValueError):
    """A model directory is damaged, incomplete, modified, or in the format of another version."""


class TableError(ValueError):
    """A table file cannot be read, or does not match the other file or the model."""
