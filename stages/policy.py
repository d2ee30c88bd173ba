"""`policy.yaml`: what may leave a participant without a person. Beside the key; where it is, everything waits.

    delta: 1.0e-5
    rules:
      - kinds: [message, state]
        max_bytes: 5000000
        disclosures: [update]
        epsilon: .inf
      - kinds: [secagg-keys, secagg-shares, envelope, head]

A file may leave if one rule allows it. Rules read the outbound bytes alone, of this file and of what left before: so
they cost no ε (privacy contract, rule 16). One with limits for `attacks` goes by what attacks found, which saw private
data: what it lets out has lost its ε.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.disclosures import DISCLOSURES
from artifacts.errors import FedsynthError, InputError
from artifacts.formats.any_file import Whole
from artifacts.kinds import KINDS
from stages.evaluate.attack_report import REACHED

_RULE = {"kinds", "max_bytes", "disclosures", "epsilon", "attacks"}
Reached = Callable[[], Mapping[str, float] | None]


@dataclass(frozen=True, kw_only=True)
class PolicyRule:
    """`epsilon` is the most that everything which left may cost with this file; ∞ lets files without noise pass."""

    kinds: frozenset[str]
    max_bytes: int | None
    disclosures: frozenset[str]
    epsilon: float | None
    attacks: Mapping[str, float] | None

    @classmethod
    def from_mapping(cls, values: Any) -> PolicyRule:
        if not isinstance(values, Mapping) or not values.keys() <= _RULE:
            raise ValueError(f"a rule has the keys {', '.join(sorted(_RULE))}; found {values!r}")
        kinds = _words(values, "kinds", {name for name, kind in KINDS.items() if _may_leave(kind.custodies)})
        size, epsilon = values.get("max_bytes"), values.get("epsilon")
        if not kinds:
            raise ValueError("a rule names at least one kind")
        if size is not None and (type(size) is not int or size < 1):
            raise ValueError(f"max_bytes must be a whole number of at least 1, found {size!r}")
        if epsilon is not None and (type(epsilon) not in (int, float) or not epsilon > 0):
            raise ValueError(f"epsilon must be a number greater than 0, or .inf; found {epsilon!r}")
        costly = sorted(name for name in kinds if KINDS[name].from_data)
        if costly and epsilon is None:
            raise ValueError(f"a rule for {costly[0]} says which epsilon may be reached (.inf: any)")
        attacks = _limits(values["attacks"]) if "attacks" in values else None
        if attacks and costly and epsilon != math.inf:
            raise ValueError("a rule with limits for attacks, which see private data, leaves no ε: its epsilon is .inf")
        disclosures = _words(values, "disclosures", set(DISCLOSURES))
        return cls(kinds=kinds, max_bytes=size, disclosures=disclosures, epsilon=epsilon, attacks=attacks)

    def objection(self, file: Whole, cost: Callable[[], float], reached: Reached) -> str:
        """Why this rule does not let the file leave; empty if it does. `cost` is asked for last: it takes time."""
        metadata = file.metadata
        if self.max_bytes is not None and file.size > self.max_bytes:
            return f"{file.size:,} bytes, of {self.max_bytes:,} allowed"
        extra = sorted(set(metadata.disclosures) - self.disclosures)
        if extra:
            return f"it discloses {', '.join(extra)}"
        found_out = self._attacked(reached)
        if found_out:
            return found_out
        if not KINDS[metadata.kind].from_data or self.epsilon == math.inf:
            return ""
        found = cost()
        # Not «more than»: a cost that is no number passes nowhere.
        return "" if found <= (self.epsilon or 0.0) else f"ε would be {_number(found)}, of {self.epsilon:g} allowed"

    def _attacked(self, reached: Reached) -> str:
        if self.attacks is None:
            return ""
        found = reached()
        if found is None:
            return "no report of `evaluate --attack suite` on it is in private/attacks"
        over = [name for name, most in self.attacks.items() if not found[name] <= most]
        return "; ".join(f"an attack's {name} is {found[name]:g}, of {self.attacks[name]:g} allowed" for name in over)


@dataclass(frozen=True)
class Policy:
    rules: tuple[PolicyRule, ...]
    delta: float | None

    def saw_data(self, number: int | None) -> bool:
        """Whether the rule of this number decides by attacks, which saw private data."""
        return number is not None and bool(self.rules[number - 1].attacks)

    def judge(self, file: Whole, cost: Callable[[float], float], reached: Reached) -> tuple[int | None, str]:
        """The number of the rule that lets the file leave, or None and why none does. `cost` is of δ."""
        objections = []
        for number, rule in enumerate(self.rules, start=1):
            if file.metadata.kind not in rule.kinds:
                continue
            objection = rule.objection(file, lambda: cost(self.delta or 0.0), reached)
            if not objection:
                return number, f"rule {number} allows it"
            objections.append(f"rule {number}: {objection}")
        return None, "; ".join(objections) or f"no rule for a {file.metadata.kind}"


NO_RULES = Policy((), None)


def read_policy(path: Path) -> Policy:
    """The policy, or `InputError`: one that is not understood lets nothing out."""
    from artifacts.formats.plain_data import read_mapping

    try:
        values = read_mapping(path)
        rules, delta = values.get("rules"), values.get("delta")
        if not values.keys() <= {"rules", "delta"} or not isinstance(rules, list):
            raise ValueError("it has a list of rules, and delta")
        if delta is not None and (type(delta) is not float or not 0 < delta < 1):
            raise ValueError(f"delta must lie between 0 and 1 (written with a point: 1.0e-5), found {delta!r}")
        parsed = tuple(PolicyRule.from_mapping(rule) for rule in rules)
        if delta is None and any(rule.epsilon is not None and math.isfinite(rule.epsilon) for rule in parsed):
            raise ValueError("a rule with a finite epsilon needs delta")
    except (ValueError, FedsynthError) as error:
        raise InputError(f"{path} is not a policy: {str(error).rstrip('.')}. Nothing leaves until it is.") from error
    return Policy(parsed, delta)


def _limits(values: Any) -> dict[str, float]:
    """The most that each measure may be; without any, a report must be there, whatever it says."""
    if not isinstance(values, Mapping) or not values.keys() <= set(REACHED):
        raise ValueError(f"attacks has the keys {', '.join(REACHED)}, or none ({{}}); found {values!r}")
    for name, most in values.items():
        if type(most) not in (int, float) or not 0 <= most < math.inf:
            raise ValueError(f"attacks: {name} must be a number of at least 0, found {most!r}")
    return dict(values)


def _words(values: Mapping[str, Any], name: str, known: set[str]) -> frozenset[str]:
    found = values.get(name, [])
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise ValueError(f"{name} must be a list of words, found {found!r}")
    strange = sorted(set(found) - known)
    if strange:
        raise ValueError(f"{name}: {strange[0]!r} is not one of {', '.join(sorted(known))}")
    return frozenset(found)


def _may_leave(custodies: tuple[str, ...]) -> bool:
    return "outbound" in custodies or "downlink" in custodies


def _number(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.3f}"
