"""Build with mypyc: in place (`make compile`), or in a copy for the tests (`make compiled-test`).

The copy has all files of a wheel, so `--wheel` (`make dist-compiled`) packs the build that was tested.

Python imports a compiled module instead of its source. So every make target that runs the project's code first runs `--fresh`, which refuses
a compiled module that is older than its source.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from platform import libc_ver, machine

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("protocol", "coordinator", "storage", "history", "secured", "broker", "pipeline", "cli", "tenure", "pyspark_koffsets")
OTHER_WHEEL_FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "NOTICE")  # other files of a wheel
INSIDE = Path("tenure/_inside")  # as setup.py says
BUILD_ENDINGS = (".so", ".pyc")  # endings of files that builds make
GLIBC_OLDEST = 17  # the oldest that package indexes know
SHARED = "tenure__mypyc*.so"  # the code of all modules; the file of each module only loads it


def main() -> int:
    parser = argparse.ArgumentParser(description="Build with mypyc.")
    parser.add_argument("--fresh", action="store_true", help="build nothing; fail if a compiled module is older than its source")
    parser.add_argument("--possible", action="store_true", help="build nothing; fail if nothing can be compiled here")
    parser.add_argument("--copy", type=Path, metavar="FOLDER", help="build a copy of the packages in this folder")
    parser.add_argument("--wheel", type=Path, metavar="FOLDER", help="and put a wheel of what was built into that folder")
    options = parser.parse_args()
    if options.fresh:
        return refuse_stale(ROOT)
    if problem := missing_compiler():
        print(f"compile: {problem}", file=sys.stderr)
        return 1
    if options.possible:
        return 0
    root = options.copy or ROOT
    if options.copy:
        for package in PACKAGES:
            mirror(ROOT / package, root / package)
        for name in OTHER_WHEEL_FILES:
            shutil.copy2(ROOT / name, root)
    return build(root) or (pack(root, options.wheel) if options.wheel else 0)


def refuse_stale(root: Path) -> int:
    stale = [module for module, source in compiled_files(root) if not source.exists() or source.stat().st_mtime > module.stat().st_mtime]
    if not stale:
        return 0
    names = ", ".join(str(module.relative_to(root)) for module in stale[:3]) + (" ..." if len(stale) > 3 else "")
    print(f"compiled modules older than their sources ({names}): `make compile` again, or `make uncompile`", file=sys.stderr)
    return 1


def compiled_files(root: Path) -> Iterator[tuple[Path, Path]]:
    """Every compiled module with its source."""
    for package in PACKAGES:
        for module in sorted((root / package).rglob("*.so")):
            yield module, module.with_name(module.name.split(".")[0] + ".py")


def missing_compiler() -> str | None:
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if not shutil.which(compiler):
        return f"needs a C compiler, and there is no {compiler} (Debian: apt-get install gcc; macOS: xcode-select --install; or set CC)"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return f"needs Python's headers in {sysconfig.get_path('include')} (Debian: apt-get install python3-dev)"
    return None


def mirror(source: Path, copy: Path) -> None:
    """Copy the files of `source`. Unchanged files keep their modification time in the copy, so that they are not compiled again."""
    wanted = {path.relative_to(source) for path in source.rglob("*") if path.is_file() and path.suffix not in BUILD_ENDINGS}
    for path in [path for path in copy.rglob("*") if path.is_file() and path.suffix not in BUILD_ENDINGS]:
        if path.relative_to(copy) not in wanted:
            path.unlink()
    for name in wanted:
        target = copy / name
        if not target.exists() or target.read_bytes() != (source / name).read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, target)


def build(root: Path) -> int:
    print(f"compile: {root} (a few minutes if everything is new)", flush=True)
    for module, source in compiled_files(root):
        if not source.exists():
            module.unlink()
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=root, env=os.environ | {"WITH_MYPYC": "1"}, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        print("compile: failed", file=sys.stderr)
        return done.returncode
    modules = [module for module, _ in compiled_files(root)]
    for path in [*modules, *root.glob(SHARED)]:
        os.utime(path)  # also modules that were not compiled again must be newer than their sources, for `--fresh`
    print(f"compile: {len(modules)} modules")
    return 0


def pack(root: Path, folder: Path) -> int:
    """Build a wheel for this Python and system in `folder`; remove older wheels there."""
    forget_removed(root)
    for older in folder.glob("tenure-*-cp*.whl"):
        older.unlink()
    command = [sys.executable, "-P", "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder.absolute()), "."]
    if platform := platform_tag(root):
        command.append(f"--config-setting=--build-option=--plat-name={platform}")
    environment = os.environ | {"WITH_MYPYC": "1"}
    done = subprocess.run(command, cwd=root, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout + done.stderr, "compile: no wheel was made", sep="\n", file=sys.stderr)
    return done.returncode


def platform_tag(root: Path) -> str:
    """For which systems the wheel is: those with the glibc whose functions the modules call, the only library that they need. "": as setuptools says.

    Package indexes refuse wheels for "linux", a name without a version of glibc.
    """
    if libc_ver()[0] != "glibc":
        return ""
    called = {int(minor) for module, _ in compiled_files(root) for minor in re.findall(rb"GLIBC_2\.(\d+)\b", module.read_bytes())}
    called |= {int(minor) for shared in root.glob(SHARED) for minor in re.findall(rb"GLIBC_2\.(\d+)\b", shared.read_bytes())}
    return f"manylinux_2_{max({GLIBC_OLDEST} | called)}_{machine()}"


def forget_removed(root: Path) -> None:
    """Remove build files of sources that no longer exist: setuptools would pack them."""
    for lib in root.glob(f"build/lib*/{INSIDE}"):
        for path in [path for package in PACKAGES for path in (lib / package).rglob("*.*")]:
            if not (root / path.relative_to(lib)).with_name(path.name.split(".")[0] + ".py").exists():
                path.unlink()


if __name__ == "__main__":
    sys.exit(main())
