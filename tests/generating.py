"""Small models to generate with."""

import torch
from torch import nn

from variants.models import build

LAYOUTS = ("decoder_only", "encoder_decoder")


def small(layout="decoder_only", *, seed=0, vocab=20, **fields):
    """A model whose logits are far apart, so that its sequences differ."""
    default = {
        "position": "rotary",
        "max_length": 40,
        "embedding": "untied",
        "initialiser": {"name": "normal", "std": 0.4},
    }
    config = {"d_model": 16, "n_layers": 2, "n_heads": 4, "layout": layout, **default, **fields}
    return build(config, vocab=vocab, seed=seed).eval()


def forced(model, prompt, *rows):
    """Logits of every new token and of the one after them, by one pass without cache or pads, for each of the rows."""
    new = torch.tensor([list(row) for row in rows], dtype=torch.long)
    prompts = torch.tensor([list(prompt)] * len(rows), dtype=torch.long)
    starts = torch.full((len(rows), 1), 2)
    with torch.no_grad():
        if hasattr(model, "encode"):
            return model(prompts, torch.cat((starts, new), 1)).logits
        begun = prompts if prompts.shape[1] else starts
        return model(torch.cat((begun, new), 1)).logits[:, begun.shape[1] - 1 :]


class Chain(nn.Module):
    """A language model whose next token depends on the last alone, by a table of probabilities."""

    embedding = None

    def __init__(self, *rows):
        super().__init__()
        self.table = torch.tensor(rows).log()
        self.steps = 0

    def hidden(self, ids, mask=None, cache=None):
        self.steps += 1
        if cache is not None:
            cache.extend(mask, *ids.shape, ids.device)
        return self.table[ids], {}

    def head(self, x, embedding):
        assert x.shape[1] == 1, "more than the last position is projected"
        return x
