"""Recipes: every number of a suite's training, read from TOML and checked."""

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from bench.errors import BenchError, did_you_mean
from reference_models.model import Shape
from reference_models.sgtm import SHARED, BioSubnetwork

RECIPES: Final = Path(__file__).parent / "recipes"
ROLES: Final = ("member", "oracle", "placebo")
_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Optimisation, the same for all members."""

    seed: int
    epochs: int
    batch_blocks: int
    """Blocks per batch; a step trains on one domain only."""
    learning_rate: float
    """Peak, reached after the warm-up."""
    final_share: float
    """Share of the peak that the cosine ends at."""
    warmup_steps: int
    betas: tuple[float, float]
    weight_decay: float
    """On matrices; vectors have none."""
    clip: float
    """Largest norm of the gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sgtm:
    """The last p % of the steps."""

    forget_batches: int
    """Batches, each with an optimizer step of its own, of a forget step."""
    off_share: float
    """Share of the adjacent and retain steps that run with θ_bio off."""
    plain_share: float
    """Share of the forget steps that run plain, as if their text had no label."""
    shared: tuple[str, ...]
    """What a forget step moves besides θ_bio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One model of a suite."""

    p: int = 0
    """Per cent of the steps, counted from the end, under SGTM."""
    role: str = "member"
    """"member"; "oracle" skips forget steps; "placebo" lets retain documents play forget."""
    seed: int | None = None
    """Weights and order of data; None stands for the recipe's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All that determines a suite, its data aside."""

    suite: str
    data: str
    """Name of the corpus."""
    model: Shape
    bio: BioSubnetwork
    training: Training
    sgtm: Sgtm
    members: Mapping[str, Member]

    def seed_of(self, member: str) -> int:
        """The training seed of a member."""
        seed = self.members[member].seed
        return self.training.seed if seed is None else seed

    def prefix_fingerprint(self, member: str, data_sha256: str) -> str:
        """Hash of all that determines the plain steps, which members of one seed share."""
        parts = [_fields(self.model), _fields(self.training), self.seed_of(member)]
        return _hash([data_sha256, *parts])

    def fingerprint(self, member: str, data_sha256: str) -> str:
        """Hash of all that determines one member."""
        parts = (self.model, self.bio, self.training, self.sgtm, self.members[member])
        return _hash([data_sha256, *map(_fields, parts)])


def _fields(record: Any) -> dict[str, Any]:  # any dataclass of this module
    return dataclasses.asdict(record)


def _hash(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def load_recipe(name: str | Path) -> Recipe:
    """Read a recipe by its name in `recipes/` or by its path.

    Raises:
        BenchError: No such recipe, or a key is unknown, missing or has a wrong value.
    """
    path = Path(name)
    if path.suffix != ".toml":
        path = RECIPES / f"{name}.toml"
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError:
        known = [file.stem for file in RECIPES.glob("*.toml")]
        msg = f"no recipe {str(name)!r}. {did_you_mean(str(name), known)}"
        raise BenchError(msg) from None
    except tomllib.TOMLDecodeError as error:
        msg = f"{path}: not valid TOML ({error})."
        raise BenchError(msg) from None
    members = table.get("members", {})
    nested = {
        "model": _parse(Shape, table.get("model", {}), f"{path} [model]"),
        "bio": _parse(BioSubnetwork, table.get("bio", {}), f"{path} [bio]"),
        "training": _parse(Training, table.get("training", {}), f"{path} [training]"),
        "sgtm": _parse(Sgtm, table.get("sgtm", {}), f"{path} [sgtm]"),
        "members": {
            key: _parse(Member, value, f"{path} [members.{key}]") for key, value in members.items()
        },
    }
    recipe = _parse(Recipe, table | nested, str(path))
    _check(recipe, str(path))
    return recipe


_KINDS: Final[dict[object, Any]] = {
    int: int,
    int | None: int,
    float: (int, float),
    str: str,
    bool: bool,
}
"""What TOML may hold for a field of a simple type."""


def _parse(kind: type[_Record], table: Mapping[str, Any], where: str) -> _Record:
    """A dataclass from a table: no unknown key, no missing key, no wrong type."""
    known: Any = kind
    fields = {field.name: field for field in dataclasses.fields(known)}
    values = {}
    for key, value in table.items():
        if key not in fields:
            msg = f"{where}: unknown key {key!r}. {did_you_mean(key, fields)}"
            raise BenchError(msg)
        values[key] = tuple(value) if isinstance(value, list) else value
        wanted: Any = fields[key].type
        expected = _KINDS.get(wanted, object)
        # Python counts true as an integer; a recipe must not.
        if not isinstance(value, expected) or (isinstance(value, bool) and wanted is not bool):
            name = getattr(wanted, "__name__", wanted)
            msg = f"{where}: {key} = {value!r} is not of type {name}."
            raise BenchError(msg)
    for name, field in fields.items():
        if name not in values and field.default is dataclasses.MISSING:
            msg = f"{where}: the key {name!r} is missing."
            raise BenchError(msg)
    return kind(**values)


def _check(recipe: Recipe, where: str) -> None:
    """Refuse values that have the right type and make no sense."""
    model, bio, sgtm = recipe.model, recipe.bio, recipe.sgtm
    rules = {
        "[model] width must be a multiple of heads": model.width % model.heads == 0,
        '[model] attention must name "global" or "local"': bool(model.attention)
        and set(model.attention) <= {"global", "local"},
        "[bio] heads must be fewer than the model's": 0 < bio.heads < model.heads,
        "[bio] units must be fewer than the model's": 0 < bio.units < model.units,
        "[sgtm] forget_batches must be at least 1": sgtm.forget_batches >= 1,
        "[sgtm] off_share must be within [0, 1]": 0 <= sgtm.off_share <= 1,
        "[sgtm] plain_share must be within [0, 1]": 0 <= sgtm.plain_share <= 1,
        f"[sgtm] shared must be among {', '.join(SHARED)}": set(sgtm.shared) <= set(SHARED),
        "[training] epochs and batch_blocks must be at least 1": min(
            recipe.training.epochs, recipe.training.batch_blocks
        )
        >= 1,
    }
    for name, member in recipe.members.items():
        rules[f"[members.{name}] p must be within [0, 100]"] = 0 <= member.p <= 100  # noqa: PLR2004
        rules[f"[members.{name}] role must be among {', '.join(ROLES)}"] = member.role in ROLES
    for rule, kept in rules.items():
        if not kept:
            msg = f"{where}: {rule}."
            raise BenchError(msg)
