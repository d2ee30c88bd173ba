"""The closed list of what a file may tell about private data without noise, each in words for a layman."""

from __future__ import annotations

DISCLOSURES: dict[str, str] = {
    "update": "The change that training on private data made to the model (with the running averages of batch "
    "norm, if the model has any). Images like the private ones can often be reconstructed from it.",
    "derived_images": "Images optimised on private data without noise. They can resemble private images.",
    "real_image_init": "The images began as real private images and were then altered.",
    "class_set": "Which classes occur in the private data, or occur often enough to be sent.",
    "class_counts": "How many private records each class has.",
    "num_examples": "How many private records the client trained on.",
    "local_steps": "How many training steps the client made, which depends on the number of its records.",
    "radius": "How far from the current weights the synthetic set is a good stand-in, measured on private data.",
    "layer_norms": "How large the update is in each layer of the model.",
    "matching_loss": "How well the synthetic set imitates the private data.",
}
# Numbers that a client states only where it is asked for them: what is made of its file does not disclose them again.
COUNTS = frozenset({"local_steps", "num_examples"})
