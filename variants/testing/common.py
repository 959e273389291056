"""What every component promises, whatever its slot."""

from __future__ import annotations

import copy
import io
import warnings

import torch
from torch import Tensor, nn

from variants.blocks.initialisers import Normal
from variants.blocks.initialisers.base import initialise
from variants.testing.base import (
    BF16_TOLERANCE,
    INF,
    NAN,
    Broken,
    close,
    distance,
    finite,
    gradients,
    in_both_modes,
    same,
    weighted,
)
from variants.testing.examples import Example
from variants.testing.probes import Probe, probe


def shape_and_dtype(example: Example) -> None:
    """The batch and the time of the input, at any length; the input's dtype; nothing but numbers."""
    tried = probe(example)
    for batch, time in ((1, 1), (2, 1), (1, 6), (3, 6)):
        inputs = tried.inputs(batch=batch, time=time)
        y = tried(*inputs)
        if y.shape[0] != batch:
            raise Broken(f"(batch {batch}, time {time}) gives {tuple(y.shape)}")
        if y.dtype != torch.float32:
            raise Broken(f"float32 gives {y.dtype}")
        finite(y, f"(batch {batch}, time {time})")


@in_both_modes
def rows_alone(example: Example) -> None:
    """Each row of a batch is what it would be by itself, whatever the other row holds."""
    tried = probe(example)
    for time in (1, 6):
        inputs = tried.inputs(time=time)
        y = tried(*inputs)
        for row, other in ((1, 0), (0, 1)):
            alone = tried(*(t[row : row + 1] for t in inputs))
            same(y[row : row + 1], alone, f"row {row} beside row {other} and by itself (length {time})")
            if not inputs[0].is_floating_point():
                continue
            for held in (NAN, INF):
                spoilt = [t.clone() for t in inputs]
                for t in spoilt:
                    t[other] = held
                what = f"row {row} beside a row of {held:g} and by itself (length {time})"
                same(tried(*spoilt)[row : row + 1], alone, what)


@in_both_modes
def every_parameter_learns(example: Example) -> None:
    """Every parameter gets a gradient by some input, each row of an `nn.Linear` too, and every gradient is finite."""
    tried = probe(example)
    rows = {f"{name}.weight" for name, module in tried.named_modules() if isinstance(module, nn.Linear)}
    learning: dict[str, Tensor] = {}
    for batch, time in ((2, 6), (64, 8)):  # of few tokens an expert may have none, and a ReLU none above 0
        for name, slope in gradients(tried, weighted(tried(*tried.inputs(batch=batch, time=time)))).items():
            finite(slope, f"the gradient of {name}")
            now = slope.any(1) if name in rows else slope.any()
            learning[name] = now | learning.get(name, torch.zeros_like(now))
        if all(reached.all() for reached in learning.values()):
            return
    for name, reached in learning.items():
        idle, named = (~reached).nonzero(), name.removeprefix("component.")
        if not reached.any():
            raise Broken(f"{named} gets no gradient")
        if len(idle):
            raise Broken(f"{len(idle)} of {len(reached)} rows of {named}, the first {int(idle[0])}, get no gradient")


def float32_is_close_to_float64(example: Example) -> None:
    """Single precision gives the numbers of double precision, forward and backward."""
    single, double = probe(example), probe(example).double()
    outputs, slopes = [], []
    for tried, dtype in ((single, torch.float32), (double, torch.float64)):
        inputs = leaves(tried.inputs(dtype))
        y = tried(*inputs)
        outputs.append(y)
        slopes.append(gradients(tried, weighted(y.double()), *(t for t in inputs if t.requires_grad)))
    if outputs[1].dtype != torch.float64:
        raise Broken(f"float64 gives {outputs[1].dtype}")
    close(outputs[0], outputs[1], "float32 and float64", 1e-5)
    _close_gradients(slopes[0], slopes[1], "float32 and float64", 1e-4)


def bf16_is_finite_and_close(example: Example) -> None:
    """In bfloat16 throughout: finite, forward and backward, and close to the same values in float64."""
    tried = probe(example).bfloat16()
    exact = copy.deepcopy(tried).double()
    inputs = leaves(tried.inputs(torch.bfloat16))
    y = tried(*inputs)
    if y.dtype != torch.bfloat16:
        raise Broken(f"bfloat16 gives {y.dtype}")
    finite(y, "bfloat16")
    for name, gradient in gradients(tried, weighted(y.float()), *(t for t in inputs if t.requires_grad)).items():
        finite(gradient, f"bfloat16, the gradient of {name}")
    close(y, exact(*(t.double() if t.is_floating_point() else t for t in inputs)), "bfloat16", BF16_TOLERANCE)


def autocast_is_finite_and_close(example: Example) -> None:
    """Under autocast to bfloat16: finite, forward and backward, and close to float32."""
    tried = probe(example)
    inputs = leaves(tried.inputs())
    with torch.autocast("cpu", torch.bfloat16):
        y = tried(*inputs)
    finite(y, "autocast")
    for name, gradient in gradients(tried, weighted(y.float()), *(t for t in inputs if t.requires_grad)).items():
        finite(gradient, f"autocast, the gradient of {name}")
    close(y, tried(*inputs), "autocast", BF16_TOLERANCE)


def state_dict_round_trips(example: Example) -> None:
    """A state dict holds all: loaded into another one with other values, strictly, it gives the same output."""
    tried, other = probe(example), probe(example, seed=1)
    file = io.BytesIO()
    torch.save(tried.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True), strict=True)
    same(other(*tried.inputs()), tried(*tried.inputs()), "loaded and saved", 0.0)


def copies_are_equal_and_apart(example: Example) -> None:
    """A deep copy gives the same output, and shares no parameter."""
    tried = probe(example)
    before = tried(*tried.inputs())
    other = copy.deepcopy(tried)
    same(other(*tried.inputs()), before, "the copy", 0.0)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(NAN)
    same(tried(*tried.inputs()), before, "the original, after its copy was overwritten", 0.0)


def built_on_meta_is_the_same(example: Example) -> None:
    """Built on the meta device, emptied and initialised, it is what it is when built directly: no lost buffers."""
    direct = example.plain()
    with torch.device("meta"):
        deferred = example.plain()
    if held := [name for name, t in (*deferred.named_parameters(), *deferred.named_buffers()) if not t.is_meta]:
        raise Broken(f"{held[0]} holds memory though it was built on the meta device")
    deferred.to_empty(device="cpu")
    with torch.no_grad():
        for t in (*deferred.parameters(), *deferred.buffers()):
            t.fill_(NAN if t.is_floating_point() else 0)
    outputs = []
    for built in (direct, deferred):
        initialise(built, Normal(), 0)
        outputs.append(_probed(example, built))
    for (name, p), q in zip(direct.named_parameters(), deferred.parameters(), strict=True):
        if not torch.equal(p, q):
            raise Broken(f"{name} differs after to_empty and initialise by {distance(p, q):.2g}")
    same(outputs[1], outputs[0], "built on the meta device and directly", 0.0)


def exports(example: Example) -> None:
    """``torch.export`` takes it with any batch and length, and the program gives the same output at other ones.

    Torch unrolls its own recurrences, which fixes the length of what holds one.
    """
    tried = probe(example)
    inputs = tried.inputs(batch=2, time=6)
    batch, dynamic = torch.export.Dim("batch", min=1, max=64), []
    for number, t in enumerate(inputs):
        sizes = {0: batch}
        if t.dim() > 1:
            sizes[t.dim() - 2 if t.is_floating_point() else 1] = torch.export.Dim.AUTO
        dynamic.append(sizes if number else dict(sizes))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.export.export(Flat(tried, len(inputs)), inputs, dynamic_shapes=(tuple(dynamic),))
        unrolled = any(isinstance(module, nn.RNNBase) for module in tried.modules())
        for batch_size, time in ((2, 6), (3, 6 if unrolled else 11)):
            other = tried.inputs(batch=batch_size, time=time)
            same(program.module()(*other), tried(*other), f"exported, at (batch {batch_size}, time {time})")


def compiles(example: Example) -> None:
    """``torch.compile`` takes it in one graph, which gives the same output and gradients, at another length too.

    The backend is ``aot_eager``: it traces forward and backward as the default does, and needs no C++ compiler. Torch
    traces no recurrence of its own, and leaves what holds one in pieces.
    """
    tried = probe(example)
    whole = not any(isinstance(module, nn.RNNBase) for module in tried.modules())
    torch.compiler.reset()  # the programs of an earlier choice count towards a limit
    compiled = torch.compile(tried, backend="aot_eager", fullgraph=whole)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch, time in ((2, 6), (3, 9)):
            outputs, slopes = [], []
            for function in (compiled, tried):
                inputs = leaves(tried.inputs(batch=batch, time=time))
                y = function(*inputs)
                outputs.append(y)
                slopes.append(gradients(tried, weighted(y), *(t for t in inputs if t.requires_grad)))
            same(outputs[0], outputs[1], f"compiled, at (batch {batch}, time {time})")
            _close_gradients(slopes[0], slopes[1], f"compiled, at (batch {batch}, time {time})", 1e-4)


class Flat(nn.Module):
    """A probe whose forward takes any number of tensors, all of which may have dynamic sizes."""

    def __init__(self, tried: Probe, n_inputs: int) -> None:
        super().__init__()
        self.tried, self.n_inputs = tried, n_inputs

    def forward(self, *inputs: Tensor) -> Tensor:
        """The probe's output."""
        y: Tensor = self.tried(*inputs)
        return y


def leaves(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Inputs with gradients, where they can have one."""
    return tuple(t.requires_grad_() if t.is_floating_point() else t for t in inputs)


def _close_gradients(actual: dict[str, Tensor], expected: dict[str, Tensor], what: str, tolerance: float) -> None:
    for name, gradient in expected.items():
        close(actual[name], gradient, f"{what}, the gradient of {name}", tolerance)


def _probed(example: Example, built: nn.Module) -> Tensor:
    from variants.testing.probes import PROBES

    tried = PROBES[example.slot.name](built).eval()
    y: Tensor = tried(*tried.inputs())
    return y.detach()


COMMON = (
    shape_and_dtype,
    rows_alone,
    every_parameter_learns,
    float32_is_close_to_float64,
    bf16_is_finite_and_close,
    autocast_is_finite_and_close,
    state_dict_round_trips,
    copies_are_equal_and_apart,
    built_on_meta_is_the_same,
)
