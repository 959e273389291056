"""What a model is trained on. Importing the choices must stay light: no Lightning, no SentencePiece."""

from variants.data.copying import Copying
from variants.data.recall import Recall
from variants.data.sequences import SequenceTask
from variants.data.text import Text

__all__ = ["Copying", "Recall", "SequenceTask", "Text"]
