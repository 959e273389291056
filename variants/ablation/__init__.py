"""Studies: arms out of axes, made equal in cost, run over seeds, and judged."""
