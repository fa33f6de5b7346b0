"""The package's long description: README.md with absolute links. pyproject.toml has everything else.

An index shows the description without the repository, so relative links would lead nowhere. They become
addresses below the one entry of ``[project.urls]``, at the tag of the version.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

_LINK = re.compile(r"(?P<image>!\[[^\]]*)?\]\((?P<target>[^()\s]+)\)")
_ABSOLUTE = re.compile(r"[a-z][a-z+.-]*:|#")


def absolute_links(text: str, repository: str, tag: str) -> str:
    """Return markdown whose relative links and images are addresses of a repository's files.

    >>> absolute_links("[![a page](a.png)](a.md#top), [there](https://b.org)", "https://c.org/d/e", "v1")
    '[![a page](https://c.org/d/e/raw/v1/a.png)](https://c.org/d/e/blob/v1/a.md#top), [there](https://b.org)'

    Args:
        text: The markdown.
        repository: Address of the repository on GitHub, GitLab or Forgejo.
        tag: Tag or branch of the files.
    """

    def absolute(found: re.Match[str]) -> str:
        if _ABSOLUTE.match(found["target"]):
            return found[0]
        kind = "raw" if found["image"] else "blob"
        address = f"{repository.rstrip('/')}/{kind}/{tag}/{found['target']}"
        return f"{found['image'] or ''}]({address})"

    return _LINK.sub(absolute, text)


def long_description(root: Path) -> str:
    """Return README.md of a checkout or sdist as an index shows it."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (repository,) = project["urls"].values()
    readme = (root / "README.md").read_text(encoding="utf-8")
    return absolute_links(readme, repository, f"v{project['version']}")


if __name__ == "__main__":
    setup(
        long_description=long_description(Path(__file__).parent),
        long_description_content_type="text/markdown",
    )
