"""Find, load and validate a submission folder: `submission.toml` and `submission.py`."""

import importlib.util
import inspect
import sys
import tomllib
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from bench.canonical import canonical_json
from bench.errors import BenchError, did_you_mean

if TYPE_CHECKING:
    from bench.api import Unlearn

SUBMISSIONS: Final = Path(__file__).resolve().parent.parent / "submissions"
_TEXT_KEYS: Final = ("title", "authors", "paper", "description")
_KNOWN_KEYS: Final = (*_TEXT_KEYS, "trial")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A folder's declared side; its code is not imported yet."""

    name: str
    folder: Path
    title: str
    authors: str
    paper: str
    description: str
    trials: tuple[dict[str, Any], ...]
    """Hyperparameters of each trial, as declared."""
    fingerprint: str
    """SHA-256 over the names and bytes of `submission.py` and every other .py file beside it."""


def list_submissions(root: Path = SUBMISSIONS) -> list[str]:
    """Names of all submission folders, sorted; a leading underscore hides one (`_template`)."""
    return sorted(p.parent.name for p in root.glob("[!_]*/submission.toml"))


def find_submission(name: str, root: Path = SUBMISSIONS) -> Submission:
    """The submission of that name, or in that folder.

    Raises:
        BenchError: There is none, or its `submission.toml` is wrong.
    """
    folder = root / name
    if not (folder / "submission.toml").is_file():
        folder = Path(name)
    if not (folder / "submission.toml").is_file():
        msg = f"unknown submission {name!r}. {did_you_mean(name, list_submissions(root))}"
        raise BenchError(msg)
    folder = folder.resolve()
    file = folder / "submission.toml"
    try:
        with file.open("rb") as stream:
            table = tomllib.load(stream)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        msg = f"{file} cannot be read ({error})."
        raise BenchError(msg) from error
    for key in table:
        if key not in _KNOWN_KEYS:
            msg = f"{file}: unknown key {key!r}. {did_you_mean(key, _KNOWN_KEYS)}"
            raise BenchError(msg)
    texts = {}
    for key in _TEXT_KEYS:
        if not isinstance(table.get(key), str) or not table[key].strip():
            msg = f"{file}: {key!r} must be a non-empty text."
            raise BenchError(msg)
        texts[key] = " ".join(table[key].split())
    trials = table.get("trial", [])
    tables = isinstance(trials, list) and all(isinstance(trial, dict) for trial in trials)
    if not trials or not tables:
        msg = f"{file}: at least one [[trial]] table is needed; it may be empty."
        raise BenchError(msg)
    return Submission(
        name=folder.name,
        folder=folder,
        trials=tuple(trials),
        fingerprint=_fingerprint(folder),
        **texts,
    )


def _fingerprint(folder: Path) -> str:
    """Hash of the code alone: a trial's numbers are part of a run's identity by themselves."""
    digest = sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A submission with its code imported."""

    submission: Submission
    unlearn: "Unlearn"
    configs: tuple[Any, ...]
    """One Config for each trial."""

    def config_json(self, trial: int) -> str:
        """The trial's hyperparameters, defaults included, as canonical JSON."""
        return canonical_json(asdict(self.configs[trial]))


def load_submission(submission: Submission, max_trials: int) -> Loaded:
    """Import a submission's code and make its configs.

    Raises:
        BenchError: The code cannot be imported, lacks `Config` or `unlearn`, or a trial has an
            unknown key, a missing value or a value of another type.
    """
    where = submission.folder / "submission.toml"
    if len(submission.trials) > max_trials:
        msg = f"{where}: {len(submission.trials)} trials; the task allows {max_trials}."
        raise BenchError(msg)
    module = _import(submission)
    config_class = getattr(module, "Config", None)
    unlearn = getattr(module, "unlearn", None)
    code = submission.folder / "submission.py"
    if not (isinstance(config_class, type) and is_dataclass(config_class)):
        msg = f"{code}: a frozen dataclass named Config is needed."
        raise BenchError(msg)
    if not inspect.isfunction(unlearn) or len(inspect.signature(unlearn).parameters) != 4:  # noqa: PLR2004
        msg = f"{code}: a function unlearn(model, data, config, generator) is needed."
        raise BenchError(msg)
    configs = tuple(
        _config(config_class, trial, f"{where}: trial {number}")
        for number, trial in enumerate(submission.trials)
    )
    return Loaded(submission, unlearn, configs)


def _import(submission: Submission) -> ModuleType:
    code = submission.folder / "submission.py"
    name = f"_submission_{submission.fingerprint}"
    spec = importlib.util.spec_from_file_location(name, code)
    if not code.is_file() or spec is None or spec.loader is None:
        msg = f"{code} is missing."
        raise BenchError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # any error of foreign code, told in one line
        msg = f"{code} cannot be imported ({_told(error)})."
        raise BenchError(msg) from error
    return module


def _told(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _config(config_class: type, trial: dict[str, Any], where: str) -> object:
    known = {field.name: field for field in fields(config_class)}
    types = inspect.get_annotations(config_class, eval_str=True)
    for key, value in trial.items():
        if key not in known:
            msg = f"{where}: unknown key {key!r}. {did_you_mean(key, known)}"
            raise BenchError(msg)
        declared = types.get(key, object)
        wanted = declared if isinstance(declared, type) else object
        fits = isinstance(value, wanted) or (wanted is float and type(value) is int)
        if not fits or (wanted is int and isinstance(value, bool)):
            msg = f"{where}: {key} is {value!r}; {wanted.__name__} is needed."
            raise BenchError(msg)
    for name, field in known.items():
        if name not in trial and field.default is MISSING and field.default_factory is MISSING:
            msg = f"{where}: {name} is missing and has no default."
            raise BenchError(msg)
    values = {k: float(v) if types.get(k) is float else v for k, v in trial.items()}
    try:
        config = config_class(**values)
        canonical_json(asdict(config))
    except Exception as error:  # foreign code, or a value that no record can hold
        msg = f"{where}: Config refuses its values ({_told(error)})."
        raise BenchError(msg) from error
    return config
