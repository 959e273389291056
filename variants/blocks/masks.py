"""Who may attend to whom, as a description that each kernel lowers to its cheapest form.

Everything about keys is aligned at its end: the queries are the last ``time`` of the keys. Causality bottom-right,
chunked prefill, single steps, rings and left pads are then one rule, and no absolute slot index exists.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class AttentionMask:
    """Which keys a query sees. True means "may attend"; a query that sees no key gives 0.

    Args:
        keep: Which keys are real tokens, on whichever side the pads are.
        documents: The document of every key; a query sees its own document alone.
        query_documents: The documents of the queries, where they are not the last of ``documents``: in cross-attention
            over packed pairs.
        prefix: Which keys earlier queries see as well. A flag a key, not a length: it is cut like ``keep``.
        causal: Whether a query sees no later key.
        window: A query sees keys at a distance below this, in both directions.

    Raises:
        ValueError: A flag tensor is not boolean, documents are not integers, or the window is below 1.
    """

    keep: Bool[Tensor, "batch source"] | None = None
    documents: Int[Tensor, "batch source"] | None = None
    query_documents: Int[Tensor, "batch time"] | None = None
    prefix: Bool[Tensor, "batch source"] | None = None
    causal: bool = False
    window: int | None = None

    def __post_init__(self) -> None:
        for name in ("keep", "prefix"):
            flags = getattr(self, name)
            if isinstance(flags, Tensor) and flags.dtype != torch.bool:
                raise ValueError(f"{name} must be boolean (True: may attend), not {flags.dtype}")
        for name in ("documents", "query_documents"):
            numbers = getattr(self, name)
            if isinstance(numbers, Tensor) and (numbers.is_floating_point() or numbers.dtype == torch.bool):
                raise ValueError(f"{name} must be integers, not {numbers.dtype}")
        if self.window is not None and self.window < 1:
            raise ValueError(f"window must be at least 1, not {self.window}")

    def narrowed(self, window: int | None) -> AttentionMask:
        """The mask under a layer's own window, if that is the smaller one."""
        if window is None:
            return self
        return replace(self, window=window if self.window is None else min(window, self.window))

    def fits(self, n_key: int) -> None:
        """Refuse a mask of another length, of which the last keys would be taken.

        Raises:
            ValueError: A tensor has more or fewer keys than there are.
        """
        for name in ("keep", "documents", "prefix"):
            said = getattr(self, name)
            if said is not None and (said.ndim != 2 or said.shape[1] != n_key):
                raise ValueError(f"{name} has shape {tuple(said.shape)}, but there are {n_key} keys: (batch, {n_key})")

    def flag(self, n_query: int, n_key: int) -> Literal["all", "causal", "dense"]:
        """What a kernel must do: nothing, its causal flag (square, and nothing else is said), or the dense mask."""
        if self.keep is not None or self.documents is not None or self.prefix is not None:
            return "dense"
        # A window or a length may be a symbol under export: compare integers only.
        known = isinstance(n_query, int) and isinstance(n_key, int)
        if self.window is not None and not (known and max(n_query, n_key) <= self.window):
            return "dense"
        if not self.causal or (isinstance(n_query, int) and n_query == 1):
            return "all"
        return "causal" if n_query == n_key else "dense"

    def may_hide_rows(self, n_query: int, n_key: int) -> bool:
        """Whether some query may see no key at all."""
        return (
            self.keep is not None
            or self.documents is not None
            or ((self.causal or self.window is not None) and n_query is not n_key and n_query > n_key)
        )

    def dense(self, n_query: int, n_key: int, device: torch.device | str) -> Bool[Tensor, "#batch 1 time source"]:
        """The rule as a tensor; for kernels alone."""
        query = torch.arange(n_query, device=device)[:, None] + (n_key - n_query)
        key = torch.arange(n_key, device=device)[None, :]
        seen = (key <= query) if self.causal else torch.ones(n_query, n_key, dtype=torch.bool, device=device)
        seen = seen[None]
        if self.prefix is not None:
            seen = seen | self.prefix[:, None, -n_key:]
        if self.window is not None:
            seen = seen & ((query - key).abs() < self.window)
        if self.documents is not None:
            own = self.documents[:, -n_query:] if self.query_documents is None else self.query_documents
            seen = seen & (own[:, :, None] == self.documents[:, None, -n_key:])
        if self.keep is not None:
            seen = seen & self.keep[:, None, -n_key:]
        return seen[:, None]

    def blank(self, x: Float[Tensor, "batch time d"]) -> Float[Tensor, "batch time d"]:
        """Zero the pads of x, so that what they hold (NaN, say) travels neither forward nor backward."""
        return x if self.keep is None else x.masked_fill(~self.keep[:, -x.shape[1] :, None], 0.0)


def positions_of(mask: AttentionMask, length: int, device: torch.device | str) -> Int[Tensor, "#batch source"]:
    """Count real tokens from 0 in each row, restarting at documents; pads do not count.

    >>> keep = torch.tensor([[False, False, True, True, True]])
    >>> positions_of(AttentionMask(keep=keep), 5, "cpu")
    tensor([[0, 0, 0, 1, 2]])
    """
    if mask.keep is not None:
        real = mask.keep
    elif mask.documents is not None:
        real = torch.ones_like(mask.documents, dtype=torch.bool)
    else:
        return torch.arange(length, device=device)[None]
    count = real.long().cumsum(1)
    if mask.documents is not None:
        before = torch.where(starts_of(mask.documents), count - real.long(), 0).cummax(1).values
        count = count - before
    return (count - 1).clamp(min=0)


def starts_of(documents: Int[Tensor, "batch source"]) -> Bool[Tensor, "batch source"]:
    """Where a document begins: True at the first of every row and wherever the document changes."""
    return torch.nn.functional.pad(documents[:, 1:] != documents[:, :-1], (1, 0), value=True)


# A pytree by hand: the tensors that are there are leaves, the rest is structure. (`export.register_dataclass` would
# make `causal` a leaf, and a graph break of every program that branches on it.)
_TENSORS = ("keep", "documents", "query_documents", "prefix")


def _flatten(mask: AttentionMask) -> tuple[list[Tensor], tuple[tuple[str, ...], bool, int | None]]:
    names = tuple(name for name in _TENSORS if getattr(mask, name) is not None)
    return [getattr(mask, name) for name in names], (names, mask.causal, mask.window)


def _flatten_with_keys(mask: AttentionMask) -> tuple[list[tuple[Any, Tensor]], Any]:
    leaves, context = _flatten(mask)
    return [(pytree.GetAttrKey(n), leaf) for n, leaf in zip(context[0], leaves, strict=True)], context


def _unflatten(leaves: Any, context: Any) -> AttentionMask:
    names, causal, window = context
    mask = object.__new__(AttentionMask)  # leaves may be anything here, so nothing is checked
    fields = {**dict.fromkeys(_TENSORS), **dict(zip(names, leaves, strict=True)), "causal": causal, "window": window}
    for name, value in fields.items():
        object.__setattr__(mask, name, value)
    return mask


pytree.register_pytree_node(
    AttentionMask,
    _flatten,
    _unflatten,
    serialized_type_name="variants.AttentionMask",
    flatten_with_keys_fn=_flatten_with_keys,
    to_dumpable_context=lambda context: [list(context[0]), *context[1:]],
    from_dumpable_context=lambda context: (tuple(context[0]), *context[1:]),
)
