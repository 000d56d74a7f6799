"""The roles of a build's tasks. Nobody takes one out of the pool: a coordinator gives them, each by its name."""

from __future__ import annotations

BUILD_ROLE = "build.coordinator"
"""The build itself, which its coordinator holds."""
COMPONENT_ROLE = "build.component"
AUDIT_ROLE = "build.audit"
BUILD_ROLES = frozenset((BUILD_ROLE, COMPONENT_ROLE, AUDIT_ROLE))
