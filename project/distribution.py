"""Check the contents of a built wheel and sdist: `python -m project.distribution dist`.

They must contain the code that runs, licence and notice; a wheel has the code inside the package `tenure`. Tests, bench, docker and the
message generator stay in the repository. `--compiled` checks the wheel with machine code (`make dist-compiled`): it has compiled modules,
and also their sources, which make tracebacks readable.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

from setup import compiled_modules

ROOT = Path(__file__).resolve().parents[1]
INSIDE = "tenure/_inside/"
PACKAGES = {"protocol", "coordinator", "storage", "history", "secured", "broker", "pipeline", "cli"}
TESTING = "tenure/testing/"
OUTSIDE = {"tenure/__init__.py", "tenure/__main__.py", "tenure/start.py", "pyspark_koffsets/__init__.py"}  # the only modules that other programs can import
ABOUT = {"LICENSE", "NOTICE", "README.md", "MANIFEST.in", "PKG-INFO", "pyproject.toml", "setup.cfg", "setup.py"}  # further files of the sdist
DEVELOPMENT = ("protocol/generator/", "protocol/generate.py", "protocol/schema/")
PAGE = "pipeline/report/"  # its files with PAGE_ENDINGS make up the report
PAGE_ENDINGS = (".css", ".html", ".js", ".json")
ENTRY_POINTS, LICENCES = "entry_points.txt", ("licenses/LICENSE", "licenses/NOTICE")
SHARED = f"{INSIDE}tenure__mypyc"  # the code of all compiled modules; the file of each module only loads it


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check a built wheel and sdist.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--compiled", action="store_true", help="the compiled wheel, instead of the plain one and the sdist")
    options = parser.parse_args(arguments)
    problems = 0
    for pattern in ("tenure-*-cp*.whl",) if options.compiled else ("tenure-*-none-any.whl", "tenure-*.tar.gz"):
        archives = sorted(options.folder.glob(pattern))
        if len(archives) != 1:
            print(f"dist: {options.folder} should contain one {pattern}, and contains {len(archives)}", file=sys.stderr)
            problems += 1
        for archive in archives:
            problems += judge(archive, options.compiled)
    return 1 if problems else 0


def judge(archive: Path, compiled: bool) -> int:
    """Print each problem of an archive in a line; return the number of problems."""
    wheel = archive.suffix == ".whl"
    names = wheel_names(archive) if wheel else sdist_names(archive)
    counted = Counter(name.split("/")[0] if "/" in name else name for name in names)
    print(f"{archive.name}: " + ", ".join(f"{name} ({count})" if count > 1 else name for name, count in sorted(counted.items())))
    problems = problems_of(names, wheel=wheel, machine_code=compiled)
    for problem in problems:
        print(f"dist: {archive.name}: {problem}", file=sys.stderr)
    return len(problems)


def wheel_names(archive: Path) -> list[str]:
    with zipfile.ZipFile(archive) as wheel:
        return wheel.namelist()


def sdist_names(archive: Path) -> list[str]:
    """The files of an sdist, without the leading folder NAME-VERSION/."""
    with tarfile.open(archive) as sdist:
        return [member.name.split("/", 1)[1] for member in sdist.getmembers() if member.isfile()]


def problems_of(names: list[str], *, wheel: bool, machine_code: bool = False) -> list[str]:
    """The problems of an archive with these files. In names of compiled modules, Python version and system follow the first dot."""
    expected = {f"{INSIDE}{module.removesuffix('.py')}" for module in compiled_modules(ROOT)} | {SHARED} if machine_code else set()
    built = {name for name in names if name.endswith(".so") and name.split(".")[0] in expected}
    absent = expected - {name.split(".")[0] for name in built}
    sources = [name for name in names if name not in built]
    unexpected = [f"{name} does not belong there" for name in sources if not belongs(name, wheel=wheel)]
    return unexpected + [f"{name} is not compiled" for name in sorted(absent)] + missing(sources, wheel=wheel)


def belongs(name: str, *, wheel: bool) -> bool:
    if name in OUTSIDE or (name.startswith(TESTING) and name.endswith(".py")) or name.split("/")[0].endswith((".dist-info", ".egg-info")):
        return True
    if not wheel and name in ABOUT:
        return True
    if wheel and not name.startswith(INSIDE):
        return False
    name = name.removeprefix(INSIDE) if wheel else name
    if name.startswith(PAGE):
        return name.endswith((".py", *PAGE_ENDINGS))
    return name.split("/")[0] in PACKAGES and name.endswith(".py") and not name.startswith(DEVELOPMENT)


def missing(names: list[str], *, wheel: bool) -> list[str]:
    page = [f"{PAGE}{path.name}" for path in (ROOT / PAGE).iterdir() if path.suffix in PAGE_ENDINGS]
    expected = [*OUTSIDE, *(f"{INSIDE if wheel else ''}{name}" for name in (*(f"{package}/__init__.py" for package in PACKAGES), *page))]
    endings = [ENTRY_POINTS, *(LICENCES if wheel else ("LICENSE", "NOTICE", "setup.py"))]
    absent = [name for name in expected if name not in names] + [end for end in endings if not any(name.endswith(end) for name in names)]
    return [f"{name} is missing" for name in sorted(absent)]


if __name__ == "__main__":
    sys.exit(main())
