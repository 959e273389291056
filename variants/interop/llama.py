"""Llama, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from variants.interop.counterparts import Counterparts
from variants.interop.family import GATED, Export, Family, activation_of, feedforward_of, final_epsilon, require
from variants.interop.weights import Weight, Weights, affine

GATED_FIELDS = ("ratio", "d_ff", "multiple_of", "bias", "feedforward_dropout")
COUNTERPARTS: Counterparts = {
    "layout": {"decoder_only": ()},
    "mixer": {
        "attention": ("n_kv_heads", "d_head", "bias", "qkv_bias", "out_bias", "attention_dropout"),
    },
    "position": {"rotary": ("base",)},
    "norm": {"rmsnorm": ()},
    "residual": {"pre": ()},
    "feedforward": {"swiglu": GATED_FIELDS, "geglu": GATED_FIELDS},
    "embedding": {"tied": (), "untied": ()},
    "head": {"linear": ("chunk",)},
    "sharing": {"none": ()},
}


def model_of(theirs: Any) -> dict[str, Any]:
    """Our model's config of their config."""
    rope = theirs.rope_parameters
    require("llama", "rope_parameters.rope_type", rope.get("rope_type", "default"), "default")
    require("llama", "rope_parameters.partial_rotary_factor", rope.get("partial_rotary_factor", 1.0), 1.0)
    feedforward = feedforward_of("llama", theirs.hidden_act, GATED, theirs.intermediate_size)
    return {
        "layout": "decoder_only",
        "d_model": theirs.hidden_size,
        "n_layers": theirs.num_hidden_layers,
        "n_heads": theirs.num_attention_heads,
        "vocab": theirs.vocab_size,
        "max_length": theirs.max_position_embeddings,
        "norm_eps": theirs.rms_norm_eps,
        "attention_dropout": theirs.attention_dropout,
        "mixer": {
            "name": "attention",
            "n_kv_heads": theirs.num_key_value_heads,
            "d_head": theirs.head_dim,
            "bias": theirs.attention_bias,
        },
        "position": {"name": "rotary", "base": rope["rope_theta"]},
        "norm": "rmsnorm",
        "residual": "pre",
        "feedforward": {**feedforward, "bias": theirs.mlp_bias},
        "embedding": "tied" if theirs.tie_word_embeddings else "untied",
        "initialiser": {"name": "normal", "std": theirs.initializer_range},
    }


def weights_of(model: Any) -> Weights:
    """Where each parameter lies."""
    weights = {
        "embedding.table.weight": Weight("model.embed_tokens.weight"),
        "embedding.output.weight": Weight("lm_head.weight"),
        "stack.norm.weight": Weight("model.norm.weight"),
    }
    for i in range(len(model.stack.layers)):
        ours, theirs = f"stack.layers.{i}", f"model.layers.{i}"
        for name in "qkv":
            weights |= affine(f"{ours}.mixer.{name}", f"{theirs}.self_attn.{name}_proj")
        weights |= affine(f"{ours}.mixer.out", f"{theirs}.self_attn.o_proj")
        for name in ("gate", "up", "down"):
            weights |= affine(f"{ours}.feedforward.{name}", f"{theirs}.mlp.{name}_proj")
        weights[f"{ours}.residual.norms.0.weight"] = Weight(f"{theirs}.input_layernorm.weight")
        weights[f"{ours}.residual.norms.1.weight"] = Weight(f"{theirs}.post_attention_layernorm.weight")
    return weights


def refuses(model: Any) -> list[str]:
    """What of a model of ours it cannot have though it has the choices."""
    mixer = model.stack.layers[0].mixer
    d_model, n_heads = mixer.q.in_features, mixer.q.out_features // mixer.d_head
    lacks = [f"n_heads {n_heads} beside d_model {d_model} (it has a divisor)"] if d_model % n_heads else []
    return lacks + final_epsilon(model)


def config_of(model: Any, fields: Mapping[str, Any]) -> Any:
    """Their config of a model of ours."""
    from transformers import LlamaConfig

    layer = model.stack.layers[0]
    mixer, feedforward = layer.mixer, layer.feedforward
    limit = {} if fields["max_length"] is None else {"max_position_embeddings": fields["max_length"]}
    return LlamaConfig(
        vocab_size=model.embedding.table.num_embeddings,
        hidden_size=model.embedding.table.embedding_dim,
        intermediate_size=feedforward.up.out_features,
        num_hidden_layers=len(model.stack.layers),
        num_attention_heads=mixer.q.out_features // mixer.d_head,
        num_key_value_heads=mixer.k.out_features // mixer.d_head,
        head_dim=mixer.d_head,
        hidden_act=activation_of(fields["feedforward"], GATED),
        rms_norm_eps=model.stack.norm.eps,
        rope_parameters={"rope_type": "default", "rope_theta": model.stack.positions[0].base},
        attention_bias=any(linear.bias is not None for linear in (mixer.q, mixer.k, mixer.v, mixer.out)),
        mlp_bias=feedforward.up.bias is not None,
        attention_dropout=mixer.attention_dropout,
        tie_word_embeddings=fields["embedding"]["name"] == "tied",
        bos_token_id=None,
        eos_token_id=None,
        **limit,
    )


LLAMA = Family("llama", model_of, weights_of, export=Export(COUNTERPARTS, refuses, config_of))
