"""Check that a tag may be released: ``python .ci/check_release.py TAG REPOSITORY``.

The tag is "v" and the version; ``[project.urls]`` names the repository that releases. README's links in the
package start there, so that its placeholder is refused too. The exit code is 1 where one of them differs.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any


def faults(project: dict[str, Any], tag: str, repository: str) -> list[str]:
    """Return what forbids the release, one line each.

    Args:
        project: The table ``[project]`` of pyproject.toml.
        tag: Name of the tag.
        repository: Address of the repository that has it.
    """
    found = []
    if tag != f"v{project['version']}":
        found.append(
            f"tag {tag}: the version is {project['version']}; expected the tag v{project['version']}"
        )
    (url,) = project["urls"].values()
    if url.rstrip("/").lower() != repository.rstrip("/").lower():
        what = f"[project.urls] in pyproject.toml names {url}"
        found.append(f"{what}; expected this repository, {repository} (CONTRIBUTING.md, Releases)")
    return found


def main() -> None:
    """Print what forbids the release, and exit."""
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = faults(project, *sys.argv[1:])
    for fault in found:
        sys.stderr.write(f"error: {fault}\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
