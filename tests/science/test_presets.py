"""Every preset's parameters and operations, against closed forms written out here.

Of width d, hidden width f, vocabulary V, n layers, L tokens; a multiply-add is two operations.
"""

import pytest

from variants import config as configs
from variants.models import assemble, cost

TINY_V, LENGTH = 1000, 48  # where a preset leaves them to the data


def gpt2(d, f, n, vocab, length):
    attention = 4 * d * d + 4 * d
    feedforward = 2 * d * f + f + d
    return (vocab + length) * d + n * (attention + feedforward + 4 * d) + 2 * d


def llama(d, f, n, vocab, tied):
    return (1 if tied else 2) * vocab * d + n * (4 * d * d + 3 * d * f + 2 * d) + d


def transformer(d, f, n, vocab, final_norms=0, vocabularies=1, biases=0):
    attention, feedforward, norm = 4 * d * d + 4 * d, 2 * d * f + f + d, 2 * d
    encoder, decoder = attention + feedforward + 2 * norm, 2 * attention + feedforward + 3 * norm
    return vocabularies * vocab * d + n * (encoder + decoder) + final_norms * norm + biases


def decoder_flops(d, f, n, vocab, length, matrices):
    """``matrices`` is 2 for a plain feed-forward and 3 for a gated one."""
    return 2 * length * (n * (4 * d * d + matrices * d * f) + d * vocab) + n * 4 * length**2 * d


def pair_flops(d, f, n, vocab, length):
    """Encoder, and decoder over a memory of the same length."""
    encoder = 2 * length * (4 * d * d + 2 * d * f) + 4 * length**2 * d
    decoder = 2 * length * (8 * d * d + 2 * d * f) + 8 * length**2 * d
    return n * (encoder + decoder) + 2 * length * d * vocab


PRESETS = {
    "gpt2": (gpt2(768, 3072, 12, 50257, 1024), decoder_flops(768, 3072, 12, 50257, LENGTH, 2)),
    "gpt2_tiny": (gpt2(128, 512, 4, TINY_V, LENGTH), decoder_flops(128, 512, 4, TINY_V, LENGTH, 2)),
    "llama_7b": (llama(4096, 11008, 32, 32000, False), decoder_flops(4096, 11008, 32, 32000, LENGTH, 3)),
    "llama_tiny": (llama(128, 344, 4, TINY_V, True), decoder_flops(128, 344, 4, TINY_V, LENGTH, 3)),
    "transformer_annotated": (
        transformer(512, 2048, 6, 10000, final_norms=2, vocabularies=3, biases=10000),
        pair_flops(512, 2048, 6, 10000, LENGTH),
    ),
    "transformer_annotated_tiny": (
        transformer(64, 256, 2, TINY_V, final_norms=2, vocabularies=3, biases=TINY_V),
        pair_flops(64, 256, 2, TINY_V, LENGTH),
    ),
    "transformer_base": (transformer(512, 2048, 6, 37000), pair_flops(512, 2048, 6, 37000, LENGTH)),
    "transformer_big": (transformer(1024, 4096, 6, 37000), pair_flops(1024, 4096, 6, 37000, LENGTH)),
    "transformer_tiny": (transformer(64, 256, 2, TINY_V), pair_flops(64, 256, 2, TINY_V, LENGTH)),
    "vanilla_tiny": (
        TINY_V * 128 + 4 * (4 * 128**2 + 4 * 128 + 2 * 128 * 512 + 512 + 128 + 2 * 2 * 128),
        decoder_flops(128, 512, 4, TINY_V, LENGTH, 2),
    ),
}
PUBLISHED = {
    "gpt2": 124_439_808,
    "llama_7b": 6_738_415_616,
    "transformer_base": 63_082_496,
    "transformer_big": 214_245_376,
}


def test_every_preset_has_a_closed_form_here():
    assert set(configs.presets("model")) == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_and_operations_of_a_preset_equal_the_closed_forms(name):
    fields = configs.compose([f"model={name}"])["model"]
    model = assemble(fields, vocab=fields["vocab"] or TINY_V, max_length=LENGTH)
    parameters, flops = PRESETS[name]
    assert cost.parameters(model).total == parameters == PUBLISHED.get(name, parameters)
    assert model.flops(LENGTH) == flops
    assert cost.training_flops(model, LENGTH) == 3 * flops // LENGTH
