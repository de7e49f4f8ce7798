"""`IdentityGenerator`: how the values of an identity column are counted (spec: "Identity Columns")."""

from __future__ import annotations

from dataclasses import dataclass

_LONG = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class IdentityGenerator:
    """Counts from `start` in steps of `step`, as given to `DeltaTableBuilder.addColumn`.

    Raises:
        ValueError: the step is 0, or a number is no 64-bit integer.

    Example:
        >>> IdentityGenerator(start=100, step=10)
        IdentityGenerator(start=100, step=10)
    """

    start: int = 1
    step: int = 1

    def __post_init__(self) -> None:
        numbers: tuple[tuple[str, object], ...] = (("start", self.start), ("step", self.step))
        for name, value in numbers:
            if isinstance(value, bool) or not isinstance(value, int) or value not in _LONG:
                raise ValueError(f"the {name} of an identity column is a whole number of 64 bits, not {value!r}.")
        if self.step == 0:
            raise ValueError(
                "the step of an identity column cannot be 0: it would give the same value again and again."
            )
