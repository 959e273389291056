"""How many targets a head has right, counted where gradients are off."""

import torch

from variants.blocks.embeddings import UntiedEmbedding
from variants.blocks.heads import LinearHead
from variants.blocks.heads.base import IGNORED


def test_the_likeliest_token_is_counted_over_chunks_and_ignored_targets_are_not():
    embedding, head = UntiedEmbedding(7, 4), LinearHead(7, 4, chunk=3)
    x = torch.randn(2, 5, 4)
    right = head(x, embedding).argmax(-1)
    targets = right.clone()
    targets[0, 1], targets[1, 2:] = (right[0, 1] + 1) % 7, IGNORED
    with torch.no_grad():
        loss = head.loss(x, targets, embedding)
    assert (int(loss.correct), int(loss.count)) == (6, 7)
    assert head.loss(x, targets, embedding).correct is None


def test_without_a_target_none_is_right():
    embedding, head = UntiedEmbedding(7, 4), LinearHead(7, 4)
    with torch.no_grad():
        assert int(head.loss(torch.randn(1, 2, 4), torch.full((1, 2), IGNORED), embedding).correct) == 0
