"""Ways to carry out the runs of a study."""

from variants.ablation.launch.base import Job, Watch
from variants.ablation.launch.local import Local
from variants.ablation.launch.slurm import Slurm

__all__ = ["Job", "Local", "Slurm", "Watch"]
