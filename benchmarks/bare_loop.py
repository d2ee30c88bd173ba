"""The peer of `run`: FedAvg as a person writes it in plain torch. All in memory: no file, no digest, no check."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from artifacts.places import RunFolder
from stages.data.dataset_images import load_dataset
from stages.data.images import to_pixels
from stages.methods.params.fedavg import FedAvgTraining
from stages.models.file import read_model, to_module
from stages.recipes.recipe import Recipe
from stages.run_folder.files import TEST, data_file, model_file

_EVALUATION_BATCH = 500


class BareLoop:
    """The same clients, images, network, optimiser and number of steps as the recipe's run in the folder `root`."""

    def __init__(self, recipe: Recipe, root: Path) -> None:
        self._params = FedAvgTraining.from_mapping(recipe.section("train-client"))
        self._net = to_module(read_model(root / model_file(0)), torch.device("cpu"))
        self._global = {name: tensor.clone() for name, tensor in self._net.state_dict().items()}
        self._clients = [_tensors(root / data_file(name)) for name in RunFolder(root).client_names()]
        self._test = _tensors(root / TEST)
        self._generator = torch.Generator().manual_seed(0)
        self.accuracy = 0.0

    def round(self, threads: int) -> None:
        """Train every client, average, evaluate."""
        torch.set_num_threads(threads)
        total = {name: torch.zeros_like(tensor) for name, tensor in self._global.items()}
        for images, labels in self._clients:
            self._net.load_state_dict(self._global)
            self._train(images, labels)
            for name, tensor in self._net.state_dict().items():
                total[name] += tensor
        self._global = {name: tensor / len(self._clients) for name, tensor in total.items()}
        self._net.load_state_dict(self._global)
        self._evaluate()

    def _train(self, images: Tensor, labels: Tensor) -> None:
        params = self._params
        optimiser = torch.optim.SGD(self._net.parameters(), lr=params.learning_rate, momentum=params.momentum)
        loss_of = nn.CrossEntropyLoss()
        self._net.train()
        steps_an_epoch = -(-len(labels) // params.batch_size)
        left = params.local_steps or (params.local_epochs or 1) * steps_an_epoch
        while left:
            order = torch.randperm(len(labels), generator=self._generator)
            for rows in order.split(params.batch_size)[:left]:
                optimiser.zero_grad()
                loss_of(self._net(images[rows]), labels[rows]).backward()
                optimiser.step()
                left -= 1

    @torch.no_grad()
    def _evaluate(self) -> None:
        images, labels = self._test
        self._net.eval()
        right, loss = 0, 0.0
        for first in range(0, len(labels), _EVALUATION_BATCH):
            rows = slice(first, first + _EVALUATION_BATCH)
            logits = self._net(images[rows])
            loss += float(nn.functional.cross_entropy(logits, labels[rows], reduction="sum"))
            right += int((logits.argmax(dim=1) == labels[rows]).sum())
        self.accuracy = right / len(labels)


def _tensors(path: Path) -> tuple[Tensor, Tensor]:
    content = load_dataset(path).content
    return torch.from_numpy(to_pixels(content.images)), torch.from_numpy(content.labels)
