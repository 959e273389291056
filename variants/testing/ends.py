"""What embeddings and heads promise: a model's two ends."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor

from variants.blocks.heads.base import IGNORED
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
    noise,
    same,
)
from variants.testing.examples import D_MODEL, VOCAB, Example
from variants.testing.probes import HeadProbe, ids_of, probe

# ---------------------------------------------------------------------------------------------------------------------
# Embeddings


@in_both_modes
def each_token_alone(example: Example) -> None:
    """A token's vector depends on its id alone, and a hidden state's logits on that state alone."""
    embedding, ids = example(), ids_of(2, 5)
    vectors = embedding(ids)
    if vectors.shape != (2, 5, D_MODEL):
        raise Broken(f"ids (2, 5) become {tuple(vectors.shape)}, not (2, 5, {D_MODEL})")
    for row, time in ((0, 0), (1, 3)):
        same(embedding(ids[row, time].view(1, 1))[0, 0], vectors[row, time], f"the id at {row, time}, and alone")
    logits = embedding.unembed(vectors)
    if logits.shape != (2, 5, VOCAB):
        raise Broken(f"hidden states (2, 5, {D_MODEL}) become {tuple(logits.shape)}, not (2, 5, {VOCAB})")
    same(embedding.unembed(vectors[1, 3]), logits[1, 3], "the logits of a state, and of it alone")


def ids_differ(example: Example) -> None:
    """Every id has a vector of its own."""
    vectors = example()(torch.arange(VOCAB)[None])[0].detach()
    for first in range(VOCAB):
        for second in range(first):
            if torch.equal(vectors[first], vectors[second]):
                raise Broken(f"ids {second} and {first} have the same vector")


def vectors_have_its_dtype(example: Example) -> None:
    """Vectors have the dtype of the model, and logits that of hidden states: float64, float32 and bfloat16."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        embedding = example().to(dtype)
        for what, y in (
            ("its vectors", embedding(ids_of(2, 3))),
            ("its logits", embedding.unembed(noise(2, 3, D_MODEL, dtype=dtype))),
        ):
            if y.dtype != dtype:
                raise Broken(f"in {dtype}, {what} are {y.dtype}")


# ---------------------------------------------------------------------------------------------------------------------
# Heads


def loss_is_cross_entropy_of_the_logits(example: Example) -> None:
    """The summed loss and its gradients are those of torch's cross-entropy of the head's logits, smoothed or not."""
    for smoothing in (0.0, 0.1):
        tried, targets = _head(example), ids_of(2, 6, seed=1)
        targets[0, 2:4] = IGNORED
        found: list[dict[str, Tensor]] = []
        for own in (True, False):
            x = noise(2, 6, D_MODEL).requires_grad_()
            if own:
                loss = tried.component.loss(x, targets, tried.embedding, smoothing)
                if int(loss.count) != 10:
                    raise Broken(f"it counts {int(loss.count)} targets of 10")
                summed = loss.loss
            else:
                logits = tried(x).flatten(0, 1)
                options = {"reduction": "sum", "label_smoothing": smoothing, "ignore_index": IGNORED}
                summed = F.cross_entropy(logits, targets.flatten(), **options)  # type: ignore[arg-type]
                plain = F.cross_entropy(logits, targets.flatten(), reduction="sum", ignore_index=IGNORED)
                same(loss.nll, plain, f"the unsmoothed loss (label_smoothing {smoothing})")
            found.append({"the loss": summed} | gradients(tried, summed * 0.7, x))
        for name, expected in found[1].items():
            same(found[0][name], expected, f"label_smoothing {smoothing}, {name}", 2e-5)
        with torch.no_grad():
            quiet = tried.component.loss(noise(2, 6, D_MODEL), targets, tried.embedding, smoothing)
        same(quiet.loss, found[0]["the loss"], "the loss without gradients and with")


def ignored_targets_do_not_matter(example: Example) -> None:
    """States at ignored targets change nothing, NaN included; without a target the loss and all gradients are 0."""
    tried, targets = _head(example), ids_of(2, 6, seed=1)
    targets[:, 4:] = IGNORED
    expected = tried.component.loss(noise(2, 6, D_MODEL), targets, tried.embedding)
    for held in (7.0, NAN, INF):
        x = noise(2, 6, D_MODEL)
        x[:, 4:] = held
        x.requires_grad_()
        loss = tried.component.loss(x, targets, tried.embedding)
        same(loss.loss, expected.loss, f"states of {held:g} at ignored targets")
        for name, slope in gradients(tried, loss.loss, x).items():
            finite(slope, f"states of {held:g} at ignored targets: the gradient of {name}")
    x = noise(2, 6, D_MODEL).requires_grad_()
    none = tried.component.loss(x, torch.full_like(targets, IGNORED), tried.embedding)
    if none.loss.item() or none.count.item():
        raise Broken(f"without a target the loss is {none.loss.item():g} of {none.count.item()}")
    for name, slope in gradients(tried, none.loss, x).items():
        if distance(slope, torch.zeros_like(slope)):
            raise Broken(f"without a target the gradient of {name} is not 0")


def loss_in_bf16_is_close(example: Example) -> None:
    """In bfloat16 and under autocast, with gradients and without, the loss is float32 at least and close to float64."""
    tried, targets, x = _head(example), ids_of(2, 6, seed=1), noise(2, 6, D_MODEL, dtype=torch.bfloat16)
    targets[0, 2:4] = IGNORED
    half = copy.deepcopy(tried).bfloat16()
    exact = copy.deepcopy(half).double()
    for what, head, states, automatic, learns in (
        ("bfloat16", half, x, False, True),
        ("bfloat16, without gradients", half, x, False, False),
        ("autocast", tried, x.float(), True, True),
    ):
        leaf = states.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=automatic), torch.set_grad_enabled(learns):
            loss = head.component.loss(leaf, targets, head.embedding)
            expected = exact.component.loss(x.double(), targets, exact.embedding)
        for name in ("loss", "nll"):
            value = getattr(loss, name)
            if value.dtype not in (torch.float32, torch.float64):
                raise Broken(f"{what}: the {name} is {value.dtype}, not float32 at least")
            finite(value, f"{what}: the {name}")
            close(value, getattr(expected, name), f"{what}: the {name}", BF16_TOLERANCE)
        for name, slope in gradients(head, loss.loss, leaf).items():
            finite(slope, f"{what}: the gradient of {name}")


def _head(example: Example) -> HeadProbe:
    tried = probe(example)
    assert isinstance(tried, HeadProbe)
    tried.embedding.requires_grad_()
    return tried


EMBEDDING = (each_token_alone, ids_differ, vectors_have_its_dtype)
HEAD = (loss_is_cross_entropy_of_the_logits, ignored_targets_do_not_matter, loss_in_bf16_is_close)
