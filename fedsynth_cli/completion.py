"""What a shell proposes after <TAB>: recipes, their presets, and the keys of --set.

Loaded by the completion script of `fedsynth --install-completion` only. Whatever cannot be read proposes nothing.
"""

from __future__ import annotations

import click

from artifacts.errors import FedsynthError

Proposals = list[tuple[str, str]]


def recipes(incomplete: str) -> Proposals:
    """Names of recipes with what each runs."""
    from stages.recipes.layers import names
    from stages.recipes.recipe import load_recipe

    return [(name, load_recipe(name).about) for name in names() if name.startswith(incomplete)]


def recipe_words(incomplete: str) -> Proposals:
    """The first word after `fedsynth recipe`."""
    words = [("list", "All recipes."), ("show", "Every parameter of a recipe.")]
    return [word for word in words if word[0].startswith(incomplete)] + recipes(incomplete)


def presets(context: click.Context, incomplete: str) -> list[str]:
    """The presets of the recipe that was typed before."""
    from stages.recipes import recipe

    try:
        found = recipe.presets(_recipe(context))
    except (FedsynthError, OSError):
        return []
    return [name for name in found if name.startswith(incomplete)]


def settings(context: click.Context, incomplete: str) -> Proposals:
    """`stage.key=` for every parameter that the recipe's stages declare, and the keys above the stages."""
    from stages.catalogue import DECLARED
    from stages.families import Variants
    from stages.recipes.recipe import SETTABLE, load_recipe

    try:
        used = set(load_recipe(_recipe(context), context.params.get("preset")).stages)
    except (FedsynthError, OSError):
        used = set(DECLARED)
    found = dict.fromkeys(SETTABLE, "")
    for stage, declared in DECLARED.items():
        if stage not in used:
            continue
        for one in declared.classes if isinstance(declared, Variants) else (declared,):
            for name in one.names():
                found.setdefault(f"{stage}.{name}", one.help_text(name))
    return [(f"{key}=", text) for key, text in sorted(found.items()) if key.startswith(incomplete)]


def _recipe(context: click.Context) -> str:
    """Behind an option that has no value yet, click leaves the arguments unread."""
    given = [context.params.get(name) for name in ("which", "recipe", "name")] + context.args[::-1]
    return next((str(word) for word in given if word), "")
