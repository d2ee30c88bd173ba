"""What every test of TOFU needs."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """As the stages set it: two threads on a busy machine wait for each other."""
    torch.set_num_threads(1)
