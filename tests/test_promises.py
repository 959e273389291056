"""Every registered choice keeps its slot's promises; a new one is tested because it is registered."""

import subprocess
import sys
from pathlib import Path

import pytest
from exporting import unchecked

from variants.registry import SLOTS
from variants.testing import PROMISES, Example
from variants.testing.common import compiles, exports

# Fields that open other paths through a component.
VARIATIONS = [
    ("cross", "attention", {"n_kv_heads": 2, "bias": True}),
    ("cross", "attention", {"qk_norm": "rmsnorm", "d_head": 6}),
    ("embedding", "tied", {"scale": True}),
    ("embedding", "untied", {"scale": True}),
    ("feedforward", "gelu", {"approximate": "tanh", "bias": False}),
    ("feedforward", "swiglu", {"bias": True, "d_ff": 5}),
    ("head", "linear", {"bias": True, "scaled": True, "chunk": 3}),
    ("layout", "encoder_decoder", {"shared_vocabulary": False}),
    ("mixer", "attention", {"n_kv_heads": 1, "scale": 1.0}),
    ("mixer", "attention", {"n_kv_heads": 2, "d_head": 6, "qk_norm": "rmsnorm"}),
    ("mixer", "attention", {"window": 3}),
    ("mixer", "attention", {"window": 5, "bias": True, "qkv_bias": False}),
    ("norm", "layernorm", {"norm_bias": False}),
    ("position", "relative", {"n_buckets": 8, "max_distance": 6}),
    ("position", "rotary", {"fraction": 0.5, "layout": "interleaved"}),
    ("position", "sinusoidal", {"layout": "halves", "spacing": "inclusive"}),
]
EXAMPLES = [Example(slot, choice) for slot in PROMISES for choice in SLOTS[slot].choices]
EXAMPLES += [Example(slot, choice, **fields) for slot, choice, fields in VARIATIONS]
CASES = [(example, promise) for example in EXAMPLES for promise in PROMISES[example.slot.name]]


def parametrised(cases):
    named = [pytest.param(example, promise, id=f"{example!r}-{promise.__name__}") for example, promise in cases]
    return pytest.mark.parametrize(("example", "promise"), named)


@parametrised([case for case in CASES if case[1] not in (exports, compiles)])
def test_promise_holds(example, promise):
    promise(example)


@pytest.mark.slow
@parametrised([case for case in CASES if case[1] is exports])
def test_choice_exports(example, promise):
    with unchecked():
        promise(example)


@pytest.mark.slow
def test_every_choice_compiles():
    script = Path(__file__).parent / "compiling.py"
    done = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, text=True, check=False)
    expected = [
        f"{s}.{choice}" for s, promises in PROMISES.items() if compiles in promises for choice in SLOTS[s].choices
    ]
    assert done.stdout.split() == expected, done.stderr


def test_every_slot_that_builds_models_or_trains_has_promises():
    without = {"data", "callback", "logger", "strategy", "launcher"}  # of files or processes, or Lightning's own
    assert set(PROMISES) == set(SLOTS) - without
