"""Says what is in a built wheel and sdist, and refuses what does not belong: `python -m project.distribution dist`.

What runs goes in, with licence and notice: in a wheel all of it inside the package `tenure`. Tests, bench, docker and the message
generator stay in the repository.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

INSIDE = "tenure/_inside/"
PACKAGES = {"protocol", "coordinator", "storage", "history", "broker", "cli"}
OUTSIDE = {"tenure/__init__.py", "tenure/__main__.py", "tenure/start.py"}  # all that `import tenure` can reach
ABOUT = {"LICENSE", "NOTICE", "README.md", "MANIFEST.in", "PKG-INFO", "pyproject.toml", "setup.cfg", "setup.py"}  # beside them in the sdist
DEVELOPMENT = ("protocol/generator/", "protocol/generate.py", "protocol/schema/")
ENTRY_POINTS, LICENCES = "entry_points.txt", ("licenses/LICENSE", "licenses/NOTICE")


def main(folder: Path) -> int:
    wheels, sdists = sorted(folder.glob("tenure-*.whl")), sorted(folder.glob("tenure-*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        print(f"dist: {folder} should hold one wheel and one sdist", file=sys.stderr)
        return 1
    problems = 0
    for archive, names in ((wheels[0], wheel_names(wheels[0])), (sdists[0], sdist_names(sdists[0]))):
        counted = Counter(name.split("/")[0] if "/" in name else name for name in names)
        print(f"{archive.name}: " + ", ".join(f"{name} ({count})" if count > 1 else name for name, count in sorted(counted.items())))
        for problem in problems_of(names, wheel=archive.suffix == ".whl"):
            problems += 1
            print(f"dist: {archive.name}: {problem}", file=sys.stderr)
    return 1 if problems else 0


def wheel_names(archive: Path) -> list[str]:
    with zipfile.ZipFile(archive) as wheel:
        return wheel.namelist()


def sdist_names(archive: Path) -> list[str]:
    """Without the folder NAME-VERSION/ that everything in an sdist stands in, and without folders."""
    with tarfile.open(archive) as sdist:
        return [one.name.split("/", 1)[1] for one in sdist.getmembers() if one.isfile()]


def problems_of(names: list[str], *, wheel: bool) -> list[str]:
    return [f"{name} does not belong there" for name in names if not welcome(name, wheel=wheel)] + missing(names, wheel=wheel)


def welcome(name: str, *, wheel: bool) -> bool:
    if name in OUTSIDE or name.split("/")[0].endswith((".dist-info", ".egg-info")):
        return True
    if not wheel and name in ABOUT:
        return True
    if wheel and not name.startswith(INSIDE):
        return False
    name = name.removeprefix(INSIDE) if wheel else name
    return name.split("/")[0] in PACKAGES and name.endswith(".py") and not name.startswith(DEVELOPMENT)


def missing(names: list[str], *, wheel: bool) -> list[str]:
    wanted = [*OUTSIDE, *(f"{INSIDE if wheel else ''}{package}/__init__.py" for package in PACKAGES)]
    endings = [ENTRY_POINTS, *(LICENCES if wheel else ("LICENSE", "NOTICE", "setup.py"))]
    absent = [name for name in wanted if name not in names] + [end for end in endings if not any(name.endswith(end) for name in names)]
    return [f"{name} is missing" for name in sorted(absent)]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
