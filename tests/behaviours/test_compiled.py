"""Compiled layers that are recomputed, tried without the checks of types and shapes, which Torch cannot trace.

Torch refuses a recomputation that saves other tensors, as it would by another graph.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_compiled_layer_that_is_recomputed_drops_what_it_dropped_before():
    """TRAIN-01."""
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False, cwd=TESTS)
    assert done.stdout.split() == [".".join(pair) for pair in pairs()], done.stderr


def pairs():
    """Every position, and every layout with those that act on projected queries and keys, and on scores."""
    from variants.slots import layouts, positions

    return [
        (layout, position)
        for layout in layouts.choices
        for position in positions.choices
        if layout == "decoder_only" or position in ("rotary", "relative")
    ]


def gradients_agree(layout, position):
    """With recomputed layers and without, in several steps, for recomputation must find the graph of its forward."""
    from behaviours.test_training import assert_equal, step
    from generating import small

    from variants.models import Layer

    def compiled():
        torch.compiler.reset()
        model = small(layout, position=position, kernel="math", dropout=0.5)
        for layer in (module for module in model.modules() if isinstance(module, Layer)):
            layer.compile(backend="aot_eager")  # as a run does, but without a C++ compiler
        return model

    plain, model = step(compiled(), every=0), compiled()
    for _ in range(2):
        assert_equal(step(model, every=1, looks_away=True), plain)


if __name__ == "__main__":
    sys.path.insert(0, str(TESTS))
    torch.set_num_threads(1)
    for pair in pairs():
        gradients_agree(*pair)
        print(".".join(pair), flush=True)
