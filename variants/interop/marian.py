"""Marian, read."""

from __future__ import annotations

from typing import Any

from variants.interop.family import PLAIN, Family, feedforward_of, require
from variants.interop.weights import Weight, Weights, affine


def model_of(theirs: Any) -> dict[str, Any]:
    """Our model's config of their config; their positions count pads, so pads must come last."""
    require("marian", "encoder_layerdrop", theirs.encoder_layerdrop, 0)
    require("marian", "decoder_layerdrop", theirs.decoder_layerdrop, 0)
    shared = theirs.share_encoder_decoder_embeddings
    return {
        "layout": {"name": "encoder_decoder", "shared_vocabulary": shared},
        "d_model": theirs.d_model,
        "n_layers": theirs.encoder_layers,
        "n_heads": theirs.encoder_attention_heads,
        "vocab": theirs.vocab_size if shared else theirs.decoder_vocab_size,
        "source_vocab": None if shared else theirs.vocab_size,
        "bias": True,
        "norm_eps": 1e-5,
        "dropout": theirs.dropout,
        "attention_dropout": theirs.attention_dropout,
        "feedforward_dropout": theirs.activation_dropout,
        "mixer": "attention",
        "cross": "attention",
        "position": {"name": "sinusoidal", "layout": "halves"},
        "norm": "layernorm",
        "residual": "post",
        "feedforward": feedforward_of("marian", theirs.activation_function, PLAIN, theirs.encoder_ffn_dim),
        "embedding": {"name": "tied" if theirs.tie_word_embeddings else "untied", "scale": theirs.scale_embedding},
        "head": {"name": "linear", "bias": True},
        "initialiser": {"name": "normal", "std": theirs.init_std},
        "decoder": {
            "n_layers": theirs.decoder_layers,
            "n_heads": theirs.decoder_attention_heads,
            "feedforward": {"d_ff": theirs.decoder_ffn_dim},
        },
    }


def weights_of(model: Any) -> Weights:
    """Where each parameter lies."""
    shared = model.source_embedding is None
    weights = {
        "embedding.table.weight": Weight("model.shared.weight" if shared else "model.decoder.embed_tokens.weight"),
        "source_embedding.table.weight": Weight("model.encoder.embed_tokens.weight"),
        "embedding.output.weight": Weight("lm_head.weight"),
        "head.bias": Weight("final_logits_bias", row=True),
    }
    for side in ("encoder", "decoder"):
        for i, layer in enumerate(getattr(model, side).layers):
            ours, theirs = f"{side}.layers.{i}", f"model.{side}.layers.{i}"
            norms = ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"]
            if layer.cross is None:
                norms.pop(1)
            for our, their in (("mixer", "self_attn"), ("cross", "encoder_attn")):
                for name in ("q", "k", "v", "out"):
                    weights |= affine(f"{ours}.{our}.{name}", f"{theirs}.{their}.{name}_proj")
            for branch, norm in enumerate(norms):
                weights |= affine(f"{ours}.residual.norms.{branch}", f"{theirs}.{norm}")
            weights |= affine(f"{ours}.feedforward.up", f"{theirs}.fc1")
            weights |= affine(f"{ours}.feedforward.down", f"{theirs}.fc2")
    return weights


MARIAN = Family("marian", model_of, weights_of, computed="embed_positions")
