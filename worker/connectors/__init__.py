"""Places that documents come from by themselves; `contract` says what each must do."""

from __future__ import annotations
