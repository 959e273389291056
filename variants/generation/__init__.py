"""Sequences out of trained models: token by token, or by a beam search."""

from variants.generation.beam import beam_search
from variants.generation.decode import decode
from variants.generation.sampling import GREEDY, Sampler, Sampling
from variants.generation.search import Hypothesis
from variants.generation.stepper import Stepper, evaluating, stepper_of

__all__ = [
    "GREEDY",
    "Hypothesis",
    "Sampler",
    "Sampling",
    "Stepper",
    "beam_search",
    "decode",
    "evaluating",
    "stepper_of",
]
