"""A recipe between institutions: the same plan, stages and files as `run`, each participant in its own home.

`step` does all the work, and sealed parcels are all that travels: through a drop folder, or carried by Flower, which
starts nothing but what is in `flower_app`. Flower is known there, in `flower`, `launch`, `submit`, and in `virtual`,
where its simulation engine runs many clients on one machine.
"""
