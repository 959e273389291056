"""GPT-2, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from variants.interop.counterparts import Counterparts
from variants.interop.family import PLAIN, Export, Family, activation_of, feedforward_of, final_epsilon, require
from variants.interop.weights import Weight, Weights, affine

COUNTERPARTS: Counterparts = {
    "layout": {"decoder_only": ()},
    "mixer": {
        "attention": ("n_kv_heads", "d_head", "bias", "qkv_bias", "out_bias", "attention_dropout"),
    },
    "position": {"learned": ("max_length",)},
    "norm": {"layernorm": ("norm_bias",)},
    "residual": {"pre": ()},
    "feedforward": {
        "gelu": ("approximate", "ratio", "d_ff", "bias", "feedforward_dropout"),
        "relu": ("ratio", "d_ff", "bias", "feedforward_dropout"),
        "silu": ("ratio", "d_ff", "bias", "feedforward_dropout"),
    },
    "embedding": {"tied": (), "untied": ()},
    "head": {"linear": ("chunk",)},
    "sharing": {"none": ()},
}


def model_of(theirs: Any) -> dict[str, Any]:
    """Our model's config of their config."""
    require("gpt2", "scale_attn_by_inverse_layer_idx", theirs.scale_attn_by_inverse_layer_idx, False)
    require("gpt2", "add_cross_attention", theirs.add_cross_attention, False)
    d_ff = 4 * theirs.n_embd if theirs.n_inner is None else theirs.n_inner
    return {
        "layout": "decoder_only",
        "d_model": theirs.n_embd,
        "n_layers": theirs.n_layer,
        "n_heads": theirs.n_head,
        "vocab": theirs.vocab_size,
        "max_length": theirs.n_positions,
        "bias": True,
        "norm_eps": theirs.layer_norm_epsilon,
        "dropout": theirs.resid_pdrop,
        "embedding_dropout": theirs.embd_pdrop,
        "attention_dropout": theirs.attn_pdrop,
        "feedforward_dropout": 0.0,
        "mixer": {"name": "attention", "scale": None if theirs.scale_attn_weights else 1.0},
        "position": "learned",
        "norm": "layernorm",
        "residual": "pre",
        "feedforward": feedforward_of("gpt2", theirs.activation_function, PLAIN, d_ff),
        "embedding": "tied" if theirs.tie_word_embeddings else "untied",
        "initialiser": {"name": "depth_scaled", "std": theirs.initializer_range},
    }


def weights_of(model: Any) -> Weights:
    """Where each parameter lies."""
    weights = {
        "embedding.table.weight": Weight("transformer.wte.weight"),
        "embedding.output.weight": Weight("lm_head.weight"),
        "stack.positions.0.table.weight": Weight("transformer.wpe.weight"),
        **affine("stack.norm", "transformer.ln_f"),
    }
    for i in range(len(model.stack.layers)):
        ours, theirs = f"stack.layers.{i}", f"transformer.h.{i}"
        for part, name in enumerate("qkv"):
            weights |= affine(f"{ours}.mixer.{name}", f"{theirs}.attn.c_attn", part, of=3, transposed=True)
        weights |= affine(f"{ours}.mixer.out", f"{theirs}.attn.c_proj", transposed=True)
        weights |= affine(f"{ours}.feedforward.up", f"{theirs}.mlp.c_fc", transposed=True)
        weights |= affine(f"{ours}.feedforward.down", f"{theirs}.mlp.c_proj", transposed=True)
        weights |= affine(f"{ours}.residual.norms.0", f"{theirs}.ln_1")
        weights |= affine(f"{ours}.residual.norms.1", f"{theirs}.ln_2")
    return weights


def refuses(model: Any) -> list[str]:
    """What of a model of ours it cannot have though it has the choices."""
    mixer = model.stack.layers[0].mixer
    q, k, width = mixer.q.out_features, mixer.k.out_features, mixer.q.in_features
    lacks = [] if k == q else [f"n_kv_heads {k // mixer.d_head} (it has n_heads {q // mixer.d_head})"]
    lacks += [] if q == width else [f"d_head {mixer.d_head} (it has d_model / n_heads)"]
    return lacks + final_epsilon(model)


def config_of(model: Any, fields: Mapping[str, Any]) -> Any:
    """Their config of a model of ours."""
    from transformers import GPT2Config

    layer = model.stack.layers[0]
    return GPT2Config(
        vocab_size=model.embedding.table.num_embeddings,
        n_positions=model.stack.positions[0].max_length,
        n_embd=model.embedding.table.embedding_dim,
        n_layer=len(model.stack.layers),
        n_head=layer.mixer.q.out_features // layer.mixer.d_head,
        n_inner=layer.feedforward.up.out_features,
        activation_function=activation_of(fields["feedforward"], PLAIN),
        resid_pdrop=layer.dropout.p,
        embd_pdrop=model.stack.dropout.p,
        attn_pdrop=layer.mixer.attention_dropout,
        layer_norm_epsilon=model.stack.norm.eps,
        tie_word_embeddings=fields["embedding"]["name"] == "tied",
        bos_token_id=None,
        eos_token_id=None,
    )


GPT2 = Family("gpt2", model_of, weights_of, export=Export(COUNTERPARTS, refuses, config_of))
