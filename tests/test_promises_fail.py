"""Each promise is broken by some component that is wrong in the way which it guards against.

One long file: a promise beside what breaks it, and at the end the proof that none was left out.
"""

import math
import sys
import textwrap
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from exporting import unchecked
from torch import nn

from variants.blocks.context import Context
from variants.blocks.crosses import CrossAttention
from variants.blocks.embeddings import TiedEmbedding
from variants.blocks.feedforwards import PlainFeedForward
from variants.blocks.heads import LinearHead
from variants.blocks.kernels.base import Kernel, Needs
from variants.blocks.kernels.math import Math
from variants.blocks.kernels.sdpa import Sdpa
from variants.blocks.masks import AttentionMask
from variants.blocks.mixers import Attention, Lstm
from variants.blocks.norms import RMSNorm
from variants.blocks.positions import Learned, Relative, Rotary, Sinusoidal
from variants.blocks.positions.base import Placement, Position
from variants.blocks.residuals import PreNorm
from variants.errors import ConfigError
from variants.models import DecoderOnly, EncoderDecoder, EncoderOnly
from variants.models.output import Output
from variants.registry import SLOTS
from variants.testing import (
    PROMISES,
    Broken,
    Example,
    blocks,
    check,
    check_example,
    common,
    crosses,
    ends,
    initialisers,
    kernels,
    layouts,
    mixers,
    parts,
    positions,
    training,
)

# ---------------------------------------------------------------------------------------------------------------------
# Mixers


class LooksAhead(Attention):
    def forward(self, x, context=None):
        context = context or Context()
        context.mask = AttentionMask(context.mask.keep, context.mask.documents)
        return super().forward(x, context)


class SeesThePastAlone(Attention):
    def forward(self, x, context=None):
        return super().forward(x, Context(AttentionMask(causal=True)))


class IgnoresWindows(Attention):
    def forward(self, x, context=None):
        mask = context.mask
        return super().forward(x, Context(AttentionMask(mask.keep, mask.documents, causal=mask.causal)))


class HidesScoresAlone(Attention):
    """What pads hold is hidden from the scores, and travels through the values."""

    def forward(self, x, context=None):
        mask = (context or Context()).mask
        hidden = ~mask.dense(x.shape[1], x.shape[1], "cpu")
        q, k, v = (self.heads(p(x)) for p in (self.q, self.k, self.v))
        scores = (q @ k.mT * self.d_head**-0.5).masked_fill(hidden, -1e9)
        return self.out(self.joined(scores.softmax(-1) @ v))


class SpreadsRows(Attention):
    def forward(self, x, context=None):
        return super().forward(x, context) + x.mean(0, keepdim=True)


class LeaksIntoTheFirst(Attention):
    def forward(self, x, context=None):
        y = super().forward(x, context)
        return torch.cat((y[:1] + y[1:].sum(0), y[1:]))


class ForgetsDocuments(Attention):
    def forward(self, x, context=None):
        mask = context.mask
        context.mask = AttentionMask(mask.keep, causal=mask.causal, window=mask.window)
        return super().forward(x, context)


class IgnoresPads(Lstm):
    def forward(self, x, context=None):
        return super().forward(context.mask.blank(x), Context(cache=context.cache))


class ForgetsItsState(Lstm):
    def forward(self, x, context=None):
        return super().forward(x, Context(context.mask))


class SharesItsState(Lstm):
    """Rows of the cache are not reordered: the state is kept elsewhere."""

    def forward(self, x, context=None):
        y = super().forward(x, context)
        if context.cache is not None:
            slot = context.slot("mixer")
            slot.state = tuple(s[:1].expand_as(s) for s in slot.state)
        return y


class TurnsKeysTwice(Attention):
    def forward(self, x, context=None):
        context = context or Context()
        place, slot = context.place, context.slot("mixer")
        x = context.mask.blank(x)
        q, k, v = place.turn(self.heads(self.q(x)), "q"), self.heads(self.k(x)), self.heads(self.v(x))
        if slot is not None:
            k, v = slot.append(k, v)
        k = torch.cat((k[:, :, : -x.shape[1]], place.turn(k[:, :, -x.shape[1] :], "k")), 2)
        return self.out(self.joined(self.kernel(q, k, v, context.mask, bias=place.bias)))


class ReadsUnusedSlots(Attention):
    def forward(self, x, context=None):
        y = super().forward(x, context)
        if context is not None and context.cache is not None:
            y = y + 0 * context.slot("mixer").grown[0].sum()
        return y


class Rewritten(Attention):
    """Attends under another context."""

    def forward(self, x, context=None):
        return super().forward(x, self.rewritten(context or Context()))


class LooksAheadInEvaluation(Rewritten):
    def rewritten(self, context):
        return context if self.training or context.cache else replace(context, mask=replace(context.mask, causal=False))


class ForgetsPadsInEvaluation(Rewritten):
    def rewritten(self, context):
        return context if self.training else replace(context, mask=replace(context.mask, keep=None))


class LooksAheadBeyond16(Attention):
    def forward(self, x, context=None):
        y = super().forward(x, context)
        return y + x.mean(1, keepdim=True) if x.shape[1] > 16 and context.cache is None else y


class StartsANewBlockAfter16(Attention):
    """A chunk beyond 16 tokens forgets what the cache holds."""

    def forward(self, x, context=None):
        mask = context.mask
        if context.cache is not None and x.shape[1] > 16:
            mask = replace(mask, window=x.shape[1])
        return super().forward(x, replace(context, mask=mask))


class IgnoresPrefixes(Rewritten):
    def rewritten(self, context):
        return replace(context, mask=replace(context.mask, prefix=None))


class IgnoresPrefixesWithACache(Rewritten):
    def rewritten(self, context):
        return context if context.cache is None else replace(context, mask=replace(context.mask, prefix=None))


class LooksAheadAtAPrefix(Rewritten):
    def rewritten(self, context):
        return replace(context, mask=replace(context.mask, causal=context.mask.prefix is None))


class LooksBackThroughWindows(Rewritten):
    def rewritten(self, context):
        mask = context.mask
        return replace(context, mask=replace(mask, causal=mask.causal or mask.window is not None))


class WidensWindowsOfACache(Rewritten):
    def rewritten(self, context):
        mask = context.mask
        wider = mask.window and mask.window + (context.cache is not None)
        return replace(context, mask=replace(mask, window=wider))


class ForgetsPlacements(Rewritten):
    def rewritten(self, context):
        return replace(context, place=Placement())


class ReadsWhatItDoesNotSay(Attention):
    reads = ("add", "turn")


class TurnsQueriesAlone(Attention):
    def forward(self, x, context=None):
        context = context or Context()
        return super().forward(x, replace(context, place=QueriesAlone(context.place)))


class QueriesAlone(Placement):
    def __init__(self, place):
        self.place, self.add, self.bias = place, place.add, place.bias

    def turn(self, x, side):
        return self.place.turn(x, side) if side == "q" else x


class WritesToTheFirstDepth(Rewritten):
    def rewritten(self, context):
        return replace(context, depth=0)


class BlindRowsAreTheMean(Attention):
    def __init__(self, d_model, n_heads, kernel):
        super().__init__(d_model, n_heads, BlindIsTheMean(), bias=True)


class ServesNothing(Attention):
    def forward(self, x, context=None):
        raise ValueError("no")


class NeverLearns(Attention):
    def __init__(self, d_model, n_heads, kernel):
        super().__init__(d_model, n_heads, kernel)
        self.idle = nn.Parameter(torch.ones(3, 3))


class AlwaysSingle(Attention):
    def forward(self, x, context=None):
        return super().forward(x.float(), context).to(x.dtype) if x.dtype != torch.float64 else self.rounded(x, context)

    def rounded(self, x, context):
        return super().forward(x, context).bfloat16().double()


class Overflows(PlainFeedForward):
    def forward(self, x, context=None):
        y = super().forward(x, context)
        return y * (x.new_tensor(1e30).bfloat16().to(y.dtype) ** 2 if y.dtype == torch.bfloat16 else 1)


class KeepsAComputedBuffer(PlainFeedForward):
    def __init__(self, d_model):
        super().__init__(d_model)
        self.register_buffer("factor", torch.full((d_model,), 2.0), persistent=False)

    def forward(self, x, context=None):
        return super().forward(x, context) * self.factor


class KeepsValuesAside(PlainFeedForward):
    def __init__(self, d_model):
        super().__init__(d_model)
        self.aside = torch.randn(d_model)

    def forward(self, x, context=None):
        return super().forward(x, context) + self.aside


class SharesWithItsCopy(PlainFeedForward):
    def __init__(self, d_model):
        super().__init__(d_model)
        self.shared = nn.Parameter(torch.ones(d_model, d_model))

    def __deepcopy__(self, memo):
        other = SharesWithItsCopy(self.up.in_features)
        other.load_state_dict(self.state_dict())
        other.up.weight = self.up.weight
        return other

    def forward(self, x, context=None):
        return super().forward(x @ self.shared, context)


class LooksAtValues(PlainFeedForward):
    def forward(self, x, context=None):
        return super().forward(x, context) if x.sum() > 0 else super().forward(x, context) * 2


class Halves(PlainFeedForward):
    def forward(self, x, context=None):
        return super().forward(x, context)[..., ::2]


class DropsTheLast(PlainFeedForward):
    def forward(self, x, context=None):
        return super().forward(x, context)[:1]


class HalfLearns(nn.Linear):
    """An `nn.Linear` of which half the outputs pass no gradient to their weights."""

    def forward(self, x):
        first, second = self.weight.chunk(2)
        return F.linear(x, torch.cat((first, second.detach())))


class HalfItsQueriesLearn(Attention):
    def __init__(self, d_model, n_heads, kernel):
        super().__init__(d_model, n_heads, kernel)
        self.q = HalfLearns(d_model, d_model, bias=False)


class DropsInEvaluation(Attention):
    @property
    def dropout(self):
        return self.attention_dropout


class NeverDrops(Attention):
    @property
    def dropout(self):
        return 0.0


class RefusesCaches(Attention):
    def forward(self, x, context=None):
        if context is not None and context.cache is not None:
            raise ValueError("mixer own works without a cache alone")
        return super().forward(x, context)


class RefusesCausality(RefusesCaches):
    def forward(self, x, context=None):
        if context is not None and context.mask.causal:
            raise ValueError("mixer own serves encoders alone")
        return super().forward(x, context)


class RefusesCausalStacks(Attention):
    def __init__(self, d_model, n_heads, kernel, bidirectional):
        super().__init__(d_model, n_heads, kernel)
        if not bidirectional:
            raise ValueError("mixer own serves encoders alone")


@pytest.mark.parametrize("mixer", [RefusesCaches, RefusesCausality, RefusesCausalStacks])
def test_a_mixer_is_judged_by_what_it_does_not_refuse(mixer):
    for promise in mixers.MIXER:
        promise(Example("mixer", mixer))


def test_common_promises_are_tried_without_causality_where_it_is_refused():
    for promise in (*parts.PART, *parts.ADDS, *common.COMMON):
        promise(Example("mixer", RefusesCausality))


def test_what_a_mixer_refuses_does_not_excuse_the_rest():
    class SeesThePast(RefusesCausality):
        def forward(self, x, context=None):
            super().forward(x, context)
            return Attention.forward(self, x, replace(context, mask=AttentionMask(causal=True)))

    with pytest.raises(Broken, match="output 0 did not move when token 1 changed"):
        mixers.both_sides(Example("mixer", SeesThePast))


@pytest.mark.parametrize("promise", [mixers.causality, mixers.pads_change_nothing])
def test_what_drops_in_training_is_tried_without(promise):
    promise(Example("mixer", Attention, attention_dropout=0.3))


MIXERS = [
    (mixers.causality, LooksAhead, "output 0 moved by .* when token 1 changed .length 2"),
    (mixers.both_sides, SeesThePastAlone, "output 0 did not move when token 1 changed"),
    (mixers.causality, LooksAheadInEvaluation, "output 0 moved by .* when token 1 changed .length 2."),
    (mixers.causality, LooksAheadBeyond16, "output 0 moved when tokens 39 and after changed .length 40"),
    (mixers.window, IgnoresWindows, "output 7 moved when token 4 changed, 3 away .window 3, causal"),
    (mixers.window, LooksBackThroughWindows, "output 2 did not move when .* .window 3, both sides"),
    (mixers.prefix, IgnoresPrefixes, "output 0 did not move when token 1 changed .3 tokens, a prefix of 2"),
    (mixers.prefix, LooksAheadAtAPrefix, "output 0 moved when token 2 changed .3 tokens, a prefix of 2"),
    (mixers.reads_what_it_says, ForgetsPlacements, "add of a placement moves no output"),
    (mixers.reads_what_it_says, TurnsQueriesAlone, "turn k of a placement moves no output"),
    (mixers.reads_what_it_says, ReadsWhatItDoesNotSay, "bias of a placement moves an output, and it reads"),
    (mixers.reads_what_it_says, ServesNothing, "refuses a causal mask and one that is not"),
    (mixers.pads_change_nothing, ForgetsPadsInEvaluation, "left pads of 1 .causal, 1 tokens, "),
    (mixers.pads_change_nothing, HidesScoresAlone, "pads of nan"),
    (mixers.pads_change_nothing, IgnoresPads, "pads of"),
    (mixers.documents_are_alone, ForgetsDocuments, "documents of 1 and 1"),
    (mixers.a_blind_row_is_harmless, HidesScoresAlone, "a row of pads"),
    (mixers.a_blind_row_is_harmless, BlindRowsAreTheMean, "a row of pads, written without bias, and 0"),
    (mixers.cached_is_uncached, ForgetsItsState, r"chunks \[1, 1"),
    (mixers.cached_is_uncached, TurnsKeysTwice, "position Rotary"),
    (mixers.cached_is_uncached, ReadsUnusedSlots, "chunks"),
    (mixers.cached_is_uncached, StartsANewBlockAfter16, r"chunks \[20, 1, 19\]"),
    (mixers.cached_is_uncached, WidensWindowsOfACache, "a window of 3"),
    (mixers.cached_is_uncached, IgnoresPrefixesWithACache, "a prefix"),
    (mixers.depths_are_apart, WritesToTheFirstDepth, "depth 0, chunks .1, 1"),
    (mixers.cached_rows_can_be_reordered, SharesItsState, "rows repeated and reordered"),
    (common.rows_alone, SpreadsRows, "row 1 beside row 0"),
    (common.rows_alone, LeaksIntoTheFirst, r"row 0 beside row 1 and by itself .length 1"),
    (common.every_parameter_learns, NeverLearns, "idle gets no gradient"),
    (common.every_parameter_learns, HalfItsQueriesLearn, "8 of 16 rows of q.weight, the first 8, get no gradient"),
    (parts.dropout_is_for_training_alone, DropsInEvaluation, "in evaluation, dropout of 0.3 and of 0"),
    (parts.dropout_is_for_training_alone, NeverDrops, "in training, attention_dropout of 0.3 drops nothing"),
    (common.float32_is_close_to_float64, AlwaysSingle, "float32 and float64"),
]


class DropsWithoutAModule(PlainFeedForward):
    def forward(self, x, context=None):
        return F.dropout(super().forward(x, context), 0.1)


class IgnoresItsRate(PlainFeedForward):
    def forward(self, x, context=None):
        x = x if context is None else context.mask.blank(x)
        return self.down(self.activation(self.up(x)))


class CountsPads(PlainFeedForward):
    def forward(self, x, context=None):
        if context is not None:
            context.add_loss("size", context.mask.blank(x).square().mean())
        return super().forward(x, context)


class ReadsPads(PlainFeedForward):
    def forward(self, x, context=None):
        if context is not None:
            keep = torch.ones(x.shape[:2]) if context.mask.keep is None else context.mask.keep.to(x.dtype)
            context.add_loss("size", (x.square().mean(-1) * keep).sum() / keep.sum())
        return super().forward(x, context)


class AddsALossAToken(PlainFeedForward):
    def forward(self, x, context=None):
        if context is not None:
            context.losses["size"] = x.square().mean(-1)
        return super().forward(x, context)


FEEDFORWARDS = [
    (common.shape_and_dtype, DropsTheLast, "batch 2"),
    (parts.same_shape, Halves, "gives"),
    (common.bf16_is_finite_and_close, Overflows, "not finite"),
    (common.autocast_is_finite_and_close, Overflows, "not finite"),
    (parts.dropout_is_for_training_alone, DropsWithoutAModule, "in evaluation, called twice"),
    (parts.dropout_is_for_training_alone, IgnoresItsRate, "feedforward_dropout of 0.3 drops nothing"),
    (parts.added_losses_ignore_pads, CountsPads, "the loss 'size' beside 2 left pads of 1 and alone: differs"),
    (parts.added_losses_ignore_pads, ReadsPads, "the loss 'size' beside 2 left pads of nan: not finite"),
    (parts.added_losses_ignore_pads, AddsALossAToken, "has the shape .1, 3., and is no single number"),
    (common.state_dict_round_trips, KeepsValuesAside, "loaded and saved"),
    (common.copies_are_equal_and_apart, SharesWithItsCopy, "the original, after its copy was overwritten"),
    (common.built_on_meta_is_the_same, KeepsAComputedBuffer, "built on the meta device"),
]

# ---------------------------------------------------------------------------------------------------------------------
# Norms, feed-forwards and residuals


class MixesPositions(RMSNorm):
    def forward(self, x):
        return super().forward(x + x.mean(-2, keepdim=True))


class MixesInEvaluation(RMSNorm):
    def forward(self, x):
        return super().forward(x if self.training else x + x.mean(-2, keepdim=True))


class MixesRowsInTraining(RMSNorm):
    def forward(self, x):
        return super().forward(x - x.mean(0, keepdim=True) if self.training else x)


class MixesHeads(RMSNorm):
    def forward(self, x):
        return super().forward(x if x.dim() < 4 else x + x.mean(1, keepdim=True))


class LeaksNaN(RMSNorm):
    def forward(self, x):
        return super().forward(x) + 0 * x.mean(-2, keepdim=True)


class Widens(RMSNorm):
    def forward(self, x):
        return super().forward(x.float())


class SquaresInHalf(RMSNorm):
    def forward(self, x):
        return self.weight.to(x.dtype) * x * x.square().mean(-1, keepdim=True).rsqrt()


class LearnsInEvaluationAlone(RMSNorm):
    def forward(self, x):
        return super().forward(x) if not self.training else super().forward(x).detach() + x - x.detach()


class WidensInTraining(RMSNorm):
    def forward(self, x):
        return super().forward(x.double() if self.training else x)


class LooksBack(PlainFeedForward):
    def forward(self, x, context=None):
        return super().forward(x, context) + F.pad(x, (0, 0, 1, -1))


class LeaksPads(PlainFeedForward):
    def forward(self, x, context=None):
        return super().forward(x)


class NeedsAContext(PlainFeedForward):
    def forward(self, x, context=None):
        return super().forward(x, context) + (context is None)


class LooksAheadWhereCausal(PlainFeedForward):
    def forward(self, x, context=None):
        y = super().forward(x, context)
        return y + F.pad(y[:, 1:], (0, 0, 0, 1)) if context is not None and context.mask.causal else y


class MixesDocuments(PlainFeedForward):
    def forward(self, x, context=None):
        y = super().forward(x, context)
        return y if context is None or context.mask.documents is None else y + x.mean(1, keepdim=True)


class DoublesWithACache(PlainFeedForward):
    def forward(self, x, context=None):
        y = super().forward(x, context)
        return y if context is None or context.cache is None else y * 2


class SkipsABranch(PreNorm):
    def forward(self, x, *branches):
        return super().forward(x, *branches[:-1], lambda y: y)


class RunsTwice(PreNorm):
    def forward(self, x, *branches):
        branches[0](x)
        return super().forward(x, *branches)


class LosesANorm(PreNorm):
    def __init__(self, norm, n_branches, depths):
        super().__init__(norm, n_branches, depths)
        norm()


class ShiftsTheWrongWay(PreNorm):
    def forward(self, x, *branches):
        for norm, branch in zip(self.norms, branches, strict=True):
            y = norm(x)
            x = x + branch(y + F.pad(y[..., 1:, :], (0, 0, 0, 1)))
        return x


class EntersWithTheMean(PreNorm):
    def enter(self, x):
        return x + x.mean(-2, keepdim=True)


class LeavesWithNaN(PreNorm):
    def leave(self, x):
        return x + 0 * x.sum(-2, keepdim=True)


class NeverLeaves(PreNorm):
    def enter(self, x):
        return torch.cat((x, x))


class DrawsItsOwn(PreNorm):
    """Its dropout is drawn from a generator that a recomputation does not set back."""

    def __init__(self, norm, n_branches, depths):
        super().__init__(norm, n_branches, depths)
        self.own = torch.Generator().manual_seed(0)

    def forward(self, x, *branches):
        y = super().forward(x, *branches)
        return y * (torch.rand(y.shape, generator=self.own) > 0.3) if self.training else y


PARTS = [
    ("norm", blocks.each_position_alone, MixesPositions, "output 1 moved by .* when position 0 changed"),
    ("norm", blocks.each_position_alone, MixesInEvaluation, r"changed .input of .1, 2, 16..$"),
    ("norm", blocks.each_position_alone, MixesHeads, r"output 1, 0 moved by .* when position 0, 0 changed"),
    ("norm", blocks.each_position_alone, LeaksNaN, "output 0 beside positions of nan"),
    ("norm", common.rows_alone, MixesRowsInTraining, "row 1 beside row 0 .*, in training$"),
    ("norm", common.every_parameter_learns, LearnsInEvaluationAlone, "weight gets no gradient, in training"),
    ("norm", blocks.dtype_is_kept, WidensInTraining, "torch.float32 becomes torch.float64, in training"),
    ("norm", blocks.dtype_is_kept, Widens, "becomes torch.float32"),
    ("norm", blocks.extremes_are_finite, SquaresInHalf, "zeros"),
    ("feedforward", blocks.each_position_alone, LooksBack, "output 1 moved by .* when position 0 changed"),
    ("feedforward", blocks.pads_change_nothing, LeaksPads, "the gradient of"),
    ("feedforward", blocks.a_context_is_optional, NeedsAContext, "with a context, an empty one, and without"),
    ("feedforward", blocks.a_context_is_optional, LooksAheadWhereCausal, "a causal one, and without .length 3"),
    ("feedforward", blocks.a_context_is_optional, MixesDocuments, "one of documents"),
    ("feedforward", blocks.a_context_is_optional, DoublesWithACache, "one with a cache"),
    ("residual", blocks.the_stream_is_each_positions_own, ShiftsTheWrongWay, "output 0 moved by .* position 1 changed"),
    ("residual", blocks.the_stream_is_each_positions_own, EntersWithTheMean, "output 1 moved by .* position 0 changed"),
    ("residual", blocks.the_stream_is_each_positions_own, LeavesWithNaN, "beside positions of nan"),
    ("residual", blocks.every_branch_counts, SkipsABranch, "they run"),
    ("residual", blocks.every_branch_counts, RunsTwice, r"they run \[2, 1\] times"),
    ("residual", blocks.every_norm_is_its_own, LosesANorm, "makes 3 norms and holds 2"),
    ("residual", blocks.enters_and_leaves, NeverLeaves, "leaves as"),
    ("residual", parts.recomputing_changes_nothing, DrawsItsOwn, "recomputed, with dropout"),
]

# ---------------------------------------------------------------------------------------------------------------------
# Cross mixers


class ReadsNothing(CrossAttention):
    def forward(self, x, context=None):
        return super().forward(x, Context(context.mask, memory=torch.ones_like(context.memory)))


class LeaksMemoryPads(CrossAttention):
    def keys_and_values(self, context):
        return self.k_norm(self.heads(self.k(context.memory))), self.heads(self.v(context.memory))


class LeaksOwnPads(CrossAttention):
    def forward(self, x, context=None):
        context.mask = AttentionMask()
        return super().forward(x, context)


class MixesPairs(CrossAttention):
    def forward(self, x, context=None):
        context.memory_mask = AttentionMask(context.memory_mask.keep)
        return super().forward(x, context)


class OrdersBeamsWrongly(CrossAttention):
    def forward(self, x, context=None):
        n = x.shape[0] // context.memory.shape[0]
        context.memory = context.memory.repeat(n, 1, 1)
        keep = context.memory_mask.keep
        context.memory_mask = AttentionMask(None if keep is None else keep.repeat(n, 1))
        return super().forward(x, context)


class ReadsOneTokenPerCall(CrossAttention):
    def forward(self, x, context=None):
        y = super().forward(x, context)
        return y if context.cache is None else y + context.cache.length


class BlindRowsAreNaN(CrossAttention):
    def forward(self, x, context=None):
        y = super().forward(x, context)
        keep = context.memory_mask.keep
        return y if keep is None else y / keep.any(1).to(y.dtype)[:, None, None]


class ReadsOthersWhereItHasNoSource(CrossAttention):
    def forward(self, x, context=None):
        y, mask = super().forward(x, context), context.memory_mask
        if mask.query_documents is None:
            return y
        alone = (mask.query_documents[:, :, None] != mask.documents[:, None]).all(-1)
        return torch.where(alone[..., None], super().forward(x, replace(context, memory_mask=AttentionMask())), y)


class ForgetsPadsOfPackedPairs(CrossAttention):
    def forward(self, x, context=None):
        if context.memory_mask.documents is not None:
            context.memory_mask = replace(context.memory_mask, keep=None)
        return super().forward(x, context)


class GivesOneForASourceOfPads(CrossAttention):
    def forward(self, x, context=None):
        y, keep = super().forward(x, context), context.memory_mask.keep
        return y if keep is None else y + ~keep.any(1)[:, None, None]


class ForgetsPairsInEvaluation(MixesPairs):
    def forward(self, x, context=None):
        return (CrossAttention if self.training else MixesPairs).forward(self, x, context)


class RemembersTheFirstDepth(CrossAttention):
    def forward(self, x, context=None):
        return super().forward(x, replace(context, depth=0))


CROSSES = [
    (crosses.reads_the_memory, ReadsNothing, "output 0 did not move"),
    (crosses.memory_pads_change_nothing, LeaksMemoryPads, "pads of nan in the memory"),
    (crosses.own_pads_change_nothing, LeaksOwnPads, "left pads of nan"),
    (crosses.packed_pairs_are_alone, MixesPairs, r"pair 0 of targets .0, 1. and sources .0, 1. .*packed and alone"),
    (crosses.packed_pairs_are_alone, ForgetsPairsInEvaluation, "packed and alone: differs by"),
    (crosses.packed_pairs_are_alone, ReadsOthersWhereItHasNoSource, "pair 1 of .* packed and over a source of pads"),
    (crosses.packed_pairs_are_alone, ForgetsPadsOfPackedPairs, r"sources .-1, 0, -1, 1"),
    (crosses.depths_are_apart, RemembersTheFirstDepth, "depth 1, chunks .1, 1"),
    (crosses.a_blind_row_is_harmless, GivesOneForASourceOfPads, "a source of pads, written without bias, and 0"),
    (crosses.beams_share_their_memory, OrdersBeamsWrongly, "3 beams"),
    (crosses.cached_is_uncached, ReadsOneTokenPerCall, "cached and uncached"),
    (crosses.a_blind_row_is_harmless, BlindRowsAreNaN, "a source of pads"),
]

# ---------------------------------------------------------------------------------------------------------------------
# Kernels


class TopLeft(Math):
    def forward(self, q, k, v, mask, **options):
        return F.scaled_dot_product_attention(q, k, v, is_causal=mask.causal, enable_gqa=True)


class TilesHeads(Math):
    def forward(self, q, k, v, mask, **options):
        group = q.shape[1] // k.shape[1]
        return super().forward(q, k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1), mask, **options)


class RoundsHeadWidths(Math):
    def forward(self, q, k, v, mask, *, scale=None, **options):
        return super().forward(q, k, v, mask, scale=(8 * math.ceil(q.shape[-1] / 8)) ** -0.5, **options)


class BiasFromTheFront(Math):
    def forward(self, q, k, v, mask, *, bias=None, **options):
        bias = None if bias is None else bias[..., : k.shape[-2]]
        return super().forward(q, k, v, mask, bias=bias, **options)


class Differs(Math):
    """Attends to something else where a test of a mask, keys and options says so."""

    def forward(self, q, k, v, mask, *, bias=None, scale=None, dropout=0.0):
        mask, bias = self.other(q.shape[1] // k.shape[1], mask, bias, scale)
        return super().forward(q, k, v, mask, bias=bias, scale=scale, dropout=dropout)


class TakesTheFirstRowsBias(Differs):
    def other(self, group, mask, bias, scale):
        return mask, None if bias is None else bias[:1]


class ScalesItsBias(Differs):
    def other(self, group, mask, bias, scale):
        return mask, bias if bias is None or scale is None else bias * scale


class ForgetsPadsInGroups(Differs):
    def other(self, group, mask, bias, scale):
        return mask if group == 1 else replace(mask, keep=None), bias


class FlipsItsBiasInGroups(Differs):
    def other(self, group, mask, bias, scale):
        return mask, bias if bias is None or group == 1 else bias.flip(1)


class ReadsAllWhereADocumentHasNoKeys(Math):
    def forward(self, q, k, v, mask, **options):
        y = super().forward(q, k, v, mask, **options)
        if mask.query_documents is None:
            return y
        lonely = (mask.query_documents[:, :, None] != mask.documents[:, None]).all(-1)
        return torch.where(lonely[:, None, :, None], v.mean((1, 2), keepdim=True), y)


class BlindIsTheMean(Kernel):
    def forward(self, q, k, v, mask, **options):
        seen = mask.dense(q.shape[-2], k.shape[-2], "cpu")
        scores = q @ k.mT * q.shape[-1] ** -0.5
        return scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1) @ v


class HidesByASum(Kernel):
    def forward(self, q, k, v, mask, **options):
        seen = mask.dense(q.shape[-2], k.shape[-2], "cpu")
        return (q @ k.mT * q.shape[-1] ** -0.5 - 1e4 * ~seen).softmax(-1) @ v


class DropsWithoutScale(Math):
    def forward(self, q, k, v, mask, *, dropout=0.0, **options):
        return super().forward(q, k, v, mask, dropout=dropout, **options) * (1 - dropout)


class RefusesLate(Sdpa):
    def refuses(self, needs):
        return "kernel late has no dropout; math has" if needs.dropout else None

    def settle(self, needs):
        pass


class RefusesWithoutReason(Sdpa):
    def refuses(self, needs):
        return "no" if needs.learned_bias else None


KERNELS = [
    (kernels.matches_a_loop, TopLeft, "queries over 9 keys"),
    (kernels.heads_are_grouped, TilesHeads, "4 heads over 2"),
    (kernels.matches_at_awkward_sizes, RoundsHeadWidths, "widths"),
    (kernels.matches_a_loop, ReadsAllWhereADocumentHasNoKeys, "packed pairs, some without keys"),
    (kernels.biases_are_added, BiasFromTheFront, "a learned bias"),
    (
        kernels.options_go_together,
        TakesTheFirstRowsBias,
        "all, a learned bias of each row, .*, 4 heads over 4",
    ),
    (kernels.options_go_together, ScalesItsBias, "all, scale 0.9, a learned bias, 9 queries .*, 4 heads over 4"),
    (kernels.options_go_together, ForgetsPadsInGroups, "left pads, 9 queries over 9 keys, 4 heads over [12],"),
    (
        kernels.options_go_together,
        FlipsItsBiasInGroups,
        "all, a learned bias, 9 queries over 9 keys, 4 heads over [12],",
    ),
    (kernels.a_blind_query_gives_zero, BlindIsTheMean, "a row without keys gives"),
    (kernels.what_is_hidden_never_counts, HidesByASum, "hidden keys"),
    (kernels.dropout_keeps_the_mean, DropsWithoutScale, "makes the mean"),
    (kernels.refuses_with_a_reason, RefusesLate, "when it is asked, and not when it settles"),
    (kernels.refuses_with_a_reason, RefusesWithoutReason, "names the kernels that can"),
]

# ---------------------------------------------------------------------------------------------------------------------
# Positions


class ActsTwice(Rotary):
    def input(self, x, positions):
        return x + 1


class ActsNowhere(Sinusoidal):
    def input(self, x, positions):
        return x


class IsConstant(Sinusoidal):
    def input(self, x, positions):
        return x + 1


class RepeatsAfterTwo(Sinusoidal):
    def input(self, x, positions):
        return super().input(x, positions % 2)


class TakesTheFirstRow(Sinusoidal):
    def input(self, x, positions):
        return super().input(x, positions[:1].expand_as(positions))


class CountsTheChunk(Rotary):
    def place(self, positions, key_positions):
        return super().place(positions - positions[:, :1], key_positions)


class WidensTheInput(Sinusoidal):
    def input(self, x, positions):
        return super().input(x.float(), positions)


class CountsSlots(Sinusoidal):
    """Reads no positions but the place in the row."""

    def input(self, x, positions):
        return super().input(x, torch.arange(x.shape[1])[None])


class CountsKeysFromTheFront(Relative):
    def place(self, positions, key_positions):
        return super().place(positions, torch.arange(key_positions.shape[1])[None].expand_as(key_positions))


class StartsEveryCallAtZero(Learned):
    def input(self, x, positions):
        return super().input(x, positions - positions[:, :1])


class AddsSines(Position):
    """As in DETR; it is told no dtype."""

    acts = "add"

    def place(self, positions, key_positions):
        place = Placement()
        place.add = torch.sin(positions[..., None] * 10.0 ** (-torch.arange(16) / 16))
        return place


def test_a_position_that_adds_to_queries_and_keys_keeps_all_promises():
    for promise in (*positions.POSITION, *common.COMMON):
        promise(Example("position", AddsSines))


POSITIONS = [
    (positions.acts_where_it_says, ActsTwice, "acts in input, and says it acts in turn"),
    (positions.acts_where_it_says, ActsNowhere, "does not act in input"),
    (positions.positions_differ, IsConstant, "positions 0 and 1 are the same"),
    (positions.positions_differ, RepeatsAfterTwo, "positions 0 and 2 are the same"),
    (positions.rows_of_positions_are_alone, TakesTheFirstRow, "row 1 of two"),
    (positions.the_last_queries_are_the_last_rows, CountsTheChunk, "the queries of a chunk"),
    (positions.the_dtype_is_kept, WidensTheInput, "becomes torch.float32"),
    (positions.pads_do_not_count, CountsSlots, "3 left pads"),
    (positions.pads_do_not_count, CountsKeysFromTheFront, "pads and none"),
    (positions.documents_restart, CountsSlots, "documents of 3 and 4"),
    (positions.cached_is_uncached, StartsEveryCallAtZero, "cached and uncached"),
]

# ---------------------------------------------------------------------------------------------------------------------
# Embeddings, heads, sharings, initialisers


class AddsTheMean(TiedEmbedding):
    def forward(self, ids):
        vectors = super().forward(ids)
        return vectors + vectors.mean(1, keepdim=True)


class ClampsIds(TiedEmbedding):
    def forward(self, ids):
        return super().forward(ids.clamp(min=2))


class GivesSingle(TiedEmbedding):
    def forward(self, ids):
        return super().forward(ids).float()

    def unembed(self, x):
        return super().unembed(x.to(self.table.weight.dtype))


class WidensLogits(TiedEmbedding):
    def unembed(self, x):
        return super().unembed(x).float()


class TakesTheMean(LinearHead):
    def loss(self, x, targets, embedding, label_smoothing=0.0):
        loss = super().loss(x, targets, embedding, label_smoothing)
        return loss._replace(loss=loss.loss / loss.count.clamp(min=1))


class SmoothsOverTheOthers(LinearHead):
    def loss(self, x, targets, embedding, label_smoothing=0.0):
        share = label_smoothing * 19 / 18
        return super().loss(x, targets, embedding, share)


class ProjectsIgnored(LinearHead):
    def loss(self, x, targets, embedding, label_smoothing=0.0):
        return super().loss(x + 0 * x.sum(), targets, embedding, label_smoothing)


class OverflowsInHalf(LinearHead):
    def loss(self, x, targets, embedding, label_smoothing=0.0):
        loss = super().loss(x, targets, embedding, label_smoothing)
        return loss if x.dtype != torch.bfloat16 else loss._replace(loss=loss.loss * math.nan)


class SumsInHalf(LinearHead):
    def loss(self, x, targets, embedding, label_smoothing=0.0):
        loss = super().loss(x, targets, embedding, label_smoothing)
        return loss._replace(nll=loss.nll.to(x.dtype))


class SkipsAnIndex:
    def __call__(self, n_layers):
        return [2 * depth for depth in range(n_layers)]


class WiderThanItSays:
    def std(self, address):
        return 0.02

    def __call__(self, address, generator):
        return 0.03 * torch.randn(address.shape, generator=generator)


class DrawsGlobally:
    def __call__(self, address, generator):
        return torch.randn(address.shape)


class IgnoresTheGenerator:
    def __call__(self, address, generator):
        return torch.randn(address.shape, generator=torch.Generator().manual_seed(1))


SMALL = [
    ("embedding", ends.each_token_alone, AddsTheMean, "and alone"),
    ("embedding", ends.ids_differ, ClampsIds, "ids 0 and 1 have the same vector"),
    ("embedding", ends.vectors_have_its_dtype, GivesSingle, "in torch.float64, its vectors are torch.float32"),
    ("embedding", ends.vectors_have_its_dtype, WidensLogits, "in torch.float64, its logits are torch.float32"),
    ("head", ends.loss_is_cross_entropy_of_the_logits, TakesTheMean, "the loss"),
    ("head", ends.loss_is_cross_entropy_of_the_logits, SmoothsOverTheOthers, "label_smoothing 0.1"),
    ("head", ends.ignored_targets_do_not_matter, ProjectsIgnored, "states of nan"),
    ("head", ends.loss_in_bf16_is_close, OverflowsInHalf, "bfloat16: the loss: not finite"),
    ("head", ends.loss_in_bf16_is_close, SumsInHalf, "bfloat16: the nll is torch.bfloat16"),
    ("sharing", blocks.layers_are_in_order, SkipsAnIndex, r"2 layers: \[0, 2\]"),
    ("initialiser", initialisers.draws_as_wide_as_it_says, WiderThanItSays, "the deviation is 0.0[23].*, not 0.0200"),
    ("initialiser", initialisers.a_value_is_of_its_seed_and_name, DrawsGlobally, "drawn a second time"),
    ("initialiser", initialisers.a_value_is_of_its_seed_and_name, IgnoresTheGenerator, "seed 1 and name 'a'"),
]

# ---------------------------------------------------------------------------------------------------------------------
# Layouts


class SeesTheNext(DecoderOnly):
    def hidden(self, ids, mask=None, cache=None):
        return self.stack(self.embedding(ids), mask, cache=cache)


class ForgetsPads(DecoderOnly):
    def hidden(self, ids, mask=None, cache=None):
        mask = mask or AttentionMask()
        return super().hidden(ids, AttentionMask(documents=mask.documents), cache)


class ForgetsBounds(DecoderOnly):
    def hidden(self, ids, mask=None, cache=None):
        mask = mask or AttentionMask()
        return super().hidden(ids, AttentionMask(keep=mask.keep), cache)


class ForgetsSourcePads(EncoderDecoder):
    def hidden(self, source, target, source_mask=None, target_mask=None):
        return super().hidden(source, target, source_mask and replace(source_mask, keep=None), target_mask)


class ForgetsWhichPair(EncoderDecoder):
    def decode_hidden(self, target, memory, memory_mask=None, mask=None, cache=None):
        memory_mask = memory_mask and replace(memory_mask, documents=None)
        return super().decode_hidden(target, memory, memory_mask, mask, cache)


class DividesByRealTokensOfItsSource(EncoderDecoder):
    def hidden(self, source, target, source_mask=None, target_mask=None):
        x, losses = super().hidden(source, target, source_mask, target_mask)
        if source_mask is not None and source_mask.keep is not None:
            x = x * source_mask.keep.sum(1).view(-1, 1, 1) / source_mask.keep.sum(1).view(-1, 1, 1)
        return x, losses


class DividesByRealTokens(DecoderOnly):
    def hidden(self, ids, mask=None, cache=None):
        x, losses = super().hidden(ids, mask, cache)
        if mask is not None and mask.keep is not None:
            x = x * mask.keep.sum(1).view(-1, 1, 1) / mask.keep.sum(1).view(-1, 1, 1)
        return x, losses


class IgnoresItsCache(DecoderOnly):
    def hidden(self, ids, mask=None, cache=None):
        return super().hidden(ids, mask)


class DrawsOutside(DecoderOnly):
    """Its dropout is drawn from a generator that a recomputation does not set back."""

    def __init__(self, embedding, stack, head):
        super().__init__(embedding, stack, head)
        own = torch.Generator().manual_seed(0)

        def drop(module, inputs, output):
            return output * (torch.rand(output.shape, generator=own) > 0.3) if module.training else output

        for layer in stack.layers:
            layer.feedforward.register_forward_hook(drop)


class InitialisesItself(DecoderOnly):
    def __init__(self, embedding, stack, head):
        super().__init__(embedding, stack, head)
        self.extra = nn.Linear(16, 16)
        self.extra.initial = {"weight": lambda shape: torch.randn(shape)}


class ForgetsDocumentsWithACache(DecoderOnly):
    def hidden(self, ids, mask=None, cache=None):
        return super().hidden(ids, mask if cache is None else replace(mask, documents=None), cache)


class ForgetsSourcePadsWithACache(EncoderDecoder):
    def decode(self, target, memory, memory_mask=None, mask=None, cache=None):
        return super().decode(target, memory, memory_mask if cache is None else None, mask, cache)


class DropsLosses(DecoderOnly):
    def hidden(self, ids, mask=None, cache=None):
        return super().hidden(ids, mask, cache)[0], {}


class DropsLossesOfTheSource(EncoderDecoder):
    def encode(self, source, mask=None):
        return super().encode(source, mask)[0], {}


class DropsLossesBesideLogits(DecoderOnly):
    def forward(self, ids, mask=None, cache=None):
        return replace(super().forward(ids, mask, cache), losses={})


class ScalesItsLogits(DecoderOnly):
    def forward(self, ids, mask=None, cache=None):
        output = super().forward(ids, mask, cache)
        output.logits = output.logits * 2
        return output


class HasAHead(EncoderOnly):
    """Sees both sides, as it should, and gives logits."""

    def __init__(self, embedding, stack, head):
        super().__init__(embedding, stack)
        self.head = head

    @classmethod
    def assemble(cls, assembly):
        return cls(assembly.embedding(), assembly.stack("encoder"), assembly.head())

    def forward(self, ids, mask=None):
        x, losses = self.hidden(ids, mask)
        return Output(self.head(x, self.embedding), losses)


def test_an_encoder_with_a_head_is_no_decoder():
    for promise in layouts.LAYOUT:
        promise(Example("layout", HasAHead))


LAYOUTS = [
    (layouts.causality, SeesTheNext, "output 0 moved by .* when token 1 changed"),
    (layouts.padded_rows_are_alone, ForgetsPads, "1 left pads and none"),
    (layouts.padded_rows_are_alone, ForgetsSourcePads, "1 left pads of the source"),
    (layouts.packed_documents_are_alone, ForgetsBounds, "documents of 1 and 1 tokens"),
    (layouts.packed_documents_are_alone, ForgetsWhichPair, "of 1 and 1 source tokens"),
    (layouts.a_blind_row_is_harmless, DividesByRealTokensOfItsSource, "beside a source of pads: not finite"),
    (layouts.a_blind_row_is_harmless, DividesByRealTokens, "not finite"),
    (layouts.cached_is_uncached, IgnoresItsCache, "cached and uncached"),
    (layouts.cached_is_uncached, ForgetsDocumentsWithACache, r"chunks .1, 1., pads and documents, position rotary"),
    (layouts.cached_is_uncached, ForgetsSourcePadsWithACache, r"chunks .1, 1., pads, position rotary"),
    (layouts.losses_of_parts_arrive, DropsLosses, "2 calls of parts add a loss of 1 each, and hidden gives {}"),
    (layouts.losses_of_parts_arrive, DropsLossesOfTheSource, "4 calls .* and hidden gives {'kit': tensor.2"),
    (layouts.losses_of_parts_arrive, DropsLossesBesideLogits, "and forward gives {}"),
    (layouts.checkpointing_changes_nothing, DrawsOutside, "layers recomputed"),
    (layouts.builds_are_equal, InitialisesItself, "extra.weight differs"),
    (layouts.hidden_states_give_the_logits, ScalesItsLogits, "made of the hidden states"),
]

# ---------------------------------------------------------------------------------------------------------------------
# Objectives, optimisers and schedules


class Mean:
    def __call__(self, model, batch):
        x, _ = model.hidden(batch["ids"])
        loss = model.head.loss(x, batch["targets"], model.embedding)
        return loss._replace(loss=loss.loss / loss.count)


class Detached:
    def __call__(self, model, batch):
        x, _ = model.hidden(batch["ids"])
        return model.head.loss(x.detach(), batch["targets"], model.embedding)


def sgd(cls=torch.optim.SGD, **options):
    return lambda: lambda groups: cls(groups, **options)


class Forgetful(torch.optim.Adam):
    def state_dict(self):
        return {**super().state_dict(), "state": {}}


class LeavesVectors(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            group["params"] = [p for p in group["params"] if p.dim() > 1]
        super().step(closure)


class OneDecay(torch.optim.SGD):
    def __init__(self, groups, lr):
        super().__init__([{**group, "weight_decay": 0.1} for group in groups], lr=lr)


class FirstIsZero:
    def __call__(self, step):
        return (step - 1) / 100


class CountsCalls:
    calls = 0

    def __call__(self, step):
        self.calls += 1
        return 1 / self.calls


class GoesOn:
    def __init__(self, max_steps):
        self.max_steps = max_steps

    def __call__(self, step):
        return self.max_steps / step


TRAINING = [
    ("objective", training.loss_is_a_sum_over_targets, Mean, "the loss of a batch"),
    ("objective", training.no_target_no_loss, Mean, "without a target"),
    ("objective", training.every_parameter_learns, Detached, "gets no gradient"),
    ("optimiser", training.every_parameter_moves, sgd(LeavesVectors, lr=0.1), "did not move"),
    ("optimiser", training.a_loss_falls, sgd(lr=0.1, maximize=True), "the loss went from"),
    ("optimiser", training.a_saved_state_goes_on, sgd(Forgetful), "saved, loaded"),
    ("optimiser", training.decay_is_the_groups, sgd(OneDecay, lr=0.1), "without weight decay"),
    ("schedule", training.the_first_update_counts, FirstIsZero, "of update 1 is 0.0"),
    ("schedule", training.a_rate_is_of_its_update, CountsCalls, "of update 1 is"),
    ("schedule", training.the_last_value_holds, GoesOn, "after 100 updates"),
]

CASES = [("mixer", *case) for case in MIXERS] + [("feedforward", *case) for case in FEEDFORWARDS] + PARTS
CASES += [("cross", *case) for case in CROSSES] + [("kernel", *case) for case in KERNELS]
CASES += [("position", *case) for case in POSITIONS] + SMALL + [("layout", *case) for case in LAYOUTS] + TRAINING


def named(case):
    slot, promise, component, _ = case
    return f"{slot}-{promise.__name__}-{getattr(component, '__name__', 'component')}"


@pytest.mark.parametrize(("slot", "promise", "component", "message"), [pytest.param(*c, id=named(c)) for c in CASES])
def test_promise_is_broken_by_a_component_that_is_wrong(slot, promise, component, message):
    with pytest.raises(Broken, match=message):
        promise(Example(slot, component))


class DropsByDefault(nn.Module):
    """An ordinary feed-forward that drops in training, by a rate of its own."""

    def __init__(self, d_model, *, rate=0.1):
        super().__init__()
        self.linear, self.rate = nn.Linear(d_model, d_model), rate

    def drop(self, y):
        return F.dropout(y, self.rate, self.training)

    def forward(self, x, context=None):
        return self.drop(self.linear(x if context is None else context.mask.blank(x)))


class DropsByAModule(DropsByDefault):
    def __init__(self, d_model, *, rate=0.1):
        super().__init__(d_model, rate=rate)
        self.drop = nn.Dropout(rate)


class Routes(nn.Module):
    """Experts, of which each token has one, and a loss that balances them, real tokens alone."""

    def __init__(self, d_model):
        super().__init__()
        self.gate = nn.Linear(d_model, 4, bias=False)
        self.up = nn.ModuleList(nn.Linear(d_model, 4 * d_model) for _ in range(4))
        self.down = nn.ModuleList(nn.Linear(4 * d_model, d_model) for _ in range(4))

    def forward(self, x, context=None):
        context = context or Context()
        x = context.mask.blank(x)
        shares = self.gate(x).softmax(-1)
        chosen = shares == shares.amax(-1, keepdim=True)
        keep = torch.ones(x.shape[:2], dtype=torch.bool) if context.mask.keep is None else context.mask.keep
        context.add_loss("balance", (shares[keep].mean(0) * chosen[keep].to(x.dtype).mean(0)).sum())
        each = [down(F.relu(up(x))) for up, down in zip(self.up, self.down, strict=True)]
        return (torch.stack(each, -1) * (shares * chosen)[..., None, :]).sum(-1)


@pytest.mark.parametrize("component", [DropsByDefault, DropsByAModule, Routes])
def test_no_promise_is_broken_by_an_ordinary_feed_forward(component):
    for promise in PROMISES["feedforward"]:
        if promise in (common.exports, common.compiles):
            continue
        promise(Example("feedforward", component))


@pytest.mark.slow
def test_export_is_refused_to_what_looks_at_values():
    with pytest.raises(Exception, match="data-dependent"):
        common.exports(Example("feedforward", LooksAtValues))


class DiffersCompiled(PlainFeedForward):
    def forward(self, x, context=None):
        return super().forward(x) * (2 if torch.compiler.is_compiling() else 1)


class LearnsLessCompiled(PlainFeedForward):
    def forward(self, x, context=None):
        return super().forward(x.detach() if torch.compiler.is_compiling() else x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("component", "message"),
    [
        (LooksAtValues, "Data-dependent"),
        (DiffersCompiled, r"compiled, at \(batch 2, time 6\): differs"),
        (LearnsLessCompiled, r"compiled, at \(batch 2, time 6\), the gradient of input 0: differs"),
    ],
)
def test_compilation_is_refused_to_what_it_would_change(component, message):
    with unchecked(), pytest.raises(Exception, match=message):
        common.compiles(Example("feedforward", component))


def test_every_promise_is_shown_to_fail():
    broken = {promise for _, promise, _, _ in CASES} | {common.exports, common.compiles}
    assert {promise for promises in PROMISES.values() for promise in promises} <= broken


# ---------------------------------------------------------------------------------------------------------------------
# The check


@pytest.fixture
def own_file(tmp_path):
    """A user's file that registers a mixer which looks ahead; what it registered is forgotten afterwards."""
    file = tmp_path / "own_mixer.py"
    file.write_text(
        textwrap.dedent('''
            from torch import nn
            from variants.slots import mixers

            @mixers.register("own_mixer")
            class OwnMixer(nn.Module):
                """Add the mean of all tokens."""

                def __init__(self, d_model: int) -> None:
                    super().__init__()
                    self.out = nn.Linear(d_model, d_model)

                def forward(self, x, context=None):
                    return self.out(x + x.mean(1, keepdim=True))
        ''')
    )
    yield file
    SLOTS["mixer"]._choices.pop("own_mixer", None)
    sys.modules.pop("own_mixer", None)


def test_check_says_what_a_users_own_choice_breaks(own_file):
    verdicts = {verdict.promise: verdict for verdict in check(str(own_file))}
    assert not verdicts["causality"].holds
    assert str(verdicts["causality"]).startswith("mixer own_mixer  causality: BROKEN: output 0 moved by ")
    assert str(verdicts["rows alone"]) == "mixer own_mixer  rows alone: holds"


def test_check_says_what_was_raised():
    class Stubborn(RMSNorm):
        def forward(self, x):
            raise RuntimeError("no\nway")

    verdict = next(iter(check_example(Example("norm", Stubborn))))
    assert not verdict.holds
    assert verdict.message == "raised RuntimeError: no"


def test_check_says_in_one_line_what_no_model_offers():
    class Wide(RMSNorm):
        def __init__(self, width, hidden):
            super().__init__(width)

    (verdict,) = check_example(Example("norm", Wide))
    assert str(verdict) == "norm Wide  can be built: BROKEN: needs hidden, which is not given"


def test_check_takes_a_slot_and_a_choice_or_a_choice_alone():
    assert {str(verdict) for verdict in check("sharing.all")} == {"sharing all  layers are in order: holds"}
    assert next(verdict.choice for verdict in check("deepnorm")) == "deepnorm"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("attention", "'attention' is a choice of several slots: mixer.attention, cross.attention"),
        ("norm.rmsnrom", "^no norm 'rmsnrom' \\(did you mean 'rmsnorm'"),
        ("data.copying", "^data.copying: slot data makes no promise that could be tried"),
        ("copying", "^data.copying: slot data makes no promise"),
        ("launcher.local", "^launcher.local: slot launcher makes no promise"),
        ("data.copyng", "^no data 'copyng' \\(did you mean 'copying'"),
        ("rmsnrom", "did you mean 'rmsnorm'"),
        ("nowhere.py", "there is no file nowhere.py"),
        ("json", "registers nothing"),
    ],
)
def test_check_refuses_what_it_cannot_find_in_one_line(target, message):
    with pytest.raises(ConfigError, match=message):
        list(check(target))


def test_needs_have_defaults_that_every_kernel_serves():
    for name in SLOTS["kernel"].choices:
        assert SLOTS["kernel"].build(name).refuses(Needs()) is None
