"""What every federated algorithm of the registry must satisfy; a new one is covered by being registered."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from stages.methods.averaging import next_variates
from stages.methods.local_training import train_locally
from stages.methods.params.aggregation import Averaging, VariatesRule
from stages.methods.params.encoding import DeltaEncoding
from stages.registry import ALGORITHMS, RULES

DP = {"noise_multiplier": 1.0, "sampling_rate": 0.1, "local_steps": 3}
COUNTS = {"tell_steps": "local_steps", "tell_examples": "num_examples"}


class Quadratic(nn.Module):
    """F(w) = a/2·‖w − b‖² for two parameters, one of them in the classifier: the gradient is a(w − b)."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.ParameterDict({"w": nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))})
        self.classifier = nn.ParameterDict({"w": nn.Parameter(torch.tensor([0.5, 3.0], dtype=torch.float64))})

    def gradient(self):
        for weight in self.parameters():
            weight.grad = 2.0 * (weight.detach() - 0.7)
        return torch.zeros(())


def trained(params, steps, own=None, server=None):
    module = Quadratic()
    algorithm = params.client(dict(module.named_parameters()), own or {}, server or {})
    return train_locally(
        module, [module.gradient] * steps, total=steps, params=params, algorithm=algorithm, round=1,
        report=lambda *_: None,
    )  # fmt: skip


def written(state):
    """As a file has it: float32, in numpy."""
    return {name: torch.from_numpy(tensor.numpy().astype(np.float32)) for name, tensor in state.items()}


class AlgorithmContract:
    """`word` is the algorithm's name; `made` its parameters with the defaults."""

    word: str

    @property
    def declared(self):
        return ALGORITHMS.chosen({"algorithm": self.word})

    def made(self, **values):
        return ALGORITHMS.from_mapping({"algorithm": self.word, **values})

    def test_its_first_step_is_a_step_of_sgd(self):
        """From w₀, with nothing kept: proximal terms, variates and regularisers are zero there."""
        result = trained(self.made(learning_rate=0.25), 1)
        start = {name: weight.detach() for name, weight in Quadratic().named_parameters()}
        for name, change in result.update.items():
            np.testing.assert_allclose(change.numpy(), 0.25 * 2.0 * (start[name].numpy() - 0.7), rtol=1e-14)

    def test_it_keeps_what_it_says_and_goes_on_from_it(self):
        params = self.made()
        first = trained(params, 2)
        assert bool(first.state) == params.keeps_state
        weights = dict(Quadratic().named_parameters())
        assert all(first.state[name].shape == weights[name].shape for name in first.state)
        plain, again = trained(params, 2), trained(params, 2, own=written(first.state))
        moved = any(not torch.equal(plain.update[name], again.update[name]) for name in plain.update)
        assert moved == params.keeps_state, "what is kept has an effect, and nothing else has"

    def test_what_the_server_sends_matters_where_it_sends_something(self):
        params = self.made()
        sent = {name: torch.full_like(weight, 0.3) for name, weight in Quadratic().named_parameters()}
        plain, corrected = trained(params, 2), trained(params, 2, server=sent)
        moved = any(not torch.equal(plain.update[name], corrected.update[name]) for name in plain.update)
        assert moved == params.sends_state

    def test_its_rule_and_counts_exist_and_agree(self):
        declared = self.declared
        rule = RULES.chosen({"rule": declared.rule})
        assert issubclass(rule, Averaging)
        assert set(declared.states_counts) <= DeltaEncoding.names()
        stated = {COUNTS[name] for name in declared.states_counts}
        needed = {"clients": 4} if "clients" in rule.names() else {}
        assert set(rule(**needed).needed_counts()) == stated, "encode states what the rule reads, and no more"

    def test_its_facts_do_not_contradict_each_other(self):
        declared = self.declared
        assert not declared.sends_state or declared.keeps_state
        if declared.additive:
            assert RULES.chosen({"rule": declared.rule}).linear
            assert not (declared.keeps_state or declared.states_counts), "something would leave beside the sum"
        if declared.client_noise:
            assert declared.additive, "noise on the sum covers the sum alone"

    def test_under_record_dp_what_it_adds_does_not_depend_on_the_gradient(self):
        """Then it is computed from released values alone, and costs nothing (privacy contract, rule 15)."""
        if not self.declared.record_dp:
            with pytest.raises(ValueError, match=r"--algorithm must be one of .* under differential privacy|goes with"):
                self.made(**DP)
            return
        params = self.made(**DP)
        added = []
        for scale in (1.0, -300.0):
            module = Quadratic()
            named = dict(module.named_parameters())
            kept = {name: torch.full_like(weight, 0.4) for name, weight in named.items()}
            algorithm = params.client(named, kept, kept)
            for weight in named.values():
                weight.data += 0.1
                weight.grad = torch.full_like(weight, scale)
            algorithm.correct(named)
            added.append(torch.cat([(weight.grad - scale) for weight in named.values()]))
        torch.testing.assert_close(*added, rtol=0, atol=1e-12)

    def test_its_parameters_survive_the_metadata(self):
        params = self.made()
        assert ALGORITHMS.from_mapping(params.to_json()) == params
        own = {f.name: f.default for f in dataclasses.fields(self.declared) if f.metadata["panel"] == self.word}
        for name, default in own.items():
            changed = self.made(**{name: 2 * default})
            assert changed.to_json()[name] == 2 * default
            assert ALGORITHMS.from_mapping(changed.to_json()) == changed


for _word in ALGORITHMS.words:
    _name = f"Test_{_word}"
    globals()[_name] = type(_name, (AlgorithmContract,), {"word": _word})


def test_variates_by_hand():
    """SCAFFOLD, Algorithm 1, line 17: c + |S|/N · mean Δc. With 2 of 8 clients a quarter of the mean is added."""
    before = {"w": np.array([1.0, 2.0], np.float32)}
    mean = {"w": np.array([4.0, -8.0])}
    assert next_variates(before, mean, share=0.25)["w"].tolist() == [2.0, 0.0]
    assert next_variates({}, mean, share=0.25)["w"].tolist() == [1.0, -2.0]
    found, kept = VariatesRule(clients=8).result({}, mean, before, 2 / 8)
    assert (found["w"].tolist(), kept) == ([2.0, 0.0], {})
