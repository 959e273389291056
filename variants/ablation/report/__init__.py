"""A study as one page that needs nothing else, with its figures beside it."""

from variants.ablation.report.make import report

__all__ = ["report"]
