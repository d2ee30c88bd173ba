"""TOFU's proxies: how an update becomes the gradient of a few images, and how it comes back."""
