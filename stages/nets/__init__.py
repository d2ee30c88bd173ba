"""The networks of the papers, and the one door through which torchvision and diffusers come in."""
