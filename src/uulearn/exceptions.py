"""The errors and warnings that uulearn raises, each a category of its own.

Silence one kind with ``warnings.simplefilter("ignore", uulearn.exceptions.ClosePriorsWarning)``, or every kind
through their common base, ``UUWarning``. Bad arguments are plain ``ValueError`` or ``TypeError``.
"""


class UUWarning(UserWarning):
    """Base of all warnings that uulearn raises."""


class ClosePriorsWarning(UUWarning):
    """The two set priors are so close that the risk is known only roughly."""


class IndistinguishableSetsWarning(UUWarning):
    """A held-out check could not tell the two sets apart, so there may be nothing to learn from."""


class SwappedPriorsWarning(UUWarning):
    """Labelled rows given for evaluation contradict the order of the set priors."""


class UnevenSetsWarning(UUWarning):
    """One set is so small that batches had to grow to hold a row of each."""


class OneSidedPredictionsWarning(UUWarning):
    """The trained model predicts one class for every row, though both must be among them."""


class SuspiciousScoreWarning(UUWarning):
    """An accuracy estimated from two sets is far below chance, or above 1: what was declared cannot be so."""


class UnidentifiedPriorsWarning(UUWarning):
    """The data leave the shares of positives open, or fix them only roughly."""


class NotAMixtureWarning(UUWarning):
    """Target rows are not a mixture of the classes that the two sets are mixtures of."""


class BeyondPriorsWarning(UUWarning):
    """The two sets differ in more than their shares of positives, so that estimates from them cannot be trusted."""


class FailedSettingWarning(UUWarning):
    """Settings of a search cannot be used, because their training diverged, say; others can."""


class PoorMixingWarning(UUWarning):
    """Rows that are streamed come in pieces so large that few of them are mixed with each other."""


class NonFiniteRiskError(ArithmeticError):
    """Training produced a risk or a weight that is not a finite number."""


class CheckpointError(ValueError):
    """A checkpoint belongs to another run, or cannot be read or written."""


class ModelFormatError(ValueError):
    """A model directory is damaged, incomplete, altered or of a newer format."""


class TableError(ValueError):
    """A file of rows cannot be read, or does not fit the other file or the model."""
