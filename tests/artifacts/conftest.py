"""No deadline: the machine may be busy with something else."""

from hypothesis import settings

settings.register_profile("fedsynth", deadline=None)
settings.load_profile("fedsynth")
