"""One thread: on a shared two-core machine more threads run the same step several times slower."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)
