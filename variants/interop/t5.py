"""T5, read."""

from __future__ import annotations

from typing import Any

from variants.interop.family import PLAIN, Family, feedforward_of
from variants.interop.weights import Weight, Weights, affine

# Their gated GELU is approximated by tanh, ours is exact.
GATED = {"silu": {"name": "swiglu"}}


def model_of(theirs: Any) -> dict[str, Any]:
    """Our model's config of their config; their dropout on a stack's output, in training, has no place here."""
    known = GATED if theirs.is_gated_act else PLAIN
    attention = {"name": "attention", "d_head": theirs.d_kv, "scale": 1.0}
    return {
        "layout": {"name": "encoder_decoder", "shared_vocabulary": True},
        "d_model": theirs.d_model,
        "n_layers": theirs.num_layers,
        "n_heads": theirs.num_heads,
        "vocab": theirs.vocab_size,
        "bias": False,
        "norm_eps": theirs.layer_norm_epsilon,
        "dropout": theirs.dropout_rate,
        "mixer": attention,
        "cross": attention,
        "position": {
            "name": "relative",
            "n_buckets": theirs.relative_attention_num_buckets,
            "max_distance": theirs.relative_attention_max_distance,
        },
        "norm": "rmsnorm",
        "residual": "pre",
        "feedforward": feedforward_of("t5", theirs.dense_act_fn, known, theirs.d_ff),
        "embedding": "tied" if theirs.tie_word_embeddings else "untied",
        "head": {"name": "linear", "scaled": theirs.scale_decoder_outputs},
        "decoder": {"n_layers": theirs.num_decoder_layers},
    }


def weights_of(model: Any) -> Weights:
    """Where each parameter lies."""
    weights = {
        "embedding.table.weight": Weight("shared.weight"),
        "embedding.output.weight": Weight("lm_head.weight"),
    }
    for side in ("encoder", "decoder"):
        bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        weights[f"{side}.positions.0.table.weight"] = Weight(bias)
        weights[f"{side}.norm.weight"] = Weight(f"{side}.final_layer_norm.weight")
        for i, layer in enumerate(getattr(model, side).layers):
            ours, theirs = f"{side}.layers.{i}", f"{side}.block.{i}.layer"
            weights |= _attention(f"{ours}.mixer", f"{theirs}.0.SelfAttention")
            weights |= _attention(f"{ours}.cross", f"{theirs}.1.EncDecAttention")
            last = len(layer.parts) - 1
            dense = f"{theirs}.{last}.DenseReluDense"
            gated = hasattr(layer.feedforward, "gate")
            weights |= affine(f"{ours}.feedforward.gate", f"{dense}.wi_0")
            weights |= affine(f"{ours}.feedforward.up", f"{dense}.wi_1" if gated else f"{dense}.wi")
            weights |= affine(f"{ours}.feedforward.down", f"{dense}.wo")
            for branch in range(last + 1):
                norm = Weight(f"{theirs}.{branch}.layer_norm.weight")
                weights[f"{ours}.residual.norms.{branch}.weight"] = norm
    return weights


def _attention(ours: str, theirs: str) -> Weights:
    names = {"q": "q", "k": "k", "v": "v", "out": "o"}
    return {f"{ours}.{our}.weight": Weight(f"{theirs}.{their}.weight") for our, their in names.items()}


T5 = Family("t5", model_of, weights_of)
