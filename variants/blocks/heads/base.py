"""What a head is: logits of hidden states, and the loss of targets without ever holding all logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from variants.blocks.embeddings.base import Embedding

IGNORED = -100  # a target that is none; torch's own number

Sums = tuple[Float[Tensor, ""], Float[Tensor, ""]]


class Loss(NamedTuple):
    """Sums over targets.

    Attributes:
        loss: What training minimises, in nats, in float32 at least.
        nll: The negative log-likelihood, unsmoothed, without gradients.
        count: The number of targets.
        correct: Of which the likeliest token was right; counted where gradients are off.
    """

    loss: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    count: Int[Tensor, ""]  # type: ignore[assignment]  # over the tuple's own method
    correct: Int[Tensor, ""] | None = None


def cross_entropy(
    logits: Float[Tensor, "targets vocab"], targets: Int[Tensor, "targets"], label_smoothing: float
) -> Sums:
    """Sum the smoothed loss, and the plain one without gradients.

    Smoothing spreads epsilon over the whole vocabulary, the target included: ``(1 - eps) nll - eps mean(log p)``.

    Source: Szegedy et al. 2016, "Rethinking the Inception Architecture for Computer Vision", arXiv:1512.00567,
    section 7.
    """
    log_p = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    nll = F.nll_loss(log_p, targets, reduction="sum")
    if label_smoothing == 0:
        return nll, nll.detach()
    spread = -log_p.mean(-1).sum()
    return (1 - label_smoothing) * nll + label_smoothing * spread, nll.detach()


class _Chunked(torch.autograd.Function):
    """Differentiate a sum over tokens chunk by chunk, each as soon as it is computed, so that no chunk's logits stay.

    Nothing is computed twice. The price is the parameters' gradients, held from here to the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        piece: Callable[[Tensor, Tensor], Sums],
        chunk: int,
        targets: Int[Tensor, "targets"],
        x: Float[Tensor, "targets d_model"],
        *parameters: Tensor,
    ) -> Sums:
        total: list[Tensor | None] = [None] * len(parameters)
        gradients, losses, nlls = [], [], []
        for part, wanted in _chunks(chunk, x.detach(), targets):
            with torch.enable_grad():
                loss, nll = piece(part.requires_grad_(), wanted)
            gradient, *new = torch.autograd.grad(loss, [part, *parameters], allow_unused=True)
            total = [_added(t, n) for t, n in zip(total, new, strict=True)]
            gradients.append(gradient)
            losses.append(loss.detach())
            nlls.append(nll)
        ctx.save_for_backward(torch.cat(gradients), *total)
        loss, nll = torch.stack(losses).sum(), torch.stack(nlls).sum()
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        gradients = [None if g is None else g * outer[0] for g in ctx.saved_tensors]
        return None, None, None, *gradients


def _chunks(size: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Pieces of the first dimension; one empty piece where there is nothing."""
    return zip(*(torch.split(t, size) for t in tensors), strict=True)


def _added(total: Tensor | None, new: Tensor | None) -> Tensor | None:
    if new is None:
        return total
    if total is None:  # a copy, for two parameters may share a gradient; and many chunks are summed in float32 at least
        return new.to(torch.promote_types(new.dtype, torch.float32), copy=True)
    return total.add_(new)


class Head(nn.Module):
    """Make logits of hidden states, and the loss of targets.

    Args:
        chunk: How many targets' logits exist at once in training.

    Raises:
        ValueError: ``chunk`` is not positive.
    """

    def __init__(self, *, chunk: int = 512) -> None:
        super().__init__()
        if chunk < 1:
            raise ValueError(f"chunk={chunk}: must be positive, the logits of so many targets exist at once")
        self.chunk = chunk

    def forward(self, x: Float[Tensor, "*batch d_model"], embedding: Embedding) -> Float[Tensor, "*batch vocab"]:
        """Make logits."""
        raise NotImplementedError

    def loss(
        self,
        x: Float[Tensor, "batch time d_model"],
        targets: Int[Tensor, "batch time"],
        embedding: Embedding,
        label_smoothing: float = 0.0,
    ) -> Loss:
        """Sum the loss over targets; ignored ones are never projected.

        Without a target the loss is 0, and so are the gradients of all that it would have used.

        Args:
            x: Hidden states.
            targets: Ids, or `IGNORED`.
            embedding: The model's, for its other direction.
            label_smoothing: The part of a target's probability that is spread over the vocabulary.
        """
        kept = targets != IGNORED
        states, wanted = x[kept], targets[kept]

        def piece(part: Tensor, ids: Tensor) -> Sums:
            return cross_entropy(self(part, embedding), ids, label_smoothing)

        used = [p for p in (*self.parameters(), *embedding.parameters()) if p.requires_grad]
        if torch.is_grad_enabled():
            loss, nll = _Chunked.apply(  # type: ignore[no-untyped-call]
                piece, self.chunk, wanted, states, *used
            )
            return Loss(loss, nll, kept.sum())
        sums = []
        for part, ids in _chunks(self.chunk, states, wanted):
            logits = self(part, embedding)
            right = (logits.argmax(-1) == ids).sum()
            sums.append((*cross_entropy(logits, ids, label_smoothing), right))
        loss, nll, correct = (torch.stack(s).sum() for s in zip(*sums, strict=True))
        return Loss(loss, nll, kept.sum(), correct)
