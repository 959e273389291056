"""What a kernel is, and how attention weights are had on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from variants.blocks.masks import AttentionMask


class Needs(NamedTuple):
    """What a mixer will ask of its kernel, known when the model is built."""

    dropout: float = 0.0
    learned_bias: bool = False
    device: str = "cpu"


class Kernel(nn.Module):
    """How attention is computed. One instance a mixer, no parameters.

    ``softmax(scale * q k' + bias) v`` over the keys that the mask shows; a query that sees no key gives 0, with finite
    gradients. Query head h uses key head ``h // (heads / kv_heads)``.

    Attributes:
        reason: Why this one runs, where it was not the one asked for.
    """

    reason: str = ""

    def refuses(self, needs: Needs) -> str | None:
        """Why this kernel cannot do that, and which can; None: it can."""
        return None

    def settle(self, needs: Needs) -> None:
        """Hear, once, what will be asked.

        Raises:
            ValueError: The kernel cannot do it.
        """
        if reason := self.refuses(needs):
            raise ValueError(reason)

    @property
    def effective(self) -> str:
        """The name of the kernel that runs; of the class, unless a kernel chooses among others."""
        return type(self).__name__.lower()

    def forward(
        self,
        q: Float[Tensor, "batch heads time d_head"],
        k: Float[Tensor, "batch kv_heads source d_head"],
        v: Float[Tensor, "batch kv_heads source d_value"],
        mask: AttentionMask,
        *,
        bias: Float[Tensor, "#batch heads time _"] | None = None,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch heads time d_value"]:
        """Attend.

        Args:
            q: Queries: the last ``time`` of the keys.
            k: Keys; ``heads`` is a multiple of ``kv_heads``.
            v: Values, whose width may differ (MLA).
            mask: Which keys a query sees.
            bias: Added to the scores; may be longer than the keys, of which its last ones are meant.
            scale: Of the scores; ``d_head ** -0.5`` if None.
            dropout: Rate on the attention weights; the caller gives 0 in evaluation.
        """
        raise NotImplementedError


def weights_of(
    q: Float[Tensor, "batch heads time d_head"],
    k: Float[Tensor, "batch kv_heads source d_head"],
    mask: AttentionMask,
    bias: Float[Tensor, "#batch heads time _"] | None,
    scale: float | None,
) -> Float[Tensor, "batch heads time source"]:
    """The attention weights, by plain tensor operations; a row that sees nothing is all 0."""
    n_query, n_key = q.shape[-2], k.shape[-2]
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias[..., -n_key:]
    if mask.flag(n_query, n_key) == "all":
        return scores.softmax(-1)
    hidden = ~mask.dense(n_query, n_key, q.device)
    return scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(hidden, 0.0)


@contextmanager
def recorded(
    model: nn.Module, wanted: Callable[[str], bool] = lambda name: True
) -> Iterator[dict[str, list[Float[Tensor, "batch heads time source"]]]]:
    """Record attention weights while a model runs; its own path does not change.

    Hooks recompute the weights of the wanted kernels by `weights_of`, without gradients and without dropout.

    Args:
        model: Any module that holds kernels.
        wanted: Which kernels, by module name (``stack.layers.3.mixer.kernel``).

    Yields:
        The kernel's module name to its weights, one tensor a call.

    >>> # with recorded(model, lambda name: "layers.1." in name) as weights: model(ids)
    """
    weights: dict[str, list[Tensor]] = {}
    handles = []

    def hook_of(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            q, k, _, mask = args
            with torch.no_grad():
                made = weights_of(q, k, mask, kwargs.get("bias"), kwargs.get("scale"))
            weights.setdefault(name, []).append(made)

        return hook

    for name, module in model.named_modules():
        if isinstance(module, Kernel) and wanted(name):
            handles.append(module.register_forward_pre_hook(hook_of(name), with_kwargs=True))
    try:
        yield weights
    finally:
        for handle in handles:
            handle.remove()
