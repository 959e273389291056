"""Attention in loops, from the definitions: the reference of kernels and mixers."""

import torch


def sees(mask, row, query, key, n_query, n_key):
    """Whether a query may attend to a key; both end at the same token."""
    at = query + n_key - n_query
    seen = not mask.causal or key <= at
    if mask.prefix is not None:
        seen = seen or bool(mask.prefix[row, key])
    if mask.window is not None:
        seen = seen and abs(at - key) < mask.window
    if mask.documents is not None:
        own = mask.documents[row, at] if mask.query_documents is None else mask.query_documents[row, query]
        seen = seen and bool(own == mask.documents[row, key])
    if mask.keep is not None:
        seen = seen and bool(mask.keep[row, key])
    return seen


def slow_weights(q, k, mask, bias=None, scale=None):
    """softmax(scale * q k' + bias) over the keys that are seen, a row at a time; nothing seen, nothing attended to."""
    batch, n_heads, n_query, d_head = q.shape
    group, n_key = n_heads // k.shape[1], k.shape[2]
    scale = d_head**-0.5 if scale is None else scale
    rows = []
    for b in range(batch):
        for h in range(n_heads):
            for i in range(n_query):
                seen = [j for j in range(n_key) if sees(mask, b, i, j, n_query, n_key)]
                row = torch.zeros(n_key, dtype=q.dtype)
                if seen:
                    scores = torch.stack([(q[b, h, i] * k[b, h // group, j]).sum() * scale for j in seen])
                    if bias is not None:
                        scores = scores + bias[b % len(bias), h, i, bias.shape[-1] - n_key :][seen]
                    row = row.index_put((torch.tensor(seen),), scores.softmax(0))
                rows.append(row)
    return torch.stack(rows).unflatten(0, (batch, n_heads, n_query))


def slow_attention(q, k, v, mask, bias=None, scale=None):
    """The weighted sums of the values; query head h uses value head h // group."""
    weights, group = slow_weights(q, k, mask, bias, scale), q.shape[1] // v.shape[1]
    heads = [torch.einsum("bls,bsd->bld", weights[:, h], v[:, h // group]) for h in range(q.shape[1])]
    return torch.stack(heads, 1)
