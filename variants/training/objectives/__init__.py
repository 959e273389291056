"""Objectives: from a model and a batch to a summed loss and the number of its targets."""

from variants.training.objectives.causal_lm import CausalLM
from variants.training.objectives.seq2seq import Seq2Seq

__all__ = ["CausalLM", "Seq2Seq"]
