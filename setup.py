"""Build of sparse-embed: the top-level folders install as packages within `sparse_embed`."""

import glob
import os

import numpy
from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_py import build_py

# A folder at the top of the repository that has an `__init__.py` is `sparse_embed.<folder>`.
FOLDERS = sorted(os.path.dirname(path) for path in glob.glob("*/__init__.py"))

# SPARSE_EMBED_CFLAGS adds compiler and linker flags, e.g. for a sanitizer build.
extra_flags = os.environ.get("SPARSE_EMBED_CFLAGS", "").split()

# Cython resolves `cimport` by package path, which the folder mapping hides from it: the extension
# is therefore one self-contained .pyx over C++ headers that sit beside it.
extensions = [
    Extension(
        "sparse_embed.retrieval._index",
        sources=["retrieval/_index.pyx"],
        depends=sorted(
            path for end in ("h", "inc", "pxi") for path in glob.glob(f"retrieval/*.{end}")
        ),
        include_dirs=["retrieval", numpy.get_include()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
        language="c++",
        extra_compile_args=["-std=c++17", "-O3", "-ffp-contract=off", *extra_flags],
        extra_link_args=["-pthread", *extra_flags],
    )
]


class BuildPy(build_py):
    """Leaves out this file, which stands in the folder of the package `sparse_embed` itself."""

    def find_package_modules(self, package, package_dir):
        """Returns (package, module, path) of each module."""
        modules = super().find_package_modules(package, package_dir)
        return [found for found in modules if found[1] != "setup"]


setup(
    cmdclass={"build_py": BuildPy},
    # The file `__init__.py` beside this one is that of `sparse_embed` itself.
    packages=["sparse_embed"]
    + [
        f"sparse_embed.{name}"
        for folder in FOLDERS
        for name in (folder, *(f"{folder}.{below}" for below in find_packages(folder)))
    ],
    package_dir={"sparse_embed": "."} | {f"sparse_embed.{folder}": folder for folder in FOLDERS},
    # What is listed here is installed and nothing else: MANIFEST.in has the C++ sources, too.
    include_package_data=False,
    package_data={
        "": ["*.pyi"],
        "sparse_embed": ["py.typed"],
        "sparse_embed.experiments": ["**/*.html"],
        "sparse_embed.flags": ["presets/**/*.flags"],
    },
    ext_modules=cythonize(extensions, build_dir="build", language_level=3),
)
