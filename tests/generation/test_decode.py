"""Decoding gives every row what it would get alone, and leaves nothing behind."""

import pytest
import torch
from generating import LAYOUTS, Chain, forced, small

from variants import slots
from variants.generation import Sampling, decode, stepper_of
from variants.generation.stepper import evaluating

PROMPTS = [[5, 6, 7], [4, 9, 8, 7, 6, 5, 4, 11, 9], [12], [5, 6, 7, 13]]
NEW = torch.tensor([[4, 8, 15, 7, 9], [5, 5, 6, 7, 19], [17, 16, 4, 4, 8], [9, 9, 10, 11, 5]])
HEADS = {
    "multi-head": {},
    "grouped-query": {"mixer": {"name": "attention", "n_kv_heads": 2}},
    "lstm": {"mixer": "lstm"},
}


def steps(model, prompts, new, use_cache):
    with evaluating(model):
        stepper = stepper_of(model, prompts, max_new=new.shape[1] + 1, bos=2, pad=0, use_cache=use_cache)
        logits = [stepper.logits()]
        for ids in new.T:
            stepper.append(ids)
            logits.append(stepper.logits())
    return torch.stack(logits, 1)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("position", slots.positions.choices)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_steps_equal_one_pass_over_each_row_alone(layout, position, heads):
    model = small(layout, position=position, **HEADS[heads])
    for parameter in model.parameters():
        if parameter.dim() == 1:  # a recurrence without biases stays where it is while pads pass
            parameter.data.add_(torch.randn_like(parameter), alpha=0.3)
    cached, uncached = (steps(model, PROMPTS, NEW, use_cache) for use_cache in (True, False))
    alone = torch.cat([forced(model, prompt, new) for prompt, new in zip(PROMPTS, NEW.tolist(), strict=True)])
    assert alone.std() > 0.5
    torch.testing.assert_close(cached, alone, rtol=0, atol=1e-4)
    torch.testing.assert_close(uncached, alone, rtol=0, atol=1e-4)


def test_steps_under_a_window_equal_one_pass():
    model = small(mixer={"name": "attention", "window": 3})
    alone = torch.cat([forced(model, prompt, new) for prompt, new in zip(PROMPTS, NEW.tolist(), strict=True)])
    torch.testing.assert_close(steps(model, PROMPTS, NEW, use_cache=True), alone, rtol=0, atol=1e-4)


@pytest.mark.parametrize("sampling", [Sampling(0.0), Sampling(1.0, top_k=8)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_row_is_decoded_as_if_it_were_alone(layout, sampling):
    model = small(layout)
    together = decode(model, PROMPTS, max_new=12, sampling=sampling)
    assert len({tuple(row) for row in together}) == len(PROMPTS)
    assert together == [decode(model, [prompt], max_new=12, sampling=sampling)[0] for prompt in PROMPTS]
    assert together[::-1] == decode(model, PROMPTS[::-1], max_new=12, sampling=sampling)
    assert together == decode(model, PROMPTS, max_new=12, sampling=sampling, use_cache=False)


def test_greedy_takes_the_likeliest_of_the_teacher_forced_logits():
    model = small()
    new = decode(model, PROMPTS, max_new=9, eos=None)
    for prompt, row in zip(PROMPTS, new, strict=True):
        assert row == forced(model, prompt, row)[0, :-1].argmax(-1).tolist()


def test_equal_prompts_get_different_samples_and_another_seed_others():
    model, sampling = small(), Sampling()
    one, two = decode(model, [[5, 6], [5, 6]], max_new=9, sampling=sampling, seed=7)
    assert one != two
    assert one == decode(model, [[5, 6]], max_new=9, sampling=sampling, seed=7)[0]
    assert one != decode(model, [[5, 6]], max_new=9, sampling=sampling, seed=8)[0]


def test_different_prompts_have_different_streams():
    even = Chain(*[[0.125] * 8] * 8)
    one, two = decode(even, [[0], [1]], max_new=20, eos=None, sampling=Sampling())
    assert one != two


def test_a_row_ends_at_its_own_eos_and_the_limit_counts_new_tokens():
    model = Chain([0.0, 0.1, 0.0, 0.9], [0.0, 0.9, 0.0, 0.1], [0.9, 0.1, 0.0, 0.0], [0.25] * 4)
    # 0 is followed by EOS, 1 by itself for ever, BOS (2) by 0
    assert decode(model, [[2], [1], [1, 1, 1]], max_new=5) == [[0, 3], [1] * 5, [1] * 5]
    assert model.steps == 5
    assert decode(model, [[]], max_new=5) == [[0, 3]]  # begins with BOS


def test_min_new_counts_tokens_before_eos():
    model = Chain([0.0, 0.1, 0.0, 0.9], [0.0, 0.9, 0.0, 0.1], [0.9, 0.1, 0.0, 0.0], [0.25] * 4)
    assert decode(model, [[2]], max_new=5, min_new=1) == [[0, 3]]
    assert decode(model, [[2]], max_new=5, min_new=2) == [[0, 1, 1, 1, 1]]
    often = Chain([0.4, 0.0, 0.0, 0.6], *[[0.4, 0.0, 0.0, 0.6]] * 3)
    assert decode(often, [[2], [0, 1, 2]], max_new=9, min_new=3) == [[0, 0, 0, 3]] * 2


def test_decoding_stops_when_all_rows_are_done():
    model = Chain(*[[0.1, 0.0, 0.0, 0.9]] * 4)
    assert decode(model, [[0], [2]], max_new=50) == [[3], [3]]
    assert model.steps == 1
    later = Chain([0.1, 0.0, 0.0, 0.9], [0.9, 0.1, 0.0, 0.0], [0.25] * 4, [0.9, 0.1, 0.0, 0.0])
    assert decode(later, [[0], [1]], max_new=50) == [[3], [0, 3]]  # the first goes on with 0 after its EOS
    assert later.steps == 2


def test_eos_none_never_ends():
    assert decode(Chain(*[[0.1, 0.0, 0.0, 0.9]] * 4), [[0]], max_new=4, eos=None) == [[3] * 4]


@pytest.mark.parametrize("mixer", ["attention", "lstm"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_is_left_over_between_calls(layout, mixer):
    model, other_one = (small(layout, mixer=mixer) for _ in range(2))
    fresh = decode(other_one, PROMPTS[:1], max_new=4)
    assert fresh == [forced(other_one, PROMPTS[0], fresh[0])[0, :-1].argmax(-1).tolist()]
    for other in ([[8, 9, 10]], [[17]], PROMPTS):  # a row of the same length, a shorter one, more rows
        decode(model, other, max_new=12)
        assert decode(model, PROMPTS[:1], max_new=4) == fresh


@pytest.mark.parametrize("fails", [False, True], ids=["done", "failed"])
def test_mode_and_random_state_are_left_as_they_were(fails, monkeypatch):
    model = small(dropout=0.5)
    expected = decode(model, PROMPTS, max_new=6)
    model.train()
    model.stack.layers[1].eval()  # a frozen part stays one
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    if fails:
        monkeypatch.setattr(model.head, "forward", lambda x, embedding: torch.rand(len(x), 1, 20) * float("nan"))
        with pytest.raises(ValueError, match="no distribution"):
            decode(model, PROMPTS, max_new=6, sampling=Sampling())
    else:
        assert decode(model, PROMPTS, max_new=6) == expected
        decode(model, PROMPTS, max_new=6, sampling=Sampling())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()


def test_learned_positions_are_used_to_the_last_and_not_beyond():
    model = small(position="learned", max_length=12)
    assert decode(model, [[5] * 4, [6]], max_new=8, eos=None) == [
        decode(model, [row], max_new=8, eos=None)[0] for row in ([5] * 4, [6])
    ]
    calls = []
    model.stack.register_forward_hook(lambda *_: calls.append(1))
    with pytest.raises(ValueError, match="makes 13, but the model has 12 positions"):
        decode(model, [[6], [5] * 4], max_new=9)
    assert not calls


@pytest.mark.parametrize("position", [choice for choice in slots.positions.choices if choice != "learned"])
def test_other_positions_go_on_beyond_max_length(position):
    model = small(position=position, max_length=12)
    new = decode(model, [[5] * 4, [6]], max_new=20, eos=None)
    for prompt, row in zip(([5] * 4, [6]), new, strict=True):
        assert row == forced(model, prompt, row)[0, :-1].argmax(-1).tolist()


def test_learned_positions_of_both_sides_are_known_before_the_first_step():
    model = small("encoder_decoder", position="learned", max_length=12)
    assert len(decode(model, [[5] * 12], max_new=12, eos=None)[0]) == 12
    with pytest.raises(ValueError, match="max_new 13 is above the 12 positions of the decoder"):
        decode(model, [[5]], max_new=13)
    with pytest.raises(ValueError, match="a source's length 13 is above the 12 positions of the encoder"):
        decode(model, [[5] * 13], max_new=3)


def test_what_the_pads_hold_does_not_matter():
    for layout in LAYOUTS:
        model = small(layout)
        assert decode(model, PROMPTS, max_new=9) == decode(model, PROMPTS, max_new=9, pad=11)


def test_no_prompts_and_empty_ones():
    for layout in LAYOUTS:
        model = small(layout)
        assert decode(model, [], max_new=3) == []
        assert decode(model, [[], [5, 6]], max_new=6, eos=None)[0] == decode(model, [[]], max_new=6, eos=None)[0]
    model = small()
    assert decode(model, [[]], max_new=6) == decode(model, [[2]], max_new=6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_new": 0}, "max_new must be at least 1, not 0"),
        ({"max_new": 3, "min_new": 4}, "min_new must lie between 0 and max_new 3, not at 4"),
    ],
)
def test_limits_that_nothing_fulfils_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        decode(small(), [[5]], **fields)


def test_a_model_without_a_head_is_refused():
    with pytest.raises(ValueError, match="EncoderOnly cannot generate"):
        decode(small("encoder_only"), [[5]], max_new=3)
