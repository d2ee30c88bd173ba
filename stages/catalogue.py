"""The commands that recipes perform or whose files leave: what performs each, what it declares, what it sends.

Recipes, the audit and `declared` read this list; none of them knows a command by name. Free of torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from artifacts.kinds import KINDS
from stages.data.params import PartitionParams
from stages.families import Variants
from stages.hyperparameters import HyperParameters
from stages.methods.params.synthesis import Synthesis
from stages.registry import ALGORITHMS, ENCODERS, GENERATORS, NETWORKS, RULES
from stages.secagg.terms import SecaggTerms


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command, by its words.

    `performed_by` is its function, `module:function`, whose first arguments are the inputs, up to `out`; one that is a
    sequence takes the rest. An option of text is a file of the run, except for the user's own paths (`outside`) and
    for `words`. `declared` are its hyper-parameters; without a declaration a recipe's section has plain options.
    `facts_from` reads what decides about them from the first input. The inputs are files of the run, unless the user's
    own source is (`reads_source`). `may_charge`: with noise it is charged against a privacy budget.

    `client_sends` and `server_sends` are the kinds of file that leave by it, under its second word as their method.
    `made_again_by` makes a file of it again, for a replay. `names` are the roles of the inputs that such a file names,
    in order, with `|` between alternatives; of `encode` the method says them. `libraries` are those whose versions are
    in a file that no replay gives again. `several_by` performs several of its steps at once, those that agree in the
    first input and in all parameters, of which `several` says how many: its argument is the list of what
    `performed_by` would be called with.
    """

    name: str
    performed_by: str
    declared: type[HyperParameters] | Variants[Any] | None = None
    facts_from: str | None = None
    reads_source: bool = False
    may_charge: bool = False
    outside: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    client_sends: tuple[str, ...] = ()
    server_sends: tuple[str, ...] = ()
    made_again_by: str | None = None
    names: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    several_by: str | None = None
    several: str | None = None

    @property
    def stage(self) -> str:
        """What files name as their stage, and recipes as their section: `secagg` for all commands of that group."""
        return self.name.split()[0]

    @property
    def method(self) -> str | None:
        return self.name.partition(" ")[2] or None

    def is_run_file(self, option: str, value: Any) -> bool:
        """Whether an option names a file in the run folder. (A seed may be a name that DVC fills in.)"""
        return isinstance(value, str) and option not in ("seed", *self.outside, *self.words)


_AGAIN, _SERVER_AGAIN = "stages.audit.recompute", "stages.audit.server_recompute"

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command(
            name="partition",
            performed_by="stages.partition:partition",
            declared=PartitionParams,
            reads_source=True,
            outside=("root",),
        ),
        Command(
            name="train-generator",
            performed_by="stages.train_generator:train_generator",
            declared=GENERATORS,
            may_charge=True,
            made_again_by=f"{_AGAIN}:train_generator_again",
        ),
        Command(
            name="synthesize",
            performed_by="stages.synthesize:synthesize",
            declared=Synthesis,
            facts_from="stages.generators.file:facts_in",
            client_sends=("dataset",),
            made_again_by=f"{_AGAIN}:synthesize_again",
            names=("generator",),
        ),
        Command(
            name="shuffle",
            performed_by="stages.shuffle:shuffle",
            server_sends=("dataset",),
            made_again_by=f"{_SERVER_AGAIN}:shuffle_again",
        ),
        Command(
            name="init-model", performed_by="stages.init_model:init_model", declared=NETWORKS, outside=("weights",)
        ),
        Command(
            name="train-client",
            performed_by="stages.train_client:train_client",
            declared=ALGORITHMS,
            may_charge=True,
            made_again_by=f"{_AGAIN}:train_client_again",
            several_by="stages.train_client:train_together",
            several="together",
        ),
        Command(
            name="encode",
            performed_by="stages.encode:encode",
            declared=ENCODERS,
            may_charge=True,
            made_again_by=f"{_AGAIN}:encode_again",
        ),
        Command(name="decode", performed_by="stages.decode:decode", made_again_by=f"{_SERVER_AGAIN}:decode_again"),
        Command(name="identity", performed_by="stages.identity:identity"),
        Command(name="roster", performed_by="stages.identity:roster", words=("federation",)),
        Command(
            name="sign",
            performed_by="stages.sign:sign",
            client_sends=("envelope",),
            server_sends=("envelope",),
            names=("file",),
        ),
        Command(name="receipt ask", performed_by="stages.receipt:ask", client_sends=("head",)),
        Command(name="receipt give", performed_by="stages.receipt:give", server_sends=("receipt",)),
        Command(name="receipt keep", performed_by="stages.receipt:keep"),
        Command(
            name="secagg keys",
            performed_by="stages.secagg.client_steps:keys",
            client_sends=("secagg-keys",),
            libraries=("cryptography",),
        ),
        Command(
            name="secagg shares",
            performed_by="stages.secagg.client_steps:shares",
            client_sends=("secagg-shares",),
            names=("keys",),
            libraries=("cryptography",),
        ),
        Command(
            name="secagg mask",
            performed_by="stages.secagg.mask:mask",
            client_sends=("secagg-masked",),
            names=("keys", "model", "|".join(name for name, kind in KINDS.items() if kind.adds_up)),
            libraries=("cryptography", "numpy"),
        ),
        Command(
            name="secagg confirm",
            performed_by="stages.secagg.unmask:confirm",
            client_sends=("secagg-survivors",),
            names=("keys", "model"),
            libraries=("cryptography",),
        ),
        Command(
            name="secagg unmask",
            performed_by="stages.secagg.unmask:unmask",
            client_sends=("secagg-unmask",),
            names=("keys",),
            libraries=("cryptography",),
        ),
        Command(
            name="secagg collect",
            performed_by="stages.secagg.collect:collect",
            declared=SecaggTerms,
            server_sends=("secagg-keys", "secagg-shares", "secagg-survivors"),
            made_again_by=f"{_SERVER_AGAIN}:collect_again",
        ),
        Command(
            name="secagg sum",
            performed_by="stages.secagg.total:secure_sum",
            made_again_by=f"{_SERVER_AGAIN}:secure_sum_again",
        ),
        Command(
            name="aggregate",
            performed_by="stages.aggregate:aggregate",
            declared=RULES,
            may_charge=True,
            words=("as",),
            made_again_by=f"{_SERVER_AGAIN}:aggregate_again",
            names=("model",),
        ),
        Command(name="evaluate", performed_by="stages.evaluate.accuracy:evaluate"),
    )
}
DECLARED: dict[str, type[HyperParameters] | Variants[Any]] = {
    command.stage: command.declared for command in COMMANDS.values() if command.declared is not None
}
"""The hyper-parameters of each section of a recipe."""
