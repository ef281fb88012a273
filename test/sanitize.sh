#!/bin/sh
# Builds the extension with AddressSanitizer and UndefinedBehaviorSanitizer, apart from the normal
# build, and runs the tests and fuzzers of `retrieval` on it. Usage: test/sanitize.sh [pytest arguments]
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
out=build/sanitize
SPARSE_EMBED_CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g" \
    "$python" setup.py --quiet build --build-base "$out" --build-lib "$out/lib"
if [ $# -eq 0 ]; then
    set -- test/retrieval/test_index.py test/retrieval/test_index_ids.py test/retrieval/test_index_file.py \
        test/retrieval/test_cells.py test/retrieval/test_tuning.py test/retrieval/test_rerank.py \
        "test/fuzz/test_fuzz.py::test_damaged_input_is_refused_or_harmless[index_files]" \
        "test/fuzz/test_fuzz.py::test_damaged_input_is_refused_or_harmless[queries]"
fi
# CPython itself keeps memory until it exits, so leaks are not looked for. Freed memory that is kept to
# notice its use must be less than what the fuzzer allows a case.
LD_PRELOAD="$(${CC:-gcc} -print-file-name=libasan.so) $(${CXX:-g++} -print-file-name=libstdc++.so)" \
    ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=32 PYTHONPATH="$out/lib" "$python" -m pytest -p no:cacheprovider "$@"
