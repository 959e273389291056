"""What whole models promise."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from variants.blocks.cache import Cache
from variants.blocks.initialisers import Normal
from variants.blocks.initialisers.base import initialise
from variants.blocks.masks import AttentionMask
from variants.models.stack import Layer
from variants.testing.base import CHUNKS, NAN, Broken, finite, gradients, same, spoil_unused
from variants.testing.examples import VOCAB, Example
from variants.testing.probes import LayoutProbe, ids_of

NEXT = ("causal_lm", "seq2seq")  # the objectives that predict the next token


class Run:
    """A small model, run on targets and their mask; where it reads a source, always the same one.

    Args:
        model: The model, in evaluation.

    Attributes:
        pairs: Whether it reads a source.
        cached: Whether it takes a cache.
        causal: Whether it predicts the next token: by its ``objective``, or because it decodes with a cache.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = model.eval()
        self.pairs = LayoutProbe(model).pairs
        decodes: Any = self.model.decode if self.pairs else model.forward
        self.cached = "cache" in inspect.signature(decodes).parameters
        self.causal = self.cached or getattr(model, "objective", None) in NEXT

    def __call__(
        self,
        ids: Tensor,
        mask: AttentionMask | None = None,
        source: Tensor | None = None,
        source_mask: AttentionMask | None = None,
    ) -> Tensor:
        """Logits or hidden states."""
        mask = mask or AttentionMask()
        if self.pairs:
            source = self.source(ids.shape[0]) if source is None else source
            output = self.model(source, ids, source_mask or AttentionMask(), mask)
        else:
            output = self.model(ids, mask)
        y: Tensor = output if isinstance(output, Tensor) else output.logits
        return y

    @staticmethod
    def source(rows: int) -> Tensor:
        """The source of every row."""
        return ids_of(1, 5, seed=8).expand(rows, -1)


def causality(example: Example) -> None:
    """What predicts the next token does not see it; what does not predict sees both sides."""
    run = Run(example())
    for length in (1, 2, 6):
        ids = ids_of(1, length)
        before = run(ids)
        for token in range(length):
            changed = ids.clone()
            changed[:, token] = (changed[:, token] + 1) % VOCAB
            apart = (run(changed) - before).abs().amax((0, 2))
            for output in range(length):
                hidden, when = run.causal and output < token, f"when token {token} changed (length {length})"
                if hidden and apart[output].item() > 1e-6:
                    raise Broken(f"output {output} moved by {apart[output]:.2g} {when}")
                if not hidden and not apart[output]:
                    raise Broken(f"output {output} did not move {when}")


def padded_rows_are_alone(example: Example) -> None:
    """A row with pads on either side, of its source too, is what it is by itself, whatever its position's kind."""
    for position, (n_real, n_pads) in itertools.product(example.positions, ((1, 1), (4, 3))):
        run, ids = Run(example(position={"name": position})), ids_of(1, n_real)
        alone = run(ids)
        for side, padded, keep in _padded(ids, n_pads):
            other, all_kept = ids_of(1, n_real + n_pads, seed=3), torch.ones_like(keep)
            y = run(torch.cat((padded, other)), AttentionMask(keep=torch.cat((keep, all_kept))))
            same(y[:1][keep], alone[0], f"{n_pads} {side} pads and none ({n_real} tokens, position {position})")
        source = run.source(1)[:, :n_real]
        alone = run(ids, source=source)
        for side, padded, keep in _padded(source, n_pads) if run.pairs else ():
            y = run(ids, None, padded, AttentionMask(keep=keep))
            same(y, alone, f"{n_pads} {side} pads of the source and none ({n_real} tokens, position {position})")


def _padded(ids: Tensor, n_pads: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    """A side, ids with pads there that are ids themselves, and which are real."""
    pads, real = ids_of(1, n_pads, seed=2), torch.ones_like(ids, dtype=torch.bool)
    hidden = torch.zeros_like(pads, dtype=torch.bool)
    yield "left", torch.cat((pads, ids), 1), torch.cat((hidden, real), 1)
    yield "right", torch.cat((ids, pads), 1), torch.cat((real, hidden), 1)


def a_blind_row_is_harmless(example: Example) -> None:
    """A row of pads alone, or a source of pads, leaves outputs and gradients finite, and the other row as it was."""
    run, ids = Run(example()), ids_of(2, 4)
    alone, keep = run(ids[:1]), torch.tensor([[True] * 4, [False] * 4])
    tried = [("a row of pads", run(ids, AttentionMask(keep=keep)))]
    if run.pairs:
        sources = AttentionMask(keep=torch.tensor([[True] * 5, [False] * 5]))
        tried.append(("a source of pads", run(ids, None, run.source(2), sources)))
    for what, y in tried:
        finite(y, f"beside {what}")
        same(y[:1], alone, f"a row beside {what}, and alone")
        for name, slope in gradients(run.model, y.square().sum()).items():
            finite(slope, f"{what}: the gradient of {name}")


def packed_documents_are_alone(example: Example) -> None:
    """Documents packed in a row are what each is by itself, whatever its position's kind."""
    both = (([1, 1], [1, 1]), ([3, 4], [2, 3]))
    for position, (sizes, source_sizes) in itertools.product(example.positions, both):
        run, ids = Run(example(position={"name": position})), ids_of(1, sum(sizes))
        source = run.source(1)[:, : sum(source_sizes)] if run.pairs else None
        parts = [None, None] if source is None else torch.split(source, source_sizes, 1)
        mask, sources = (AttentionMask(documents=_documents(s)) for s in (sizes, source_sizes))
        y = run(ids, mask, source, sources)
        alone = torch.cat([run(*pair) for pair in zip(torch.split(ids, sizes, 1), (None, None), parts, strict=True)], 1)
        said = f", of {source_sizes[0]} and {source_sizes[1]} source tokens" if run.pairs else ""
        same(y, alone, f"documents of {sizes[0]} and {sizes[1]} tokens{said}, packed and alone (position {position})")


def _documents(sizes: list[int]) -> Tensor:
    """Which token is of the first document, and which of the second."""
    return torch.arange(2).repeat_interleave(torch.tensor(sizes))[None]


@torch.no_grad()
def cached_is_uncached(example: Example) -> None:
    """Where it decodes with a cache: prefill, chunks and single steps give what one pass gives.

    Rows have pads on the left, of their source too, and hold one document or several.
    """
    for position in example.positions:
        run = Run(example(position={"name": position}))
        if not run.cached:
            return
        for chunks, packed in itertools.product(CHUNKS, (False, True)):
            ids, source = ids_of(2, sum(chunks), seed=1), run.source(2)
            mask, sources = _rows(ids.shape[1], 1, 8, packed), _rows(source.shape[1], 1, 2, packed)
            expected = run(ids, mask, source, sources)
            cache, outputs = Cache(15), []
            memory = run.model.encode(source, sources)[0] if run.pairs else None
            for at in torch.split(torch.arange(ids.shape[1]), chunks):
                part, said = ids[:, at], _cut(mask, at)
                decoded = (
                    run.model.decode(part, memory, sources, said, cache) if run.pairs else run.model(part, said, cache)
                )
                outputs.append(decoded.logits)
                spoil_unused(cache, NAN)
            what = f"chunks {chunks}, pads{' and documents' if packed else ''}, position {position}"
            same(torch.cat(outputs, 1)[mask.keep], expected[mask.keep], f"cached and uncached, {what}")


def _rows(length: int, first: int, second: int, packed: bool) -> AttentionMask:
    """One row with pads on the left, and one of three documents."""
    keep = torch.ones(2, length, dtype=torch.bool)
    keep[0, : min(3, length - 1)] = False
    own = torch.arange(length)
    documents = torch.stack((torch.zeros_like(own), (own >= first).long() + (own >= first + second)))
    return AttentionMask(keep=keep, documents=documents if packed else None)


def _cut(mask: AttentionMask, at: Tensor) -> AttentionMask:
    """What a mask says of these tokens."""
    keep, documents = (None if facts is None else facts[:, at] for facts in (mask.keep, mask.documents))
    return AttentionMask(keep, documents)


def checkpointing_changes_nothing(example: Example) -> None:
    """With dropout on, recomputed layers change neither the loss nor any gradient."""
    found: list[dict[str, Tensor]] = []
    for every in (0, 1, 2):
        # `auto` would take a kernel by the dropout; what is compared is the same either way.
        model = example(checkpoint_every=every, dropout=0.3)
        run = Run(model)
        model.train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            loss = run(ids_of(2, 6)).square().mean()
            found.append({"the loss": loss} | gradients(model, loss))
    for every, other in zip((1, 2), found[1:], strict=True):
        for name, plain in found[0].items():
            same(other[name], plain, f"every {every} layers recomputed: {name}", 1e-6)
    quiet = Run(example(dropout=0.3))(ids_of(2, 6)).square().mean()
    if torch.equal(quiet, found[0]["the loss"]):
        raise Broken("a dropout of 0.3 changes nothing in training")


def builds_are_equal(example: Example) -> None:
    """Two builds have the same values, and another seed has others, by the names of parameters alone."""
    models = [example.plain(), example.plain(seed=1), example.plain()]
    for model, seed in zip(models, (0, 0, 1), strict=True):
        initialise(model, Normal(), seed)
    first, second, third = (dict(model.named_parameters()) for model in models)
    for name, parameter in first.items():
        if not torch.equal(second[name], parameter):
            raise Broken(f"{name} differs between two builds of one seed")
        if parameter.dim() > 1 and torch.equal(third[name], parameter):
            raise Broken(f"{name} is the same under another seed")


def hidden_states_give_the_logits(example: Example) -> None:
    """The head's logits of its hidden states are its outputs; without a head they are its hidden states."""
    model = example().eval()
    tried = LayoutProbe(model)
    inputs = tried.inputs()
    x, _ = model.hidden(*inputs)
    made = model.head(x, model.embedding) if hasattr(model, "head") else x
    same(made, tried(*inputs), "made of the hidden states, and the model's output", 1e-6)


def losses_of_parts_arrive(example: Example) -> None:
    """What parts add to the loss comes out, beside the hidden states and with the logits, once for every call."""
    model = example(checkpoint_every=1).train()
    tried, calls = LayoutProbe(model), []

    def add(part: nn.Module, inputs: tuple[Any, ...]) -> None:
        calls.append(part)
        inputs[1].add_loss("kit", torch.ones(()))

    for layer in model.modules():
        if isinstance(layer, Layer):
            layer.feedforward.register_forward_pre_hook(add)
    for what in ("hidden", "forward"):
        calls.clear()
        output = getattr(model, what)(*tried.inputs())
        if isinstance(output, Tensor):  # hidden states alone
            continue
        losses = output[1] if what == "hidden" else output.losses
        if float(losses.get("kit", 0)) != len(calls):
            raise Broken(f"{len(calls)} calls of parts add a loss of 1 each, and {what} gives {losses}")


LAYOUT = (
    causality,
    padded_rows_are_alone,
    a_blind_row_is_harmless,
    packed_documents_are_alone,
    cached_is_uncached,
    checkpointing_changes_nothing,
    builds_are_equal,
    hidden_states_give_the_logits,
    losses_of_parts_arrive,
)
