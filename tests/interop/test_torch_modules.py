"""The Transformer of 2017 and the LSTM equal torch's own, forward and backward, in float64."""

import pytest
import torch
from torch import nn

from variants.blocks.masks import AttentionMask
from variants.interop.weights import affine, read
from variants.models import build
from variants.slots import mixers

DOUBLE = torch.float64
FIELDS = {
    "layout": {"name": "encoder_decoder", "shared_vocabulary": True},
    "d_model": 16,
    "n_layers": 2,
    "n_heads": 4,
    "vocab": 5,
    "bias": True,
    "position": "none",
    "norm": "layernorm",
    "feedforward": {"name": "relu", "d_ff": 24},
    "decoder": {"n_layers": 3},
}


def weights_of(ours):
    """Where each parameter lies in `torch.nn.Transformer`."""
    weights = {}
    for side in ("encoder", "decoder"):
        weights |= affine(f"{side}.norm", f"{side}.norm")
        for i, layer in enumerate(getattr(ours, side).layers):
            name = f"{side}.layers.{i}"
            attentions = (
                {"mixer": "self_attn"} if layer.cross is None else {"mixer": "self_attn", "cross": "multihead_attn"}
            )
            for our, their in attentions.items():
                for part, projection in enumerate("qkv"):
                    fused = affine(f"{name}.{our}.{projection}", f"{name}.{their}.in_proj", part, of=3)
                    weights |= {k: type(w)(w.name.replace("proj.", "proj_"), part, 3) for k, w in fused.items()}
                weights |= affine(f"{name}.{our}.out", f"{name}.{their}.out_proj")
            weights |= affine(f"{name}.feedforward.up", f"{name}.linear1")
            weights |= affine(f"{name}.feedforward.down", f"{name}.linear2")
            for branch in range(len(layer.parts)):
                weights |= affine(f"{name}.residual.norms.{branch}", f"{name}.norm{branch + 1}")
    return weights


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [False, True])
def test_the_encoder_decoder_of_2017_equals_torchs_in_both_norm_orders(norm_first):
    theirs = nn.Transformer(16, 4, 2, 3, 24, dropout=0.0, batch_first=True, norm_first=norm_first, dtype=DOUBLE)
    if not norm_first:
        theirs.encoder.norm = theirs.decoder.norm = None  # torch ends in a norm always, the paper does not
    for parameter in theirs.parameters():
        parameter.data.normal_(0, 0.3)
    ours = build({**FIELDS, "residual": "pre" if norm_first else "post"}).double()
    weights = weights_of(ours)
    kept = [name for name in ours.state_dict() if not name.startswith("embedding")]
    ours.load_state_dict(read(weights, theirs.state_dict(), kept), strict=False)

    source, target = torch.randn(3, 7, 16, dtype=DOUBLE), torch.randn(3, 5, 16, dtype=DOUBLE)
    pads = torch.zeros(3, 7, dtype=torch.bool)
    pads[1, 4:] = True
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = theirs(source, target, tgt_mask=causal, src_key_padding_mask=pads, memory_key_padding_mask=pads)
    seen = AttentionMask(keep=~pads)
    memory, _ = ours.encoder(source, seen)
    hidden, _ = ours.decoder(target, AttentionMask(causal=True), memory=memory, memory_mask=seen)
    torch.testing.assert_close(hidden, expected, rtol=0, atol=1e-12)

    direction = torch.randn_like(expected)
    for made in (hidden, expected):
        (made * direction).sum().backward()
    slopes = {name: p.grad for name, p in theirs.named_parameters()}
    for name in kept:
        slope = weights[name].read(slopes[weights[name].name])
        torch.testing.assert_close(ours.get_parameter(name).grad, slope, rtol=0, atol=1e-11)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_lstm_equals_torchs(bidirectional):
    theirs = nn.LSTM(8, 4 if bidirectional else 8, batch_first=True, bidirectional=bidirectional, dtype=DOUBLE)
    ours = mixers.build("lstm", d_model=8, bidirectional=bidirectional).double()
    ours.lstm.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 6, 8, dtype=DOUBLE)
    y, (expected, _) = ours(x), theirs(x)
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    direction = torch.randn_like(y)
    for made in (y, expected):
        (made * direction).sum().backward()
    for our, their in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(our.grad, their.grad, rtol=0, atol=1e-12)
