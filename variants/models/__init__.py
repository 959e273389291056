"""Whole models, built of the blocks by a config. The import of a layout registers it."""

from variants.models.assembly import Assembly, assemble, build
from variants.models.decoder_only import DecoderOnly
from variants.models.encoder_decoder import EncoderDecoder
from variants.models.encoder_only import EncoderOnly
from variants.models.output import Output
from variants.models.stack import Layer, Stack

__all__ = [
    "Assembly",
    "DecoderOnly",
    "EncoderDecoder",
    "EncoderOnly",
    "Layer",
    "Output",
    "Stack",
    "assemble",
    "build",
]
