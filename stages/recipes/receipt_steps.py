"""Receipts in a recipe: after each round the clients' ledgers are countersigned by the server.

A head is made of all that a client sent before, in the order in which it was sent. So that this order does not depend
on chance, the files that leave a participant wait for one another here, a client's for its last receipt too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from artifacts.errors import UsageError
from stages.recipes.recipe import Recipe
from stages.recipes.round_steps import is_noised
from stages.recipes.step import Step
from stages.run_folder.files import ROSTER, head_file, kept_receipt, receipts_file


def check_open(recipe: Recipe) -> None:
    """Refuse receipts where clients are sampled in secret: they show who took part (privacy contract, rule 4)."""
    if is_noised(recipe):
        raise UsageError(
            f"recipe {recipe.name}: clients are sampled in secret, and receipts would show who took part. Leave "
            "receipts out: the audit then says «unanchored»."
        )


def with_receipts(steps: Sequence[Step]) -> list[Step]:
    """The same steps, and those that ask for, give and keep receipts, before each round ends."""
    planned: list[Step] = []
    for round, group in groupby(steps, key=lambda step: step.round):
        members = list(group)
        sends = [number for number, step in enumerate(members) if step.owner != "server" and _leaves(step)]
        if sends:
            senders = list(dict.fromkeys(members[number].owner for number in sends))
            end = sends[-1] + 1
            members[end:end] = _receipts(senders, round)
        planned += members
    return _in_order(planned)


def _receipts(senders: Sequence[str], round: int) -> list[Step]:
    """Ask, give, keep."""
    roster, given = {"roster": ROSTER}, receipts_file(round)
    asked = [
        Step(command="receipt ask", owner=client, round=round, needs=(ROSTER,), out=head_file(client, round),
             options={"round": round, **roster})
        for client in senders
    ]  # fmt: skip
    give = Step(
        command="receipt give", owner="server", round=round, inputs=tuple(step.out for step in asked),
        needs=(ROSTER,), out=given, options=roster,
    )  # fmt: skip
    kept = [
        Step(command="receipt keep", owner=client, round=round, inputs=(given,), needs=(ROSTER,),
             out=kept_receipt(client, round), options=roster)
        for client in senders
    ]  # fmt: skip
    return [*asked, give, *kept]


def _in_order(steps: Sequence[Step]) -> list[Step]:
    """Each step with a file that leaves waits for the participant's last one, and for the receipt of it."""
    latest: dict[str, str] = {}
    ordered = []
    for step in steps:
        if _leaves(step):
            before = latest.get(step.owner)
            step = replace(step, needs=(*step.needs, *([before] if before is not None else [])))
        if _leaves(step) or step.command == "receipt keep":
            latest[step.owner] = step.out
        ordered.append(step)
    # The last step is what a Makefile asks for.
    ordered[-1] = replace(ordered[-1], needs=(*ordered[-1].needs, *latest.values()))
    return ordered


def _leaves(step: Step) -> bool:
    return any("/outbox/" in name for name in step.outputs)
