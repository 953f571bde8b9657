"""Places that documents come from by themselves. `TYPES` has one line for each kind; `contract` says what it must do."""

from __future__ import annotations
