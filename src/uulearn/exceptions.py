"""The errors and warnings that uulearn raises, each with its own category.

Silence one kind with ``warnings.simplefilter("ignore", uulearn.exceptions.ClosePriorsWarning)``, or all
with their base class, ``UUWarning``. Bad arguments are plain ``ValueError`` or ``TypeError``.
"""


class UUWarning(UserWarning):
    """Base of all warnings that uulearn raises."""


class ClosePriorsWarning(UUWarning):
    """The two set priors are so close that the estimated risk is imprecise."""


class IndistinguishableSetsWarning(UUWarning):
    """A held-out check could not distinguish the two sets, so there may be nothing to learn."""


class SwappedPriorsWarning(UUWarning):
    """Labelled rows given for evaluation contradict the order of the set priors."""


class UnevenSetsWarning(UUWarning):
    """One set is so small that the batch size was increased to include a row of each set."""


class OneSidedPredictionsWarning(UUWarning):
    """The trained model predicts the same class for every row, although the sets contain both classes."""


class SuspiciousScoreWarning(UUWarning):
    """An estimated accuracy is far below chance or above 1, which contradicts the given priors."""


class UnidentifiedPriorsWarning(UUWarning):
    """The data do not identify the class priors, or only imprecisely."""


class NotAMixtureWarning(UUWarning):
    """Target rows are not a mixture of the two classes of the sets."""


class BeyondPriorsWarning(UUWarning):
    """The two sets violate the mixture assumption, so that estimates from them are unreliable."""


class FailedSettingWarning(UUWarning):
    """Some settings of a search failed, for example because training diverged."""


class PoorMixingWarning(UUWarning):
    """Streamed rows arrive in blocks that are too large for the shuffle buffer to mix."""


class NonFiniteRiskError(ArithmeticError):
    """Training produced a risk or a weight that is not finite."""


class CheckpointError(ValueError):
    """A checkpoint belongs to another run, or cannot be read or written."""


class ModelFormatError(ValueError):
    """A model directory is damaged, incomplete, altered or of a newer format."""


class TableError(ValueError):
    """A table file cannot be read, or does not match the other file or the model."""
