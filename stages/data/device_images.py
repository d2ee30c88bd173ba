"""Images on their way into a network: bytes until a batch is taken, then float32 in [−1, 1] on the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from stages.data.dataset_images import Images


class DeviceImages:
    """Images that are indexed as a tensor is, and scaled as `stages.data.images.to_pixels` does, bit for bit.

    An array of bytes goes to the device once; streamed images go a batch at a time.
    """

    def __init__(self, images: Images, device: torch.device) -> None:
        self.device = device
        self._held = torch.from_numpy(images).to(device) if isinstance(images, np.ndarray) else None
        self._images = images
        # Not a Python number: by that a GPU would multiply with the reciprocal, which rounds otherwise.
        self._scale = torch.tensor(127.5, device=device)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        if self._held is not None:
            found = self._held[rows]
        else:
            index = rows if isinstance(rows, slice) else rows.cpu().numpy()
            found = torch.from_numpy(self._images[index]).to(self.device)
        return found.to(torch.float32).div_(self._scale).sub_(1.0)
