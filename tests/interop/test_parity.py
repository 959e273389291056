"""Models of transformers, at random weights and small sizes, give the same logits, gradients and tokens here."""

import pytest
import torch
import torch.nn.functional as F

from variants.blocks.masks import AttentionMask
from variants.errors import ConfigError
from variants.generation import decode
from variants.interop import from_transformers, model_config_of
from variants.interop.convert import FAMILIES

transformers = pytest.importorskip("transformers")

V, D, DOUBLE = 60, 32, torch.float64
SHARED = {"vocab_size": V, "d_model": D}


def gpt2(**fields):
    sizes = {"vocab_size": V, "n_positions": 24, "n_embd": D, "n_layer": 2, "n_head": 4}
    ids = {"bos_token_id": None, "eos_token_id": None}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **ids, **fields))


def llama(**fields):
    sizes = {"hidden_size": D, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    heads = {"num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": None}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=V, **{**sizes, **heads, **fields}))


def t5(**fields):
    sizes = {"d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
    buckets = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 16}
    config = transformers.T5Config(**SHARED, **sizes, **buckets, **{"decoder_start_token_id": 0, **fields})
    return transformers.T5ForConditionalGeneration(config)


def marian(**fields):
    sizes = {"encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 2}
    widths = {"encoder_ffn_dim": 48, "decoder_ffn_dim": 40, "max_position_embeddings": 24}
    choices = {"activation_function": "silu", "scale_embedding": True}
    ids = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 1}
    config = transformers.MarianConfig(**SHARED, **sizes, **widths, **ids, **{**choices, **fields})
    return transformers.MarianMTModel(config)


MODELS = {
    "gpt2": gpt2,
    "gpt2 untied, unscaled, exact gelu": lambda: gpt2(
        tie_word_embeddings=False, scale_attn_weights=False, activation_function="gelu", n_inner=40
    ),
    "llama": llama,
    "llama tied, biased, other widths": lambda: llama(
        tie_word_embeddings=True,
        attention_bias=True,
        mlp_bias=True,
        head_dim=6,
        hidden_act="gelu",
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    ),
    "t5": t5,
    "t5 gated, unscaled": lambda: t5(feed_forward_proj="gated-silu", tie_word_embeddings=False),
    "marian": marian,
    "marian, two vocabularies": lambda: marian(
        share_encoder_decoder_embeddings=False, decoder_vocab_size=V - 7, scale_embedding=False
    ),
}


def drawn(make):
    """A model whose every weight matters, constants included, so that none can be mixed up."""
    model = make().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name:
                continue
            of_table = "shared" in name or "embed_tokens" in name or "wte" in name
            parameter.normal_(0, 1.0 if "relative" in name else 0.2 if parameter.dim() > 1 or of_table else 0.1)
            if ("norm" in name and name.endswith("weight")) or ("ln_" in name and name.endswith("weight")):
                parameter.add_(1.0)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    return model


def inputs(model, pads=True):
    """Ids, and for pairs a source whose second row ends in pads."""
    ids = torch.randint(3, V - 7, (3, 11))
    if not model.config.is_encoder_decoder:
        return (ids,), {"input_ids": ids}
    source, keep = torch.randint(3, V, (3, 20)), torch.ones(3, 20, dtype=torch.bool)
    keep[1, 12:] = not pads
    return (source, ids, AttentionMask(keep=keep)), {
        "input_ids": source,
        "attention_mask": keep.long(),
        "decoder_input_ids": ids,
    }


def compare(theirs, tolerance):
    """Logits and all gradients, theirs read through the same table as the weights."""
    ours = from_transformers(theirs)
    ours_in, theirs_in = inputs(theirs)
    logits, expected = ours(*ours_in).logits, theirs(**theirs_in).logits
    assert 0.3 < expected.detach().abs().max() < 20
    torch.testing.assert_close(logits, expected, rtol=0, atol=tolerance)

    targets = torch.randint(3, V - 7, (3, 11)).flatten()
    for made in (logits, expected):
        F.cross_entropy(made.flatten(0, 1), targets).backward()
    weights = FAMILIES[theirs.config.model_type].weights_of(ours)
    slopes = {name: p.grad for name, p in theirs.named_parameters(remove_duplicate=False)}
    for name, parameter in ours.named_parameters():
        if name == "head.bias":  # a buffer there
            continue
        slope = weights[name].read(slopes[weights[name].name])
        torch.testing.assert_close(
            parameter.grad, slope, rtol=0, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients_are_the_same(name):
    compare(drawn(MODELS[name]), 1e-5)


@pytest.mark.parametrize("name", ["gpt2", "marian"])  # the others compute a part in float32 always
def test_in_float64_logits_and_gradients_are_the_same_to_the_last_digits(name):
    model = drawn(MODELS[name]).double()
    if name == "marian":
        place = torch.arange(24, dtype=DOUBLE)[:, None] / 10000 ** (torch.arange(0, D, 2, dtype=DOUBLE) / D)
        for side in (model.model.encoder, model.model.decoder):
            exact = torch.cat((place.sin(), place.cos()), 1)
            torch.testing.assert_close(side.embed_positions.weight, exact, rtol=0, atol=1e-6)
            side.embed_positions.weight.data = exact  # theirs was rounded to float32
    compare(model, 1e-12)


@pytest.mark.parametrize("make", [llama, gpt2])  # one knows distances, the other positions
def test_left_padded_rows_give_the_same_logits(make):
    theirs = drawn(make)
    ids, keep = torch.randint(3, V, (3, 11)), torch.ones(3, 11, dtype=torch.bool)
    keep[0, :4] = keep[2, :1] = False
    positions = (keep.long().cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        expected = theirs(ids, attention_mask=keep.long(), position_ids=positions).logits
        logits = from_transformers(theirs)(ids, AttentionMask(keep=keep)).logits
    torch.testing.assert_close(logits[keep], expected[keep], rtol=0, atol=1e-5)


def test_llama_decodes_greedily_the_same_tokens_through_both_caches():
    theirs = drawn(llama)
    prompts = [[5, 6, 7, 8, 9, 10], [11, 12, 13]]
    padded = torch.tensor([prompts[0], [0, 0, 0, *prompts[1]]])
    keep = (padded > 0).long()
    expected = theirs.generate(padded, attention_mask=keep, max_new_tokens=8, do_sample=False, use_cache=True)
    found = decode(from_transformers(theirs), prompts, max_new=8, eos=None)
    assert found == expected[:, 6:].tolist()
    assert len(set(found[0] + found[1])) > 3


def test_the_model_keeps_type_mode_and_what_is_tied():
    ours = from_transformers(gpt2().bfloat16().train())
    assert ours.training
    assert {p.dtype for p in ours.parameters()} == {torch.bfloat16}
    assert sum(p.numel() for p in ours.parameters()) == gpt2().num_parameters()
    assert model_config_of(transformers.GPT2Config())["embedding"] == "tied"


def refusal(model):
    with pytest.raises(ConfigError) as caught:
        from_transformers(model)
    (problem,) = caught.value.problems
    return problem


def test_what_has_no_counterpart_is_refused_by_name():
    yarn = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    assert refusal(llama(rope_parameters=yarn)).startswith("llama: rope_parameters.rope_type=linear has no counterpart")
    assert "scale_attn_by_inverse_layer_idx=True" in refusal(gpt2(scale_attn_by_inverse_layer_idx=True))
    assert "add_cross_attention=True" in refusal(gpt2(add_cross_attention=True))
    assert "t5: activation=gelu_new" in refusal(t5(feed_forward_proj="gated-gelu"))
    assert "encoder_layerdrop=0.1" in refusal(marian(encoder_layerdrop=0.1))
    assert "activation=tanh" in refusal(gpt2(activation_function="tanh"))
    bert = transformers.BertConfig(vocab_size=V, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
    problem = refusal(transformers.BertModel(bert))
    assert problem == "no architecture of transformers 'bert'; there are: gpt2, llama, marian, t5"


def test_weights_that_would_be_left_out_are_refused():
    model = llama()
    model.model.extra = torch.nn.Linear(2, 2, bias=False)
    assert refusal(model) == "the model has weights without a counterpart here: model.extra.weight"
