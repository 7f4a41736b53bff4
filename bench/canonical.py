"""One text for one value, and its hash: what identities are made of."""

from dataclasses import asdict, is_dataclass
from hashlib import sha256
from json import dumps
from typing import Any


def canonical_json(value: object) -> str:
    """JSON that is equal where the values are: sorted keys, no spaces, no NaN.

    Raises:
        ValueError: A number is NaN or infinite.
        TypeError: Something in it has no JSON form.
    """

    def plain(item: Any) -> Any:
        if is_dataclass(item) and not isinstance(item, type):
            return asdict(item)
        msg = f"{type(item).__name__} has no JSON form"
        raise TypeError(msg)

    return dumps(
        value,
        default=plain,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )


def fingerprint(value: object) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the value's canonical JSON."""
    return sha256(canonical_json(value).encode()).hexdigest()[:16]
